"""What the host's checks of a step say that K1 reads, and does not read, is what K1 does on the device.

What they exempt may hold anything: the launch touches nothing outside its buffers and gives the same bits.
What they refuse does lead outside.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from running import build_id, launch, options, same_bits, specs
from torch import Tensor

from flymono.reference.case import K1Case
from flymono.runtime.devices.emulator import DeviceError
from flymono.runtime.run import k1
from flymono.runtime.run.command import Prepared, prepare
from flymono.runtime.step import StepCode, step_findings

FAR = 2**30
PLACES = (("gfx942", 4), ("gfx950", 2))


def ready_of(arch: str, tp: int) -> Prepared:
    """A step of ratio 2 with a padded row; K1 makes its key table."""
    return prepare(options(build_id(arch, tp, 7)), specs())


def codes(ready: Prepared) -> list[tuple[StepCode, str]]:
    given = k1.arguments_of(ready.plan, ready.case, ready.weights)
    return [(f.code, f.argument) for f in step_findings(ready.plan, given)]


def stale(case: K1Case) -> K1Case:
    """`case` with what no launch may rely on, wherever the checks exempt it."""
    live = case.live
    visible = torch.where(live, (case.pos + 1) // case.ratio, 0)

    def beyond(values: Tensor, count: Tensor, value: int) -> Tensor:
        places = torch.arange(values.shape[1])[None]
        return torch.where(places >= count[:, None], torch.full_like(values, value), values)

    lens = torch.where(live, case.swa_lens, FAR)
    return replace(
        case, topk=beyond(case.topk, visible, FAR), swa_idx=beyond(case.swa_idx, case.swa_lens * live, FAR),
        swa_lens=lens.to(torch.int32), t2r=torch.where(live, case.t2r, -FAR).to(torch.int32),
    )  # fmt: skip


@pytest.mark.parametrize(("arch", "tp"), PLACES)
def test_what_is_exempt_is_not_read(arch: str, tp: int) -> None:
    ready = ready_of(arch, tp)
    assert not ready.case.live.all() and codes(ready) == []
    other = replace(ready, case=stale(ready.case))
    assert codes(other) == []
    assert same_bits(launch(ready).outputs, launch(other).outputs) == []


@pytest.mark.parametrize(
    ("name", "row", "code"),
    [
        ("pos", -1, StepCode.POSITION),  # of the padded row: it is rotated like any other
        ("t2r", 0, StepCode.REQUEST),
        ("slot", 0, StepCode.SLOT),
    ],
)
def test_what_is_refused_leads_outside(name: str, row: int, code: StepCode) -> None:
    ready = ready_of("gfx942", 4)
    tensor = getattr(ready.case, name).clone()
    tensor[row] = FAR // 1024
    bad = replace(ready, case=replace(ready.case, **{name: tensor}))
    assert codes(bad) == [(code, name)]
    with pytest.raises(DeviceError):
        launch(bad, checked=False)
