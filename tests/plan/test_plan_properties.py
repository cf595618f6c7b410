"""Invariants of a plan over random specs, and over every shipped row count."""

from __future__ import annotations

import re
from collections import Counter
from itertools import product

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from flymono.runtime.plan import BuildKey, K1Plan, Unsupported, plan_k1, width_report
from flymono.runtime.plan.handoff import blocked, programs_of
from flymono.runtime.plan.lds import Struct
from flymono.runtime.plan.placement import STAGE_ORDER
from flymono.runtime.plan.scratch import k1_regions, misfits
from flymono.runtime.plan.width import WidthReport, demands_of
from flymono.specs.schema import ArchSpec, ModelSpec

from .plan_specs import spec_set
from .random_specs import SPECS, keys, layers

MODEL = SPECS.model["deepseek_v41_flash"]
many = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])


def report_of(model: ModelSpec, arch: ArchSpec) -> WidthReport | None:
    """The width report, or None for a layer that is refused (with at least one reason)."""
    try:
        return width_report(model, arch)
    except Unsupported as refused:
        assert all(r.text and r.fix for r in refused.reasons)
        return None


@st.composite
def plans(draw: st.DrawFn) -> K1Plan:
    """The plan of a random supported build."""
    model, arch = draw(layers())
    report = report_of(model, arch)
    assume(report is not None)
    assert report is not None
    return plan_k1(spec_set(model, arch), draw(keys(arch, report.limit.rows)))


def check(plan: K1Plan) -> None:
    """Every invariant that a plan promises."""
    tasks_once(plan)
    passes_once(plan)
    lds_sound(plan)
    scratch_sound(plan)
    waits_sound(plan)
    abi_sound(plan)


def tasks_once(plan: K1Plan) -> None:
    assert tuple(s.name for s in plan.stages) == STAGE_ORDER
    for stage in plan.stages:
        ran = [(w, i) for w in range(plan.grid) for i in stage.tasks_of(w)]
        assert Counter(i for _, i in ran) == Counter(range(stage.tasks))
        assert all(stage.workgroup_of(i) == w for w, i in ran)
        held = Counter(w for w, _ in ran)
        assert max(held.values(), default=0) == stage.per_workgroup
    seam = [
        {s.workgroup_of(i) for i in range(s.tasks)}
        for s in plan.stages
        if s.name in ("slice", "norm", "gate")
    ]
    assert len(set().union(*seam)) == sum(map(len, seam)), "norms and gates queue behind nothing"


def passes_once(plan: K1Plan) -> None:
    for passes in (plan.passes, plan.mix_passes):
        rows = [first + i for first, count in passes.tiles for i in range(count)]
        assert rows == list(range(plan.key.rows))
        assert all(0 < count <= passes.width for _, count in passes.tiles)
        assert len({count for _, count in passes.tiles[:-1]}) <= 1


def lds_sound(plan: K1Plan) -> None:
    assert plan.lds.total <= plan.lds.budget
    assert plan.lds.total == max(s.bytes for s in plan.lds.structs)
    for struct in plan.lds.structs:
        struct_sound(struct)
    x = plan.lds["front"]["xl"]
    assert x.rows == plan.passes.lds_rows and x.row_words * 4 >= plan.dims.hidden // 2


def struct_sound(struct: Struct) -> None:
    at = 0
    for m in struct.members:
        assert m.offset % 16 == 0 and m.offset >= at and m.bytes == m.rows * m.row_words * 4
        at = m.offset + m.bytes
    assert at <= struct.bytes and struct.bytes % 16 == 0


def scratch_sound(plan: K1Plan) -> None:
    at = 0
    for r in plan.scratch.regions:
        assert r.shares is None and r.offset % 256 == 0 and r.offset >= at
        at = r.end
        assert elements(plan, r.index) * {"pairs": 8, "flags": 8, "data": 4}[r.kind] == r.bytes
    assert at <= plan.scratch.total
    assert not misfits(plan.scratch, k1_regions(plan.dims, plan.key.rows))


