"""What K2 and the FFN launch cost on all ranks: executed instructions as recorded, bytes as planned."""

from __future__ import annotations

import flow
import layer
import other
import pytest
import ranks
import torch

from flymono.gen.store import Artefact
from flymono.runtime.plan.ffn.experts import case_of
from flymono.runtime.weights.fp4_copies import NAMES

# Work of all ranks in wave instructions, looks in vain apart (`python bench/layer.py BUILD` prints it). A
# kernel that needs more is slower; one that needs much less has earned a new number here.
EXECUTED = {
    "dsv41_k2-gfx942-tp4-s1-r2": 17_265_122,
    "dsv41_k2-gfx950-tp2-s1-r2": 5_422_151,
    "dsv41_ffn-gfx942-tp4-s1": 14_326_033,
    "dsv41_ffn-gfx950-tp2-s1": 4_105_943,
}
EXECUTED_6 = {
    "dsv41_k2-gfx942-tp4-s6-r2": 52_141_342,
    "dsv41_k2-gfx950-tp2-s6-r2": 12_041_000,
}
SLACK = 0.97
PLANNED = ("hc_fn", "gate_w", "sgu", "sw2")


Measured = tuple[layer.Report, ranks.Step, ranks.Ran, Artefact]


@pytest.fixture(scope="module", params=EXECUTED)
def measured(request: pytest.FixtureRequest) -> Measured:
    """A build, measured once for all tests of it: a step holds gigabytes, so one at a time is kept."""
    return layer.measure(request.param)


def _as_recorded(report: layer.Report, golden: int) -> None:
    work = report.ours.work
    assert SLACK * golden <= work <= golden, f"{work} executed, {golden} recorded"


def test_executed_instructions(measured: Measured) -> None:
    _as_recorded(measured[0], EXECUTED[measured[1].plan.key.id])


@pytest.mark.slow
@pytest.mark.parametrize("build", EXECUTED_6)
def test_executed_instructions_of_six_rows(build: str) -> None:
    _as_recorded(layer.measure(build)[0], EXECUTED_6[build])


def test_weights_are_asked_for_once(measured: Measured) -> None:
    report = measured[0]
    assert {"selected experts", "shared gate/up", "router"} <= report.requested.keys()
    assert all(1.0 <= ratio <= layer.ONCE for ratio in report.requested.values()), report.requested


def test_bytes_are_the_plans(measured: Measured) -> None:
    _, step, ran, _ = measured
    plan, tp = step.plan, step.plan.key.tp
    attention = ("woa", "wob") if plan.key.kind == "k2" else ()
    for name in (*PLANNED, *attention):
        assert ran.requested(name) == tp * plan.cost[name].requested_read, name
    picks = [int((step.ids == number).sum()) for number in step.ids.unique()]
    case = case_of(plan.ffn, plan.expert, picks)
    for name in NAMES[:3]:  # w2_s: the plan's note on dwords that serve two tiles
        assert ran.requested(name) == tp * getattr(case.requested, name), name


def test_stages_and_waiting_are_told_apart(measured: Measured) -> None:
    report, step, ran, made = measured
    code = flow.Flow(made.hsaco)
    assert report.ours.work + report.ours.waiting == ran.instructions
    assert 0 < report.ours.waiting < 0.1 * ran.instructions
    assert set(report.ours.stages) - {"start", "end"} <= {s.name for s in step.plan.stages}
    by_address = {i.pc: n for n, first, end in made.stage_ranges for b in code.blocks.values()
                  for i in b.instructions if first <= i.pc - code.kernel.entry < end}  # fmt: skip
    mine = {i.pc: s for pc, s in code.stages().items() for i in code.blocks[pc].instructions}
    assert sum(by_address.get(pc) == s for pc, s in mine.items()) > 0.9 * len(mine)
    sleeping = [pc for pc, b in code.blocks.items() if any(i.mnemonic == "s_sleep" for i in b.instructions)]
    loops = [code.loop(pc) for pc in sleeping]
    assert len(loops) >= len(step.plan.sites) - 2
    assert all(0 < sum(len(code.blocks[b].instructions) for b in body) < 100 for body in loops)


def test_codes_in_another_order_are_the_same_codes() -> None:
    step = ranks.step_of("dsv41_ffn-gfx942-tp4-s1")
    recode, expert = other.recoded(step), int(step.ids[0, 0])
    assert recode is not None
    for name in ("w13_s", "w2_s"):
        ours = step.weights[0][name]
        theirs = recode(name, ours)
        assert torch.equal(ours[expert].flatten().sort().values, theirs[expert].flatten().sort().values)
        row, block, columns = 21, 3, ours.shape[2]
        tile = ours[expert].flatten()[row // 16 * 16 * columns :]
        at = (row // 16 * columns + block) * 16 + row % 16
        assert tile[block * 16 + row % 16] == ours[expert].flatten()[at]
        spot = row * columns + block if name == "w2_s" else row // 16 * 16 * columns + row % 16 * 8 + block
        assert theirs[expert].flatten()[spot] == ours[expert].flatten()[at]
    assert recode("w13", step.weights[0]["w13"]) is step.weights[0]["w13"]
