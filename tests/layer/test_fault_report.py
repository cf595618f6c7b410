"""Fault words as a report: names come from the plans, the cause is the wait that is upstream."""

from __future__ import annotations

import pytest
from benches import specs

from flymono.mono import faults as device
from flymono.runtime.plan import BuildKey, KernelPlan, plan_of
from flymono.runtime.plan.faults import CODE_SHIFT, FROM, HEAD_BYTES, MARKED, OWN, fault_words
from flymono.runtime.runner.faults import FaultError, fault_report

K1, FFN, EPOCH = "dsv41_k1-gfx950-tp2-s6-r2", "dsv41_ffn-gfx950-tp2-s6", 7


def _plan(build: str) -> KernelPlan:
    return plan_of(specs(), BuildKey.parse(build))


def _record(plan: KernelPlan, name: str, ranks: int = 0, flags: int = 0, behind: int = 2) -> list[int]:
    """Three words of a wait in workgroup 9, wave 3, that saw a tag of `behind` / 2 epochs before."""
    where = plan.site(name).id | 9 << 8 | 3 << 20 | ranks << 24 | flags
    return [where, plan.tag.at(EPOCH) - behind, plan.tag.at(EPOCH)]


def _words(plan: KernelPlan, records: dict[str, list[int]], state: int, mark: list[int]) -> list[int]:
    layout = fault_words()
    words = [0] * layout.words
    for name, three in records.items():
        at = layout.stride * plan.site(name).id
        words[at : at + 4] = [*three, plan.code]
    if state:
        words[:4] = [state | plan.code << CODE_SHIFT, *next(iter(records.values()))]
    words[layout.mark : layout.mark + 4] = mark
    return [w - (1 << 32) if w >= 1 << 31 else w for w in words]  # as int32 tensors give them


def test_nothing_is_no_report() -> None:
    assert fault_report(0, [0] * fault_words().words, [_plan(FFN)]) is None
    with pytest.raises(ValueError, match="4 fault words"):
        fault_report(0, [0] * 4, [_plan(FFN)])


def test_the_wait_upstream_is_the_cause_whoever_gave_up_first() -> None:
    plan = _plan(FFN)
    records = {"norm_lin": _record(plan, "norm_lin"),
               "slice_attn": _record(plan, "slice_attn", ranks=0b10, flags=MARKED)}  # fmt: skip
    report = fault_report(0, _words(plan, records, FROM + 0, [0] * 4), [_plan(K1), plan])
    assert report is not None and report.origin == 0 and report.wait is not None
    wait = report.wait
    assert (wait.build, wait.stage, wait.site, wait.region, wait.producer) == (
        FFN, "slice", "slice_attn", "attn", "push")  # fmt: skip
    assert (wait.workgroup, wait.wave, wait.awaited, wait.epoch, wait.marked) == (9, 3, (1,), EPOCH, True)
    text = report.render()
    assert "rank 0: a wait gave up on rank 0" in text and "waits for attn of push of rank 1" in text
    assert "K2 or the FFN launch of epoch 6 (1 epochs before)" in text and "look at rank 1" in text
    assert text.count("\n") == 3 and "norm_lin" in text


def test_another_ranks_fault_is_told_by_its_mark() -> None:
    plan, k1 = _plan(FFN), _plan(K1)
    mark = [FROM + 1 | k1.code << CODE_SHIFT, *_record(k1, "qkv_qkvp", behind=k1.tag.at(EPOCH))]
    records = {"slice_attn": _record(plan, "slice_attn", ranks=0b10, flags=MARKED)}
    report = fault_report(0, _words(plan, records, 0, mark), [k1, plan])
    assert report is not None and report.origin == 1 and report.wait == report.remote
    assert report.remote is not None and report.remote.build == K1 and report.remote.site == "qkv_qkvp"
    assert "never written" in report.remote.seen
    # a third rank is missing: that wait says more than the mark of one that waits too
    records["slice_attn"] = _record(plan, "slice_attn", ranks=0b100)
    other = fault_report(0, _words(plan, records, 0, mark), [k1, plan])
    assert other is not None and other.wait is not None and other.wait.awaited == (2,)


def test_a_launch_that_no_plan_knows_keeps_its_numbers() -> None:
    k1 = _plan(K1)
    words = _words(k1, {"norm_lin": _record(k1, "norm_lin")}, OWN, [0] * 4)
    report = fault_report(3, words, [_plan(FFN)])
    assert report is not None and report.origin == 3 and report.wait is not None
    assert report.wait.build == "an unknown K1 build" and report.wait.site == str(k1.site("norm_lin").id)
    error = FaultError([report], bound=10**9)
    assert "after 10 s" in str(error) and error.reports == (report,) and error.exit_code == 1


def test_the_kernels_write_what_the_plan_says() -> None:
    assert (device.OWN, device.FROM, device.MARKED, 1 << device.BLOCK_SHIFT) == (
        OWN,
        FROM,
        MARKED,
        HEAD_BYTES,
    )
