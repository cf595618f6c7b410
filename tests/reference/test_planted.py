"""Each planted bug is rejected by the stage that is wrong, and by no other stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flymono.reference.planted import REGISTRY, Planted
from flymono.specs.schema import NumericsSpec

Bench = Callable[..., Any]

BUILDS: list[dict[str, Any]] = [
    {"rows": 12, "ratio": 2, "fp8": "fnuz", "gemv": "fp8_mfma_fma"},
    {"rows": 12, "ratio": 1, "index": True},
]


@pytest.mark.parametrize("options", BUILDS, ids=["r2-fnuz", "r1-index"])
@pytest.mark.parametrize("bug", REGISTRY.values(), ids=REGISTRY.keys())
def test_a_planted_bug_is_rejected_where_it_is(bench: Bench, bug: Planted, options: dict[str, Any]) -> None:
    b = bench(**options)
    if not bug.shows(b.case):
        assert any(bug.shows(bench(**other).case) for other in BUILDS), "no build of this test shows the bug"
        return
    wrong = [v for v in b.compare(b.launch(bug)).stages() if not v.ok]
    assert (bug.stage, bug.output) in {(v.stage, v.output) for v in wrong}, bug.what
    assert {v.stage for v in wrong} == {bug.stage}
    assert all(v.where for v in wrong)


def test_every_stage_budget_rejects_a_bug(numerics: NumericsSpec) -> None:
    aimed = {(bug.stage, bug.output) for bug in REGISTRY.values()}
    budgets = {(b.stage, b.output) for b in numerics.budgets if b.stage != "end_to_end"}
    assert aimed == budgets


END_TO_END = {
    "pre_out": ("GateGroupLost", False),
    "post_out": ("PostFactorMissing", False),
    "comb_out": ("SinkhornTransposed", False),
    "normed": ("NewPreGate", True),
    "qr": ("WqkvScaleRowNext", True),
    "record_nope": ("RowsSwapped", False),
    "record_rope": ("RecordRopePairing", False),
    "q": ("HeadsShifted", False),
}


@pytest.mark.parametrize(("output", "bug", "index"), [(o, *b) for o, b in END_TO_END.items()])
def test_end_to_end_budgets_reject_what_is_plainly_wrong(
    bench: Bench, output: str, bug: str, index: bool
) -> None:
    b = bench(rows=12, ratio=1, index=index)
    wrong = [v.output for v in b.compare(b.launch(REGISTRY[bug])).end_to_end() if not v.ok]
    assert output in wrong


def test_every_end_to_end_budget_rejects_a_bug(numerics: NumericsSpec) -> None:
    assert set(END_TO_END) == {b.output for b in numerics.budgets if b.stage == "end_to_end"}