def elements(plan: K1Plan, index: str) -> int:
    """How many elements the writer's index formula reaches, from its loop bounds alone."""
    d, s = plan.dims, plan.key.rows
    n_end = d.qkv_rows if "half" in index else d.q_rank
    bounds = {
        "S": s,
        "t": s - 1,
        "half": 1,
        "c": d.hidden - 1,
        "n": n_end - 1,
        "slice": plan.seam.slices - 1,
        "j": d.mix,
    }
    text = re.sub(r"[A-Za-z]+", lambda m: str(bounds[m[0]]), index.replace("/", "//"))
    assert re.fullmatch(r"[0-9+*/() ]+", text)
    return int(eval(text)) + 1  # noqa: S307 - digits and operators alone, see the line above


def waits_sound(plan: K1Plan) -> None:
    order = {name: i for i, name in enumerate(STAGE_ORDER)}
    names = [s.name for s in plan.sites]
    assert [w for s in plan.stages for w in s.waits] == names and [s.id for s in plan.sites] == [
        1,
        2,
        3,
        4,
        5,
    ]
    for site in plan.sites:
        region = plan.scratch[site.region]
        assert order[site.producer] < order[site.stage]
        assert (region.writer, region.reader, region.kind) == (site.producer, site.stage, site.kind)
        assert site.region in plan.stage(site.producer).publishes
        assert max(site.batches) <= 12 and site.threads <= plan.block
        assert sum(site.batches) * site.load_pairs * site.threads >= site.awaited
    assert not blocked(programs_of(plan.stages, plan.sites, plan.grid))


def abi_sound(plan: K1Plan) -> None:
    at = 0
    for a in plan.abi.arguments:
        size = 4 if a.type == "int32" else 8
        assert a.offset >= at and a.offset % size == 0
        at = a.offset + size
    assert at <= plan.abi.kernarg_bytes == 320 and len(plan.abi.arguments) == 40
    for t in plan.cost.traffic:
        if t.requested_read and t.name != "scratch":
            assert t.requested_read >= t.unique_read


@given(plans())
@many
def test_random_specs(plan: K1Plan) -> None:
    check(plan)


@pytest.mark.slow
@given(plans())
@settings(many, max_examples=1500)
def test_many_more_random_specs(plan: K1Plan) -> None:
    check(plan)


SHIPPED = [(a, tp, rows) for a, tps, limit in (("gfx942", (4,), 42), ("gfx950", (2, 4), 48))
           for tp, rows in product(tps, range(1, limit + 1))]  # fmt: skip


@pytest.mark.parametrize(("arch", "tp"), sorted({(a, tp) for a, tp, _ in SHIPPED}))
def test_every_shipped_row_count(arch: str, tp: int) -> None:
    for a, t, rows in SHIPPED:
        if (a, t) == (arch, tp):
            for ratio, index, window in ((0, False, 192), (1, True, 128), (2, False, 128)):
                check(plan_k1(SPECS, BuildKey("k1", arch, tp, rows, ratio, rows % 2 == 0, index, window)))


@given(layers())
@many
def test_every_stage_fits_at_every_row_count(layer: tuple[ModelSpec, ArchSpec]) -> None:
    """The width is chosen at the row limit; fewer rows must not need more."""
    model, arch = layer
    report = report_of(model, arch)
    assume(report is not None)
    assert report is not None
    for rows in range(1, report.limit.rows + 1):
        assert all(d.slack >= 0 for d in demands_of(model, arch, report.width, rows)), rows


@given(layers())
@many
def test_auto_is_the_widest(layer: tuple[ModelSpec, ArchSpec]) -> None:
    """No wider pass fits at its own row limit: each is refused when the arch spec states it."""
    from .plan_specs import arch_with

    model, arch = layer[0], arch_with(layer[1], width="auto")
    report = report_of(model, arch)
    assume(report is not None)
    assert report is not None
    for wider in range(report.width + 1, 17):
        with pytest.raises(Unsupported):
            width_report(model, arch_with(arch, width=wider))
