"""K1 is right: every build family, on the emulated machine code, within the derived budgets."""

from __future__ import annotations

import pytest
from running import VARIANTS, build_id, run, wrong

ROWS = {
    ("gfx942", 4): (1, 6, 7, 12, 42),
    ("gfx950", 2): (1, 6, 16, 17, 48),
    ("gfx950", 4): (1, 6, 16, 17, 48),
}
PLACES = tuple(ROWS)


@pytest.mark.parametrize(("arch", "tp", "rows"), [(a, t, s) for (a, t), rows in ROWS.items() for s in rows])
def test_rows(arch: str, tp: int, rows: int) -> None:
    """The plain layer at every row count where a pass fills, overflows or ends ragged."""
    assert wrong(run(build_id(arch, tp, rows)).verdicts()) == []


@pytest.mark.parametrize(("ratio", "fold", "index", "window"), VARIANTS)
@pytest.mark.parametrize(("arch", "tp"), [*PLACES[:2], pytest.param(*PLACES[2], marks=pytest.mark.slow)])
def test_variants(arch: str, tp: int, ratio: int, fold: bool, index: bool, window: int) -> None:
    """Every ratio, fold, index and window width: at one pass here, at a ragged second one on the next."""
    ragged = (VARIANTS.index((ratio, fold, index, window)) + PLACES.index((arch, tp))) % 2
    rows = ROWS[arch, tp][3 if ragged else 1]
    assert wrong(run(build_id(arch, tp, rows, ratio, fold, index, window)).verdicts()) == []


@pytest.mark.parametrize(("arch", "tp"), PLACES[:2])
@pytest.mark.parametrize("model", ["fma", "cdna3", "perturb"])
def test_any_matrix_arithmetic(arch: str, tp: int, model: str) -> None:
    """No verdict may depend on how the hardware sums inside a matrix instruction, or on 1-ulp functions."""
    ran = run(build_id(arch, tp, 7), mfma=model, trans="ulp")
    assert wrong(ran.verdicts()) == []


def test_timeline_build() -> None:
    """A timeline build computes the same and records points in order on every workgroup."""
    ran = run(build_id("gfx942", 4, 6) + "-timeline")
    assert wrong(ran.verdicts()) == []
    points = ran.done.bound.tensor("tl").reshape(ran.ready.plan.grid, -1)[:, :5]
    assert bool((points >= 0).all()), "a point was not written"
    assert bool((points.diff(dim=1) >= 0).all()), "points out of order"
    assert int(points[:, -1].min()) > int(points[:, 0].max()), "wq_b ends after every workgroup has started"
