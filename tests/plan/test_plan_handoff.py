"""The hand-off graph never blocks, and the check for that agrees with all interleavings of small launches."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flymono.runtime.plan import BuildKey, plan_k1
from flymono.runtime.plan.handoff import Task, blocked, programs_of
from flymono.runtime.plan.k1.stages import STAGE_ORDER
from flymono.runtime.plan.waits import batches_of, order_faults
from flymono.specs import Specs

Programs = tuple[tuple[Task, ...], ...]


def ends_in_every_order(programs: Programs) -> bool:
    """Walk all states that any order of the workgroups can reach; True if none of them is stuck."""
    total: dict[str, int] = {}
    for task in (t for p in programs for t in p):
        total[task.stage] = total.get(task.stage, 0) + 1
    start = tuple(0 for _ in programs)
    seen, todo = {start}, [start]
    while todo:
        at = todo.pop()
        done: dict[str, int] = {}
        for task in (t for p, n in zip(programs, at, strict=True) for t in p[:n]):
            done[task.stage] = done.get(task.stage, 0) + 1
        steps = [w for w, (p, n) in enumerate(zip(programs, at, strict=True)) if n < len(p)
                 and all(done.get(s, 0) == total.get(s, 0) for s in p[n].after)]  # fmt: skip
        if not steps and any(n < len(p) for p, n in zip(programs, at, strict=True)):
            return False
        for w in steps:
            after = (*at[:w], at[w] + 1, *at[w + 1 :])
            if after not in seen:
                seen.add(after)
                todo.append(after)
    return True


STAGES = ("a", "b", "c")


@st.composite
def small_launches(draw: st.DrawFn) -> Programs:
    """Up to three workgroups of up to four tasks; waits may point anywhere, so many launches are stuck."""
    waits = {
        s: tuple(draw(st.sets(st.sampled_from([x for x in STAGES if x != s]), max_size=1))) for s in STAGES
    }
    names = st.lists(st.sampled_from(STAGES), max_size=4)
    programs = draw(st.lists(names, min_size=1, max_size=3))
    counts = dict.fromkeys(STAGES, 0)
    made = []
    for program in programs:
        tasks = []
        for stage in program:
            tasks.append(Task(stage, counts[stage], waits[stage]))
            counts[stage] += 1
        made.append(tuple(tasks))
    return tuple(made)


@given(small_launches())
@settings(max_examples=400, deadline=None)
def test_one_order_decides_for_all(programs: Programs) -> None:
    assert (not blocked(programs)) == ends_in_every_order(programs)


def test_a_small_k1_ends_in_every_order(specs: Specs) -> None:
    """The real stages and sites, squeezed onto three workgroups with two rows."""
    plan = plan_k1(specs, BuildKey.parse("dsv41_k1-gfx942-tp4-s2-r2"))
    counts = {"slice": 2, "norm": 2, "gate": 2, "kt": 2, "wqkv": 3, "qkv": 2, "wq_b": 4}
    stages = [replace(s, tasks=counts[s.name], first=0, span=3) for s in plan.stages]
    programs = programs_of(stages, plan.sites, 3)
    assert ends_in_every_order(programs) and not blocked(programs)


def test_a_wait_on_a_later_stage_is_found(specs: Specs) -> None:
    plan = plan_k1(specs, BuildKey.parse("dsv41_k1-gfx942-tp4-s6-r2"))
    assert order_faults(plan.sites, plan.stages, STAGE_ORDER) == []
    turned = [replace(s, producer="qkv") if s.name == "wqkv_xrdy" else s for s in plan.sites]
    assert order_faults(turned, plan.stages, STAGE_ORDER) == [
        "wqkv_xrdy: wqkv waits for qkv, which does not come before it"
    ]
    stuck = blocked(programs_of(plan.stages, turned, plan.grid))
    assert {b.task.stage for b in stuck} == {"wqkv", "wq_b"}  # parts wait for qkv, which sits behind them
    assert [b.workgroup for b in stuck] == list(range(plan.grid))
    assert all(b.missing for b in stuck)


def test_a_stage_does_not_wait_for_itself(specs: Specs) -> None:
    plan = plan_k1(specs, BuildKey.parse("dsv41_k1-gfx942-tp4-s6-r2"))
    turned = [replace(plan.sites[0], producer="norm")]
    assert order_faults(turned, plan.stages, STAGE_ORDER) == [
        "norm_lin: norm waits for norm, which does not come before it"
    ]


def test_stages_out_of_order_are_found(specs: Specs) -> None:
    plan = plan_k1(specs, BuildKey.parse("dsv41_k1-gfx942-tp4-s6-r2"))
    assert order_faults(plan.sites, tuple(reversed(plan.stages)), STAGE_ORDER)
    unknown = [replace(plan.sites[0], producer="nobody")]
    assert order_faults(unknown, plan.stages, STAGE_ORDER) == ["norm_lin: no stage 'nobody'"]


@pytest.mark.parametrize(("loads", "batches"), [(1, (1,)), (12, (12,)), (20, (12, 8)), (25, (12, 12, 1))])
def test_batches(loads: int, batches: tuple[int, ...]) -> None:
    assert batches_of(loads) == batches
