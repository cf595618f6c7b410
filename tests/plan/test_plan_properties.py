"""Invariants of a plan over random specs, and over every shipped row count."""

from __future__ import annotations

import re
from collections import Counter
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from flymono.runtime.plan import (
    BuildKey,
    Code,
    FfnPlan,
    K1Plan,
    K2Plan,
    KernelPlan,
    Unsupported,
    key_reasons,
    plan_k1,
    plan_of,
    width_report,
)
from flymono.runtime.plan.ffn.regions import ffn_regions
from flymono.runtime.plan.handoff import blocked, programs_of
from flymono.runtime.plan.k1.regions import k1_regions
from flymono.runtime.plan.k1.stages import STAGE_ORDER
from flymono.runtime.plan.lds import Struct
from flymono.runtime.plan.scratch import Region, misfits
from flymono.runtime.plan.width import WidthReport, demands_of
from flymono.specs.schema import ArchSpec, ModelSpec

from .plan_specs import arch_with, spec_set
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
def plans(draw: st.DrawFn, kind: str = "k1") -> Any:
    """The plan of a random supported build."""
    model, arch = draw(layers())
    report = report_of(model, arch)
    assume(report is not None)
    assert report is not None
    specs, key = spec_set(model, arch), draw(keys(arch, report.limit.rows, kind))
    reasons = key_reasons(specs, key)
    known = {Code.LAYOUT_MISFIT} if kind == "k1" else {Code.LAYOUT_MISFIT, Code.MODEL_SHAPE}
    assert {r.code for r in reasons} <= known, "a draft may not fit the target's scratch, nor experts down"
    assume(not reasons)
    return plan_of(specs, key)


def check(plan: KernelPlan) -> None:
    """Every invariant that a plan promises, whatever its kind."""
    tasks_once(plan)
    passes_once(plan)
    lds_sound(plan)
    scratch_sound(plan)
    waits_sound(plan)
    abi_sound(plan)
    if isinstance(plan, K1Plan):
        k1_sound(plan)
    if isinstance(plan, (K2Plan, FfnPlan)):
        ffn_sound(plan)


def tasks_once(plan: KernelPlan) -> None:
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


def k1_sound(plan: K1Plan) -> None:
    assert tuple(s.name for s in plan.stages) == STAGE_ORDER
    x = plan.lds["front"]["xl"]
    assert x.rows == plan.passes.lds_rows and x.row_words * 4 >= plan.dims.hidden // 2
    assert not misfits(plan.scratch, k1_regions(plan.dims, plan.key.rows))
    assert plan.abi.kernarg_bytes == 336 and len(plan.abi.arguments) == 42


def ffn_sound(plan: K2Plan | FfnPlan) -> None:
    """What the FFN half promises beyond the common invariants."""
    f, d = plan.ffn, plan.dims
    for name in ("wo_a", "router", "shared", "shared_q", "xq", "slice", "gate", "norm", "reduce"):
        assert all(s.per_workgroup <= 1 for s in plan.stages if s.name == name), name
    shared, quant = plan.stage("shared"), plan.stage("shared_q")
    assert all(quant.workgroup_of(j) == shared.workgroup_of(2 * j + 1) for j in range(quant.tasks))
    assert f.parts * f.groups_per_task >= f.groups and (f.router_groups - 1) * f.router_rows < f.rows
    table_sound(plan)
    areas_sound(plan)
    assert not misfits(plan.scratch, ffn_regions(d, f))
    for stage in plan.stages:
        if stage.queue is not None:
            assert stage.queue.static == min(stage.tasks, plan.grid) or stage.name == "ug"
    assert f.down_extra <= plan.grid and f.by_tile == (f.rows > f.pick_width)
    half = plan.peer.regions
    assert (
        half.total <= plan.peer.half_bytes
        and plan.peer.total == plan.peer.mark_bytes + 2 * plan.peer.half_bytes
    )
    assert (plan.abi.kernarg_bytes, len(plan.abi.arguments)) == (
        (448, 56) if plan.key.kind == "k2" else (256, 32)
    )


