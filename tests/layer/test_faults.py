"""Waits that give up end every rank with a report, and what comes after a fault turns back.

A rank that never launches and a hand-off that is lost on one rank are told apart by their reports.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import plants
import pytest
import torch
from benches import Bench, bench, real
from fault_bench import ENDLESS, SHORT, Ended, reports, run, state

from flymono.runtime.devices.emulator import DeviceError
from flymono.runtime.plan.faults import OWN
from flymono.runtime.run.group import EPOCH, Group
from flymono.runtime.runner.faults import FaultReport

FFN, K1 = "dsv41_ffn-gfx950-tp2-s1", "dsv41_k1-gfx950-tp2-s1-r2"
PUSHING = [FFN, pytest.param("dsv41_ffn-gfx942-tp4-s1", marks=pytest.mark.slow),
           pytest.param("dsv41_k2-gfx950-tp2-s1-r2-index", marks=pytest.mark.slow)]  # fmt: skip
TURNED_BACK = 40  # instructions of a wave that turns back, at most


def group_of(one: Bench, ranks: int, bounds: tuple[int, ...] = ()) -> Group:
    group = Group.of([one.plan], ranks)
    return replace(group, bound=bounds) if bounds else group


def turned_back(one: Bench, code: object, group: Group) -> Iterator[tuple[int, Ended]]:
    """Launch again on each rank alone: nothing that outlives a launch changes, outputs keep their pattern."""
    waves = one.plan.grid * one.plan.waves
    for rank in range(len(group.epoch)):
        before = state(one.plan, group)
        done = run(one, code, group, [rank])
        after = state(one.plan, group)
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True)), rank
        for name, value in done.outputs(one.plan, rank).items():
            assert torch.equal(value, done.before[rank][name]), (rank, name)
        counters = done.counters[rank]
        assert counters is not None and counters.instructions <= TURNED_BACK * waves + 400 * one.plan.grid
        yield rank, done


@pytest.mark.parametrize("build", PUSHING)
def test_a_rank_that_never_launches_ends_the_others(build: str) -> None:
    one, code = bench(build), real(bench(build).plan)
    ranks = one.plan.key.tp
    living, dead = list(range(ranks - 1)), ranks - 1
    group = group_of(one, ranks)
    run(one, code, group, living)
    found = reports(group, [one.plan])
    assert set(found) == set(living)
    for report in found.values():
        wait = report.wait
        assert wait is not None and (wait.stage, wait.site, wait.region) == ("slice", "slice_attn", "attn")
        assert wait.awaited == (dead,) and wait.epoch == EPOCH and wait.build == build
        assert wait.wave < one.plan.waves and wait.workgroup < one.plan.stage("slice").tasks
        assert f"of rank {dead}" in report.render()
    # everybody turns back, the rank that comes late too: the mark has told it
    assert [r for r, _ in turned_back(one, code, group)] == list(range(ranks))
    late = reports(group, [one.plan])[dead]
    assert late.origin in living and late.remote is not None and not late.waits
    assert late.remote.build == build and f"on rank {late.origin}" in late.render()


def lost_on_rank_0(
    one: Bench, code: object, bounds: tuple[int, ...] = ()
) -> tuple[Group, dict[int, FaultReport]]:
    """Rank 0 runs without the workgroups that norm."""
    ranks = one.plan.key.tp if one.plan.key.kind != "k1" else 1
    group = group_of(one, ranks, bounds)
    run(one, code, group, grids={0: one.plan.stage("norm").first})
    return group, reports(group, [one.plan])


@pytest.mark.parametrize("build", PUSHING)
def test_a_hand_off_lost_on_one_rank_ends_all(build: str) -> None:
    """Only rank 0 has a bound that anybody could live to see: the others end by its mark."""
    one = bench(build)
    tp = one.plan.key.tp
    _, found = lost_on_rank_0(one, real(one.plan), (SHORT, *(ENDLESS,) * (tp - 1)))
    assert set(found) == set(range(tp))
    cause = found[0].wait
    assert found[0].origin == 0 and cause is not None and not cause.awaited
    lost = "kt" if one.plan.key.index else "norm"  # an index build makes its key table behind those, too
    assert cause.producer == lost and cause.epoch == EPOCH
    assert cause.region == one.plan.site(cause.site).region
    for rank in range(1, tp):
        report = found[rank]
        assert report.origin == 0 and report.remote is not None and report.waits
        assert all(w.marked for w in report.waits) and report.wait == report.remote


def test_a_fault_of_k1_is_passed_on_by_the_next_launch() -> None:
    k1, ffn = bench(K1), bench(FFN)
    group, found = lost_on_rank_0(k1, real(k1.plan))
    assert found[0].wait is not None and found[0].wait.site == "wqkv_xrdy" and found[0].wait.build == K1
    both = Group.of([k1.plan, ffn.plan], 2)
    both = replace(both, epoch=(group.epoch[0], both.epoch[1]), fault=(group.fault[0], both.fault[1]))
    assert int(group.fault[0][0]) & 0xFFFF == OWN
    for _ in turned_back(ffn, real(ffn.plan), both):
        pass
    other = reports(both, [k1.plan, ffn.plan])[1]
    assert other.origin == 0 and other.remote is not None and other.remote.site == "wqkv_xrdy"
    assert other.remote.build == K1


# ------------------------------------------------------------------ planted bugs

BOUND_IGNORED = plants.Edit("mailbox.py", "if (mark | late) != 0:", "if mark != 0:")
MARK_KEPT = plants.Edit("faults.py", '*(_send(build) if peers else ()), "s_endpgm"', '"s_endpgm"')
FIRST_ONLY = plants.Edit("faults.py", "    if found != 0:\n", "    if (found != 0) & (c.workgroup == 0):\n")


@pytest.mark.slow
def test_a_kernel_that_ignores_the_bound_stands_still(tmp_path: Path) -> None:
    one = bench(K1)
    with pytest.raises(DeviceError) as stuck:
        lost_on_rank_0(one, plants.planted(one.plan, [BOUND_IGNORED], tmp_path))
    assert {f.kind for f in stuck.value.findings} == {"all-waiting"}


@pytest.mark.slow
def test_a_mark_that_is_not_passed_on_leaves_others_waiting(tmp_path: Path) -> None:
    one = bench(FFN)
    with pytest.raises(DeviceError) as stuck:
        lost_on_rank_0(one, plants.planted(one.plan, [MARK_KEPT], tmp_path), (SHORT, ENDLESS))
    assert {f.kind for f in stuck.value.findings} == {"all-waiting"}


@pytest.mark.slow
def test_a_check_in_one_workgroup_alone_is_seen(tmp_path: Path) -> None:
    one = bench(K1)
    code = plants.planted(one.plan, [FIRST_ONLY], tmp_path)
    group, _ = lost_on_rank_0(one, code)
    with pytest.raises(AssertionError):
        for _ in turned_back(one, code, group):
            pass
