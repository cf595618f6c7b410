"""Bugs planted in what the kernel is given: each must be rejected, and by the stage that it is in.

The reference sees the right data, the kernel data with one mistake in it, as a wrong layout, scale
or hand-off would have it. A budget that lets one of them pass is too wide.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from running import Ran, build_id, device_of, options, specs

from flymono.gen import api
from flymono.runtime.run import k1
from flymono.runtime.run.command import prepare

Given = dict[str, torch.Tensor | int]
PLACES = (("gfx942", 4), ("gfx950", 2))


def _swap_scales(given: Given) -> None:
    scales = given["wqkv_s"]
    scales[:, [0, 1]] = scales[:, [1, 0]]


def _neighbour_scale(given: Given) -> None:
    given["wqb_s"].copy_(given["wqb_s"].roll(1, 0))


def _drop_k_block(given: Given) -> None:
    size = 16 * 128  # one 16-row x 128-K step, wherever the layout puts it
    given["wqkv"].view(-1)[5 * size : 6 * size] = 0


def _transpose_tile(given: Given) -> None:
    tile = given["wqb"].view(-1)[: 16 * 16].view(16, 16)
    tile.copy_(tile.T.contiguous())


def _one_code_off(given: Given) -> None:
    given["wqkv_s"].view(-1)[7] += 1


def _other_flavour(given: Given) -> None:
    """OCP bytes read as FNUZ, or the other way round: every value is off by a factor of two."""
    given["wqkv_s"].add_(1)


def _norm_weight(given: Given) -> None:
    given["attn_w"].copy_(given["attn_w"].roll(1))


def _wrong_position(given: Given) -> None:
    given["pos"] += 1


def _gate_rows(given: Given) -> None:
    given["hc_fn"].copy_(given["hc_fn"].roll(1, 0))


def _streams(given: Given) -> None:
    given["comb_in"].copy_(given["comb_in"].transpose(1, 2).contiguous())


def _window_off_by_one(given: Given) -> None:
    given["swa_lens"] -= 1


PLANTED: dict[str, tuple[Callable[[Given], None], str]] = {
    "swapped scales": (_swap_scales, "wqkv"),
    "neighbouring block's scale": (_neighbour_scale, "wq_b"),
    "one K step dropped": (_drop_k_block, "wqkv"),
    "transposed tile": (_transpose_tile, "wq_b"),
    "one scale code off": (_one_code_off, "wqkv"),
    "other FP8 flavour": (_other_flavour, "wqkv"),
    "norm weight shifted": (_norm_weight, "norm"),
    "position off by one": (_wrong_position, "wq_b"),
    "gate rows shifted": (_gate_rows, "slice"),
    "comb transposed": (_streams, "slice"),
    "window off by one": (_window_off_by_one, "kt"),
}


@pytest.mark.parametrize("bug", PLANTED)
@pytest.mark.parametrize(("arch", "tp"), PLACES)
def test_planted_bug_is_rejected_by_its_stage(arch: str, tp: int, bug: str) -> None:
    plant, stage = PLANTED[bug]
    ready = prepare(options(build_id(arch, tp, 6)), specs())
    given = k1.arguments_of(ready.plan, ready.case, ready.weights)
    plant(given)
    artefact = api.build(ready.plan.key, ready.specs)
    # a plant may be what the step's checks refuse: here the budgets have to
    done = k1.launch(ready.plan, artefact, device_of(ready), given, checked=False)
    stages = {v.stage for v in Ran(ready, artefact, done).verdicts() if not v.ok}
    assert stage in stages
