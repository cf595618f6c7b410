"""The FFN launch, the region-fit check, experts' bytes and the ways of holding x."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flymono.runtime.plan import BuildKey, Code, FfnPlan, Unsupported, plan_ffn, plan_k2
from flymono.runtime.plan.dims import dims_of
from flymono.runtime.plan.ffn.experts import case_of, expert_bytes, widest_case
from flymono.runtime.plan.ffn.regions import ffn_regions
from flymono.runtime.plan.ffn.shape import shape_of
from flymono.runtime.plan.layout import fits, layer_layout
from flymono.runtime.plan.scratch import Declared, Scratch, lay_out
from flymono.runtime.plan.strategy import strategy_of
from flymono.specs import Specs, load

from .plan_specs import spec_set

MODEL = "deepseek_v41_flash"


def made(specs: Specs, build: str) -> FfnPlan:
    return plan_ffn(specs, BuildKey.parse(build))


def test_launch(specs: Specs) -> None:
    plan = made(specs, "dsv41_ffn-gfx942-tp4-s6")
    assert [s.name for s in plan.stages][:3] == ["mark", "push", "slice"]
    assert (plan.lds.total, len(plan.abi.arguments), plan.abi.kernarg_bytes) == (56368, 32, 256)
    assert [a.name for a in plan.abi.arguments][:2] == ["part", "res_in"]
    assert plan.site("slice_attn").producer == "push" and plan.tag.at(7) == 16
    assert made(specs, "dsv41_ffn-gfx950-tp2-s6").lds.total == 56368, "no LDS for scale codes on either arch"
    assert made(specs, "dsv41_ffn-gfx942-tp4-s1").lds.decides == "seam"


def test_k2_ends_in_the_same_half(specs: Specs) -> None:
    whole = plan_k2(specs, BuildKey.parse("dsv41_k2-gfx950-tp4-s24-r2"))
    half = made(specs, "dsv41_ffn-gfx950-tp4-s24")
    assert whole.ffn == half.ffn and whole.scratch == half.scratch and whole.peer == half.peer
    assert whole.stages[-13:] == half.stages[-13:] and whole.lds["moe"] == half.lds["moe"]
    assert whole.abi.arguments[25].name == "res_in" == half.abi.arguments[1].name


@pytest.mark.parametrize(
    "build", ["dsv41_ffn-gfx942-tp4-s{}", "dsv41_ffn-gfx950-tp2-s{}", "dsv41_ffn-gfx950-tp4-s{}"]
)
def test_drafts_fit_the_targets_scratch(specs: Specs, build: str) -> None:
    for rows in (1, 5, 6, 7, 12, 16, 17, 33, 42):
        draft = made(specs, f"{build.format(rows)}-draft")
        assert draft.scratch == made(specs, build.format(rows)).scratch and draft.ffn.experts == 128


# ffn_structure.md 4.1: TP -> rows -> bytes of flags laid out for two groups, bytes that one group needs
OVERLAP = {2: {6: (2592, 5184), 12: (5184, 10368), 42: (18144, 36288), 48: (19728, 39456)},
           4: {6: (1296, 2592), 12: (2592, 5184), 42: (9072, 18144), 48: (9864, 19728)}}  # fmt: skip


def two_group_layout(specs: Specs, tp: int, rows: int, *, packed: bool) -> tuple[Scratch, list[Declared]]:
    """A draft layout with the flags of two FP4 groups a task, and the regions of a build with one."""
    model, arch = specs.model[MODEL], specs.arch["gfx950"]
    d = dims_of(model, tp, draft=True)
    needed = list(ffn_regions(d, shape_of(d, rows, 16, 256, strategy_of(arch), arch)))
    short = [Declared(**{**vars(r), "bytes": r.bytes // 2}) if r.name == "ugf" else r for r in needed]
    return lay_out(short[-3:] if packed else short), needed


@pytest.mark.parametrize(("tp", "rows"), [(tp, rows) for tp in OVERLAP for rows in OVERLAP[tp]])
def test_flags_of_one_group_in_a_layout_for_two(specs: Specs, tp: int, rows: int) -> None:
    """The public bug: twice the flags ran into the rows of `normed`. Both regions and bytes are named."""
    laid_out, need = OVERLAP[tp][rows]
    layout, needed = two_group_layout(specs, tp, rows, packed=False)
    with pytest.raises(Unsupported) as refused:
        fits("dsv41_k2-gfx950-draft", layout, needed)
    (reason,) = refused.value.reasons
    assert reason.code == Code.LAYOUT_MISFIT
    assert f"ugf: needs {need} bytes, the layout has {laid_out}" in reason.text
    victim, start = layout["normed"], layout["ugf"].offset
    assert f"of {victim.bytes} bytes of normed" in reason.text
    assert f"would write {min(start + need, victim.end) - victim.offset} of" in reason.text


def test_a_layout_of_its_own_fits(specs: Specs) -> None:
    """Each draft build runs on a layout that is made for its groups."""
    for tp, rows in ((2, 6), (4, 48)):
        plan = plan_k2(specs, BuildKey.parse(f"dsv41_k2-gfx950-tp{tp}-s{rows}-r0-draft"))
        assert plan.scratch["ugf"].bytes == OVERLAP[tp][rows][1]


def test_a_target_build_does_not_fit_a_draft_layout(specs: Specs) -> None:
    model, arch = specs.model[MODEL], specs.arch["gfx942"]
    key = BuildKey.parse("dsv41_k2-gfx942-tp4-s42-r0-draft")
    plan = made(specs, "dsv41_ffn-gfx942-tp4-s42")
    with pytest.raises(Unsupported) as refused:
        fits(plan.key.id, layer_layout(model, arch, key, 6, draft=True), ffn_regions(plan.dims, plan.ffn))
    assert {r.text.split(":")[0] for r in refused.value.reasons} == {"logit", "route", "mid", "mids"}


def test_expert_bytes(specs: Specs) -> None:
    """ffn_math.md 10: routed bytes per expert of a rank."""
    model = specs.model[MODEL]
    copies = expert_bytes(dims_of(model, 4), strategy_of(specs.arch["gfx942"]))
    assert copies.total == 4700160
    loaded = expert_bytes(dims_of(model, 2), strategy_of(specs.arch["gfx950"]))
    assert loaded.total == 9420800, "at TP2 nothing is padded"


def test_the_widest_case(specs: Specs) -> None:
    """36 picks reach 36 experts; 288 picks reach 288 of 384, draft picks at most 128."""
    plan = made(specs, "dsv41_ffn-gfx942-tp4-s6")
    case = case_of(plan.ffn, plan.expert, widest_case(plan.ffn))
    assert case.slots == 36 and case.requested == case.unique
    assert plan.cost["w13"].unique_read == 36 * plan.expert.w13
    draft = made(specs, "dsv41_ffn-gfx950-tp2-s48-draft")
    assert case_of(draft.ffn, draft.expert, widest_case(draft.ffn)).slots == 128


def test_a_case_with_hot_experts(specs: Specs) -> None:
    """Every row picks the same six: 3 tiles of 16 picks, on gfx942 in K blocks; 7 of 6 if x is held whole."""
    arch = specs.arch["gfx942"]
    gemv = arch.gemv.model_copy(update={"expert_k_block": "whole"})
    plain = spec_set(specs.model[MODEL], arch.model_copy(update={"gemv": gemv}))
    for named, arch_name, rows, tiles in (
        (specs, "gfx942", 16, 1),
        (plain, "gfx942", 42, 7),
        (specs, "gfx950", 42, 3),
        (specs, "gfx942", 42, 3),
    ):
        plan = made(named, f"dsv41_ffn-{arch_name}-tp4-s{rows}")
        case = case_of(plan.ffn, plan.expert, [rows] * 6)
        assert case.requested.w13 == tiles * case.unique.w13 and case.requested.w2 == case.unique.w2
    with pytest.raises(ValueError, match="pick 252"):
        case_of(plan.ffn, plan.expert, [42] * 5)


@given(st.sampled_from([("gfx950-tp2", 48), ("gfx942-tp4", 42)]), st.booleans(), st.data())
def test_tiles_never_exceed_the_bound(where: tuple[str, int], draft: bool, data: st.DataObject) -> None:
    """However picks fall, tiles and slots stay within what tasks, flags and the table are laid out for."""
    rows = data.draw(st.integers(1, where[1]))
    plan = _plan_at(where[0], rows, draft)
    left, picks = plan.ffn.picks, list[int]()
    while left:
        lowest = max(1, left - rows * (plan.ffn.experts - len(picks) - 1))
        picks.append(data.draw(st.integers(lowest, min(rows, left))) if rows > 1 else 1)
        left -= picks[-1]
    case = case_of(plan.ffn, plan.expert, picks)
    units = case.tiles if plan.ffn.by_tile else case.slots
    assert units * plan.ffn.parts <= plan.ffn.ug_tasks
    assert case.slots <= plan.ffn.max_slots == plan.lds["moe"]["slots"].rows
    assert plan.lds["moe"]["units"].rows >= (case.tiles if plan.ffn.by_tile else 0)
    assert units * plan.ffn.parts * 8 <= plan.scratch["ugf"].bytes
    assert case.requested.w13 >= case.unique.w13


SPECS = load()


@cache
def _plan_at(where: str, rows: int, draft: bool) -> FfnPlan:
    return plan_ffn(SPECS, BuildKey.parse(f"dsv41_ffn-{where}-s{rows}{'-draft' * draft}"))


def test_x_in_k_blocks_is_a_choice_of_the_spec(specs: Specs) -> None:
    """A fifth of K at a time, 16 picks a tile: less LDS, and a hot expert is read 3 times, not 7."""
    whole, blocks = made(specs, "dsv41_ffn-gfx942-tp4-s42").stagings
    assert (whole.chosen, blocks.chosen, blocks.fits) == (False, True, True)
    assert (whole.worst_reads, blocks.worst_reads, blocks.blocks) == (7, 3, 5)
    plan = made(specs, "dsv41_ffn-gfx942-tp4-s42")
    assert (plan.ffn.pick_width, plan.ffn.k_block, plan.passes.width) == (16, 1024, 6)
    assert (plan.lds["ug"]["x"].rows, plan.lds["ug"]["x"].row_words) == (2 * 16, 512 // 4 + 4)
    assert case_of(plan.ffn, plan.expert, [42] * 6).tiles == 18
    small = made(specs, "dsv41_ffn-gfx942-tp4-s6")
    assert (small.ffn.pick_width, small.ffn.k_block) == (6, 5120) and small.stagings[0].chosen
    arch = specs.arch["gfx942"]
    gemv = arch.gemv.model_copy(update={"expert_k_block": "whole"})
    edited = spec_set(specs.model[MODEL], arch.model_copy(update={"gemv": gemv}))
    plain = plan_ffn(edited, BuildKey.parse("dsv41_ffn-gfx942-tp4-s42"))
    assert (plain.ffn.pick_width, plain.ffn.k_block) == (6, 5120) and plain.stagings[0].chosen
    assert [s.name for s in made(specs, "dsv41_ffn-gfx950-tp2-s42").stagings] == ["whole"]
