"""Each planted bug of K2 and the FFN launch is rejected by the stage that is wrong, and by no other."""

from __future__ import annotations

import pytest

from flymono.reference.planted_layer import REGISTRY, Bench, Bug, launches_of

from .layer_bench import TABLES, compare, failures, ffn_bench, k2_bench


def benches(bug: Bug) -> list[Bench]:
    """Benches that a bug is tried on: the FFN half on the FFN launch, the rest on K2."""
    if bug.table == "ffn":
        return [ffn_bench("ocp"), ffn_bench("fnuz", rows=9, experts=16, tile=2)]
    return [k2_bench("ocp", tp=2, rows=5, inside=True), k2_bench("fnuz", tp=2, rows=5, ratio=1)]


def check(bug: Bug, bench: Bench) -> None:
    wrong = failures(bench, bug)
    assert f"{bug.stage}.{bug.output}" in wrong, bug.what
    assert {name.split(".")[0] for name in wrong} == {bug.stage}, wrong


@pytest.mark.parametrize("bug", REGISTRY.values(), ids=REGISTRY.keys())
def test_a_planted_bug_is_rejected_where_it_is(bug: Bug) -> None:
    shown = [bench for bench in benches(bug) if bug.shows(bench)]
    assert shown, "no bench of this test shows the bug"
    check(bug, shown[0])


RARE = {"TiesByLane"}  # a tie modulo 64 needs 128 experts


@pytest.mark.slow
@pytest.mark.parametrize("bug", REGISTRY.values(), ids=REGISTRY.keys())
def test_a_planted_bug_is_rejected_on_the_other_bench_too(bug: Bug) -> None:
    shown = [bench for bench in benches(bug) if bug.shows(bench)]
    if len(shown) > 1 and bug.name not in RARE:
        check(bug, shown[1])


def test_an_ffn_bug_is_rejected_inside_k2_too() -> None:
    bench = k2_bench("ocp", tp=2, rows=5, inside=True)
    for name in ("GateUpSwapped", "ExpertDropped", "FfnCombTransposed"):
        bug = REGISTRY[name]
        assert {key.split(".")[0] for key in failures(bench, bug)} == {bug.stage}


def test_every_stage_budget_rejects_a_bug() -> None:
    for table in ("k2", "ffn"):
        aimed = {(bug.stage, bug.output) for bug in REGISTRY.values() if bug.table == table}
        budgets = {(b.stage, b.output) for b in TABLES[table].budgets if b.stage != "end_to_end"}
        assert aimed == budgets


END_TO_END = {
    "attn": "SinkMissing",
    "res_out": "FfnCombTransposed",
    "ids": "BiasMissing",
    "out": "ExpertDropped",
}


@pytest.mark.parametrize(("output", "name"), END_TO_END.items())
def test_end_to_end_budgets_reject_what_is_plainly_wrong(output: str, name: str) -> None:
    bug = REGISTRY[name]
    bench = k2_bench("fnuz", tp=2, rows=5, ratio=1) if bug.table == "k2" else ffn_bench("ocp")
    wrong = [v.output for v in compare(bench, launches_of(bug, bench)).end_to_end() if not v.ok]
    assert output in wrong


def test_every_end_to_end_budget_rejects_a_bug() -> None:
    stated = {b.output for t in ("k2", "ffn") for b in TABLES[t].budgets if b.stage == "end_to_end"}
    assert set(END_TO_END) == stated
