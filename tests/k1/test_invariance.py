"""What must not change K1's bits: the schedule, the other rows, the epoch, padding."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from running import build_id, launch, options, run, same_bits, specs, wrong

from flymono.runtime.run.command import prepare

PLACES = (("gfx942", 4), ("gfx950", 2))


@pytest.mark.parametrize(("arch", "tp"), PLACES)
def test_workgroup_orders(arch: str, tp: int) -> None:
    """The same bits whatever order workgroups run in, and when one of them starves."""
    build = build_id(arch, tp, 6)
    first = run(build).outputs
    for order, seed in (("reversed", 0), ("random", 1), ("random", 2), ("starve:3", 0)):
        assert same_bits(first, run(build, order=order, seed=seed).outputs) == [], f"{order} {seed}"


@pytest.mark.parametrize(("arch", "tp"), PLACES)
def test_early_and_late_memory(arch: str, tp: int) -> None:
    """A load may take its value when it is issued or when it is waited for."""
    build = build_id(arch, tp, 6)
    assert same_bits(run(build, sampling="early").outputs, run(build, sampling="late").outputs) == []


@pytest.mark.parametrize(("arch", "tp"), PLACES)
def test_rows_are_independent(arch: str, tp: int) -> None:
    """A row's outputs do not depend on the other rows: other values there, same bits here."""
    ready = prepare(options(build_id(arch, tp, 7)), specs())
    case = ready.case
    changed = torch.arange(case.rows) != 2
    noise = torch.randn(case.res_in.shape, generator=torch.Generator().manual_seed(9)).to(case.res_in.dtype)
    other = replace(case, res_in=torch.where(changed[:, None, None], noise, case.res_in))
    a, b = launch(ready), launch(replace(ready, case=other))
    for name in ("res_out", "post_out", "comb_out", "pre_out", "q"):
        assert torch.equal(a.outputs[name][2], b.outputs[name][2]), name
        assert not torch.equal(a.outputs[name], b.outputs[name]), f"{name}: the change reached nothing"


@pytest.mark.parametrize(("arch", "tp"), PLACES)
def test_padded_rows(arch: str, tp: int) -> None:
    """A padded row writes no record and has no keys; the real rows are the rows run alone."""
    ready = prepare(options(build_id(arch, tp, 7)), specs())
    live = torch.nonzero(ready.case.live).flatten()
    assert 0 < len(live) < 7
    padded = launch(ready)
    alone_ready = prepare(options(build_id(arch, tp, len(live))), specs())
    alone = launch(replace(alone_ready, case=ready.case.select(live)))
    for name in ("res_out", "post_out", "comb_out", "pre_out", "q"):
        assert torch.equal(padded.outputs[name][live], alone.outputs[name]), name
    assert torch.equal(padded.outputs["swa"], alone.outputs["swa"])
    kt = padded.outputs["kt"].reshape(7, -1)
    assert bool((kt[~ready.case.live] == -1).all())
    assert bool((padded.outputs["klen"].reshape(2, 7)[:, ~ready.case.live] == 0).all())


@pytest.mark.parametrize(("arch", "tp"), PLACES)
def test_replay(arch: str, tp: int) -> None:
    """Scratch of any earlier epoch, and the zeros of a first launch, give the same bits."""
    ready = prepare(options(build_id(arch, tp, 6)), specs())
    first = launch(ready, epoch=0)
    assert wrong(first.verdicts()) == []
    for epoch in (1, 1000, 2**30 - 1):
        assert same_bits(first.outputs, launch(ready, epoch=epoch).outputs) == [], epoch