def table_sound(plan: K2Plan | FfnPlan) -> None:
    """The route table has room for whatever is picked, lies at one place in every struct, and what its
    fields count fits them: picks and slots ten bits each of a word of counts, units the other twelve; a
    thread a pick and an expert, two words of rows, a word of counts a wave and three more."""
    f, lds = plan.ffn, plan.lds
    *table, stage = lds["moe"].members
    for name in ("shared", "ug", "down"):
        own = lds[name].members
        assert own[: len(table)] == tuple(table)
        assert all(m.offset >= stage.offset for m in own[len(table) :])
        assert lds[name].bytes <= stage.offset + stage.bytes
    words = {m.name: m.bytes // 4 for m in table}
    units = min(f.picks, f.max_slots + f.picks // f.pick_width) if f.rows > f.pick_width else 0
    assert (f.picks, f.max_slots) == (f.rows * f.per_token, min(f.picks, f.experts))
    assert words["weights"] == words["order"] == f.picks and words["slots"] == 2 * f.max_slots
    assert words["units"] == 2 * units and (not units or units == f.max_tiles)
    assert words["starts"] == f.experts and words["bitmaps"] == 2 * f.experts
    assert words["totals"] >= f.experts // 64 + 3 and f.experts <= plan.waves * 64
    assert f.picks <= min(plan.block, 1023) and f.rows <= 64 and max(f.max_slots, units) <= 1023
    assert words["red"] * 4 == 2 * plan.waves * 1024


def areas_sound(plan: K2Plan | FfnPlan) -> None:
    """What a stage holds beside the table: rows of a pass or a tile, whole or a share a K slice."""
    f, d, lds = plan.ffn, plan.dims, plan.lds
    held, tile = min(f.rows, f.width), min(f.rows, f.pick_width)
    assert (f.pick_width, f.k_block) == (f.width, d.hidden) or f.pick_width == plan.strategy.gemv_mfma.n
    assert f.k_slices * 2 * f.groups_per_task == plan.waves, "two waves a group and slice"
    blocks, rest = divmod(d.hidden, f.k_block)
    slices = f.k_slices if blocks > 1 else 1
    assert rest == 0 and (blocks == 1 or f.k_block % (slices * 2 * 128) == 0), "whole pairs of steps"
    w = -(-d.intermediate // 128) * 128
    for area, data, codes, rows, k in (
        ("shared", "x", "xs", held, d.hidden),
        ("ug", "x", "xs", slices * tile, f.k_block // slices),
        ("down", "smq", "smc", held, w),
    ):
        members = lds[area][data], lds[area][codes]
        assert [(m.rows, m.row_words * 4) for m in members] == [(rows, k + 16), (rows, k // 8 + 16)], area
    assert (lds["down"]["kept"].bytes, lds["down"]["sdl"].bytes) == (2 * f.picks * 32, 2 * f.rows * 32)


def passes_once(plan: KernelPlan) -> None:
    for passes in (plan.passes, getattr(plan, "mix_passes", plan.passes)):
        rows = [first + i for first, count in passes.tiles for i in range(count)]
        assert rows == list(range(plan.key.rows))
        assert all(0 < count <= passes.width for _, count in passes.tiles)
        assert len({count for _, count in passes.tiles[:-1]}) <= 1


def lds_sound(plan: KernelPlan) -> None:
    assert plan.lds.total <= plan.lds.budget
    assert plan.lds.total == max(s.bytes for s in plan.lds.structs)
    for struct in plan.lds.structs:
        struct_sound(struct)


def struct_sound(struct: Struct) -> None:
    at = 0
    for m in struct.members:
        assert m.offset % 16 == 0 and m.offset >= at and m.bytes == m.rows * m.row_words * 4
        at = m.offset + m.bytes
    assert at <= struct.bytes and struct.bytes % 16 == 0


def scratch_sound(plan: KernelPlan) -> None:
    peer = plan.peer.regions.regions if isinstance(plan, (K2Plan, FfnPlan)) else ()
    own = {r.name for r in k1_regions(plan.dims, plan.key.rows)}
    for regions, total in ((plan.scratch.regions, plan.scratch.total), (peer, 1 << 62)):
        at = 0
        for r in regions:
            assert r.shares is None and r.offset % 256 == 0 and r.offset >= at
            at = r.end
            mine = (plan.key.kind == "k1" and r.name in own) or (plan.key.kind != "k1" and _is_mine(plan, r))
            if mine:
                assert elements(plan, r) * SIZES.get(r.element, 8 if r.kind != "data" else 4) == r.bytes, (
                    r.name
                )
        assert at <= total


SIZES = {"f32x2": 8, "bf16": 2}
PADDED = {"ugf", "mids"}
"""Regions whose size is a bound that a step need not reach, or that end on lines."""


def _is_mine(plan: KernelPlan, r: Region) -> bool:
    """Regions with an index formula over this plan's own mixture: an FFN draft runs on a larger layout."""
    if isinstance(plan, FfnPlan) and plan.key.draft:
        return False
    return r.name not in {d.name for d in k1_regions(plan.dims, plan.key.rows)}


def bounds_of(plan: KernelPlan, r: Region) -> dict[str, int]:
    """Ends of the writer's loops."""
    d, s = plan.dims, plan.key.rows
    ends = {
        "S": s + 1, "t": s, "half": 2, "c": d.hidden, "n": d.qkv_rows if "half" in r.index else d.q_rank,
        "slice": d.hidden // 32, "j": d.mix + 1, "d": d.head_dim, "h": d.heads, "src": d.tp,
    }  # fmt: skip
    if isinstance(plan, (K2Plan, FfnPlan)):
        f = plan.ffn
        units = f.max_tiles if f.by_tile else f.max_slots
        more: dict[str, dict[str, int]] = {
            "logit": {"row": d.experts, "part": 4}, "route": {"copy": 8, "j": 2 * f.per_token},
            "smid": {"task": d.intermediate // 16, "r": 16}, "smq": {"grp": d.intermediate // 32, "i": 8},
            "smc": {"grp": d.intermediate // 32}, "mid": {"row": f.picks, "word": d.intermediate_padded // 4},
            "mids": {"row": f.picks, "word": r.bytes // 4 // f.picks}, "ugf": {"task": units * f.parts},
        }  # fmt: skip
        ends |= more.get(r.name, {})
    if isinstance(plan, K2Plan):
        a = plan.attention
        ends |= {"ch": a.split.chunks, "hg": a.combine_per_row}
        ends |= {
            "x8b": {"row": d.o_rows},
            "x8bs": {"task": d.o_rows // 32},
            "ardy": {"task": a.wo_a_tasks},
        }.get(r.name, {})
    return ends


def elements(plan: KernelPlan, r: Region) -> int:
    """How many elements the writer's index formula reaches, from its loop bounds alone."""
    if isinstance(plan, FfnPlan) and r.writer in ("split", "combine", "wo_a"):
        return r.bytes // SIZES.get(r.element, 8 if r.kind != "data" else 4)
    ends = bounds_of(plan, r)
    text = re.sub(r"[A-Za-z]+", lambda m: str(ends[m[0]] - 1), r.index.replace("/", "//"))
    assert re.fullmatch(r"[0-9+*/() ]+", text)
    return int(eval(text)) + 1  # noqa: S307 - digits and operators alone, see the line above


def waits_sound(plan: KernelPlan) -> None:
    order = {s.name: i for i, s in enumerate(plan.stages)}
    names = [s.name for s in plan.sites]
    assert [w for s in plan.stages for w in s.waits] == names
    assert [s.id for s in plan.sites] == list(range(1, len(names) + 1))
    for site in plan.sites:
        assert order[site.producer] < order[site.stage]
        assert site.region in plan.stage(site.producer).publishes
        assert max(site.batches) <= 12 and site.threads <= plan.block
        assert sum(site.batches) * site.load_pairs * site.threads >= site.awaited
        regions = plan.scratch.regions
        if site.space == "peer":
            assert isinstance(plan, (K2Plan, FfnPlan)) and site.ranks == plan.dims.tp
            regions = plan.peer.regions.regions
        if site.space != "epoch":
            (region,) = [r for r in regions if r.name == site.region]
            assert region.kind == site.kind and site.awaited <= region.bytes // 8 * plan.waves
    assert not blocked(programs_of(plan.stages, plan.sites, plan.grid))


def abi_sound(plan: KernelPlan) -> None:
    at = 0
    for a in plan.abi.arguments:
        size = 4 if a.type == "int32" else 8
        assert a.offset >= at and a.offset % size == 0
        at = a.offset + size
    assert at <= plan.abi.kernarg_bytes
    for t in plan.cost.traffic:
        if t.requested_read and t.name != "scratch":
            assert t.requested_read >= t.unique_read, t
        if plan.abi[t.name].read and t.name != "fault":  # touched by a launch that stops, and by no other
            assert t.requested_read, f"{t.name} is read, but costs nothing"


KINDS = pytest.mark.parametrize("kind", ["k1", "k2", "ffn"])


@KINDS
@given(data=st.data())
@settings(many, max_examples=60)
def test_random_specs(kind: str, data: st.DataObject) -> None:
    check(data.draw(plans(kind)))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), [("k1", 500), ("k2", 100), ("ffn", 200)])  # some 15 s each
def test_many_more_random_specs(kind: str, count: int) -> None:
    @given(data=st.data())
    @settings(many, max_examples=count)
    def sound(data: st.DataObject) -> None:
        check(data.draw(plans(kind)))

    sound()


SHIPPED = [(a, tp, rows) for a, tps, limit in (("gfx942", (4,), 42), ("gfx950", (2, 4), 48))
           for tp, rows in product(tps, range(1, limit + 1))]  # fmt: skip


@pytest.mark.parametrize(("arch", "tp"), sorted({(a, tp) for a, tp, _ in SHIPPED}))
def test_every_shipped_row_count(arch: str, tp: int) -> None:
    for a, t, rows in SHIPPED:
        if (a, t) == (arch, tp):
            for ratio, index, window in ((0, False, 192), (1, True, 128), (2, False, 128)):
                check(plan_k1(SPECS, BuildKey("k1", arch, tp, rows, ratio, rows % 2 == 0, index, window)))


@pytest.mark.parametrize(("arch", "tp"), sorted({(a, tp) for a, tp, _ in SHIPPED}))
def test_k2_and_ffn_at_shipped_row_counts(arch: str, tp: int) -> None:
    for a, t, rows in SHIPPED:
        if (a, t) == (arch, tp) and (rows < 9 or rows % 6 in (0, 1)):
            for ratio, index, draft in ((0, False, True), (1, True, False)):
                check(plan_of(SPECS, BuildKey("k2", arch, tp, rows, ratio, index=index, draft=draft)))
            check(plan_of(SPECS, BuildKey("ffn", arch, tp, rows, draft=rows % 2 == 0)))


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
    model, arch = layer[0], arch_with(layer[1], width="auto")
    report = report_of(model, arch)
    assume(report is not None)
    assert report is not None
    for wider in range(report.width + 1, 17):
        with pytest.raises(Unsupported):
            width_report(model, arch_with(arch, width=wider))
