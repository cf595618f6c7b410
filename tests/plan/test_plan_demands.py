"""The LDS that the pass width is chosen by is the LDS that builds take, at every row count, for every
mixture."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import assume, given

from flymono.runtime.plan import BuildKey, plan_of, width_report
from flymono.runtime.plan.dims import dims_of
from flymono.runtime.plan.ffn.launch import ffn_lds
from flymono.runtime.plan.ffn.shape import shape_of
from flymono.runtime.plan.k1.lds import front_struct
from flymono.runtime.plan.k1.stages import wq_b_span
from flymono.runtime.plan.keys import DEFAULT_RATIO
from flymono.runtime.plan.placement import grid_of
from flymono.runtime.plan.seam import seam_struct
from flymono.runtime.plan.strategy import strategy_of
from flymono.runtime.plan.width import demands_of, wq_b_per_workgroup
from flymono.specs.schema import ArchSpec, ModelSpec

from .plan_specs import arch_with, spec_set
from .random_specs import SPECS, layers
from .test_plan_properties import MODEL, many, report_of


def demand_is_allocation(model: ModelSpec, arch: ArchSpec, width: int, rows: int) -> None:
    """What `demands_of` states of each launch is the LDS that its builds take, of target and draft the
    larger."""
    grid, budget = grid_of(arch).workgroups, arch.workgroup.lds_bytes
    stated = {(d.tp, d.stage.split(" (")[0]): d.bytes for d in demands_of(model, arch, width, rows)}
    how = strategy_of(arch)
    for tp in arch.tp:
        d = dims_of(model, tp)
        front = front_struct(d, min(rows, width), wq_b_per_workgroup(d, wq_b_span(grid)))
        assert stated[tp, "K1 seam"] == seam_struct(d, rows).bytes and stated[tp, "K1 front"] == front.bytes
        taken = dict[str, int]()
        for m in (d, dims_of(model, tp, draft=True)):
            lds = ffn_lds(m, shape_of(m, rows, width, grid, how, arch), how, arch)
            for s in lds.structs:
                taken[s.name] = max(taken.get(s.name, 0), s.bytes)
            assert lds.total == max(s.bytes for s in lds.structs) <= budget
        assert (stated[tp, "FFN seam"], stated[tp, "FFN moe"]) == (taken["seam"], taken["moe"])
        assert stated[tp, "FFN moe"] == max(taken[name] for name in ("moe", "shared", "ug", "down"))


@given(layers())
@many
def test_demands_are_what_the_ffn_half_allocates(layer: tuple[ModelSpec, ArchSpec]) -> None:
    model, arch = layer
    report = report_of(model, arch)
    assume(report is not None)
    assert report is not None
    for rows in range(1, report.limit.rows + 1):
        demand_is_allocation(model, arch, report.width, rows)


LAUNCHES = {"k1": ("K1 seam", "K1 front"), "k2": ("K2 split", "K2 gemv", "FFN seam", "FFN moe"),
            "ffn": ("FFN seam", "FFN moe")}  # fmt: skip


@pytest.mark.parametrize(
    ("arch", "lds"), [("gfx942", None), ("gfx950", None), ("gfx950", 131072), ("gfx950", 98304)]
)
def test_demands_are_what_whole_plans_allocate(arch: str, lds: int | None) -> None:
    """Of each launch the largest demand, over the row counts, for target and draft, also of edited specs."""
    one = SPECS.arch[arch] if lds is None else arch_with(SPECS.arch[arch], lds=lds)
    specs, report = spec_set(MODEL, one), width_report(MODEL, one)
    for rows in {*range(1, report.limit.rows, 9), report.width, report.width + 1, report.limit.rows}:
        stated = {(d.tp, d.stage.split(" (")[0]): d.bytes for d in demands_of(MODEL, one, report.width, rows)}
        for tp, (kind, stages) in product(one.tp, LAUNCHES.items()):
            ratio = DEFAULT_RATIO if kind == "ffn" else 0
            drafts = (False,) if kind == "k1" else (False, True)
            keys = [BuildKey(kind, arch, tp, rows, ratio, draft=draft) for draft in drafts]
            built = [plan_of(specs, key).lds.total for key in keys]
            assert max(built) == max(stated[tp, s] for s in stages), (kind, rows)
