"""The pass width and the row limit follow from LDS, and say what decides."""

from __future__ import annotations

import pytest

from flymono.runtime.plan import Code, Unsupported, to_json, width_report
from flymono.specs import Specs

from .plan_specs import arch_with

MODEL = "deepseek_v41_flash"


@pytest.mark.parametrize(
    ("arch", "lds", "width", "rows", "by"),
    [
        ("gfx942", None, 6, 42, "shared units"),
        ("gfx950", None, 16, 48, "seam workgroups"),
        ("gfx950", 131072, 16, 48, "seam workgroups"),
        ("gfx950", 120624, 16, 48, "seam workgroups"),
        ("gfx950", 120623, 15, 45, "shared units"),
        ("gfx950", 98304, 12, 36, "shared units"),
        ("gfx950", 90112, 11, 33, "shared units"),
    ],
)
def test_shipped_widths(specs: Specs, arch: str, lds: int | None, width: int, rows: int, by: str) -> None:
    spec = specs.arch[arch] if lds is None else arch_with(specs.arch[arch], lds=lds)
    report = width_report(specs.model[MODEL], spec)
    assert (report.width, report.limit.rows, report.limit.by, report.auto) == (width, rows, by, True)
    assert all(d.slack >= 0 for d in report.demands)


def test_the_routed_experts_decide(specs: Specs) -> None:
    report = width_report(specs.model[MODEL], specs.arch["gfx942"])
    assert report.wider is not None
    assert report.wider.stage.startswith("FFN moe")
    assert (report.wider.width, report.wider.bytes) == (7, moe_bytes(48, 7))
    assert (report.tightest.stage, report.tightest.bytes) == ("FFN moe (shared)", moe_bytes(42, 6))
    assert "FFN moe" in report.why and f"{moe_bytes(48, 7) - 65536} too many" in report.why
    wide = width_report(specs.model[MODEL], specs.arch["gfx950"]).tightest
    assert (wide.stage, wide.bytes) == ("FFN moe (shared and ug)", moe_bytes(48, 16))


def moe_bytes(rows: int, width: int) -> int:
    """Partial sums of two tiles; a table of six picks a row, with records of the tiles of 16; rows of x and
    their codes, padded by 16 bytes each. Every term is a multiple of 16 here."""
    n = 6 * rows
    tiles = min(n, n + n // 16) if rows > 16 else 0
    return 2 * 8192 + 2 * 4 * n + 8 * n + 8 * tiles + 3 * 4 * 384 + 4 * 12 + width * (5120 + 640 + 2 * 16)


def test_k1_alone_would_admit_more(specs: Specs) -> None:
    """At 11 rows a pass K1 fits gfx942's LDS; other stages of the layer do not."""
    from flymono.runtime.plan.width import demands_of

    demands = demands_of(specs.model[MODEL], specs.arch["gfx942"], 11, 11)
    assert all(d.slack >= 0 for d in demands if d.stage.startswith("K1"))
    assert {d.stage.split(" (")[0] for d in demands if d.slack < 0} == {"K2 gemv", "FFN moe"}


def test_a_small_budget_names_the_seam(specs: Specs) -> None:
    with pytest.raises(Unsupported) as refused:
        width_report(specs.model[MODEL], arch_with(specs.arch["gfx942"], lds=30000))
    first = refused.value.reasons[0]
    assert first.code == Code.LDS_TOO_SMALL
    assert "K1 seam" in first.text and "at 6 rows" in first.text and "31744" in first.text
    assert {r.code for r in refused.value.reasons} == {Code.LDS_TOO_SMALL}
    assert len(refused.value.reasons) == 3  # the K1 seam, the split stage and the FFN seam


def test_a_stated_width_is_checked(specs: Specs) -> None:
    model, arch = specs.model[MODEL], specs.arch["gfx942"]
    report = width_report(model, arch_with(arch, width=5))
    assert (report.width, report.limit.rows, report.auto, report.wider) == (5, 35, False, None)
    with pytest.raises(Unsupported, match="pass-width-too-wide"):
        width_report(model, arch_with(arch, width=7))
    with pytest.raises(Unsupported) as refused:
        width_report(model, arch_with(specs.arch["gfx950"], width=17))
    assert "16 columns" in refused.value.reasons[0].text


def test_a_stated_limit_is_checked(specs: Specs) -> None:
    model, arch = specs.model[MODEL], specs.arch["gfx942"]
    lower = width_report(model, arch_with(arch, limit=12))
    assert (lower.limit.rows, lower.limit.by) == (12, "arch spec")
    assert lower.width > 6  # fewer rows leave room for wider passes
    with pytest.raises(Unsupported, match="rows-limit-too-high"):
        width_report(model, arch_with(arch, limit=43))


def test_a_lower_limit_may_not_hide_behind_a_narrow_width(specs: Specs) -> None:
    """A stated limit holds at any width: it is never raised by the search for the widest pass."""
    for limit in range(1, 43):
        report = width_report(specs.model[MODEL], arch_with(specs.arch["gfx942"], limit=limit))
        assert report.limit.rows == limit


def test_tp_sizes_decide_together(specs: Specs) -> None:
    """TP2 of gfx942 would stop at 3 tiles: 18 rows."""
    arch = arch_with(specs.arch["gfx942"], tp=(2, 4), width=6)
    with pytest.raises(Unsupported, match="pass-width-too-wide"):
        width_report(specs.model[MODEL], arch_with(arch, lds=50000))
    assert width_report(specs.model[MODEL], arch_with(arch, lds=163840)).limit.rows == 18


def test_report_is_json(specs: Specs) -> None:
    assert '"width": 6' in to_json(width_report(specs.model[MODEL], specs.arch["gfx942"]))
