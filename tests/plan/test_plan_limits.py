"""The row limit follows the specs: grid, shared width, experts; and refusals of K2, FFN and key-list keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flymono.runtime.plan import (
    BuildKey,
    Code,
    Unsupported,
    key_reasons,
    nearest,
    plan_k1,
    plan_of,
    width_report,
)
from flymono.runtime.plan.support import Routing, layer_kinds, routing_reasons
from flymono.specs import Specs

from .plan_specs import arch_with, spec_set

MODEL = "deepseek_v41_flash"


def with_grid(specs: Specs, arch: str, workgroups: Any) -> Any:
    spec = specs.arch[arch]
    return spec.model_copy(update={"machine": spec.machine.model_copy(update={"workgroups": workgroups})})


@pytest.mark.parametrize("kind", ["k1", "k2", "ffn"])
def test_a_grid_of_304_admits_more_rows(specs: Specs, kind: str) -> None:
    """304 // 36 = 8 token tiles of 6 rows, not 7; each kind plans at the new limit and no further."""
    edited = spec_set(specs.model[MODEL], with_grid(specs, "gfx942", 304))
    report = width_report(specs.model[MODEL], edited.arch["gfx942"])
    assert (report.width, report.limit.rows, report.limit.by) == (6, 48, "shared units")
    plan = plan_of(edited, BuildKey(kind, "gfx942", 4, 48))
    assert plan.grid == 304 and plan.epoch.marks + 304 <= plan.epoch.ug_counters
    with pytest.raises(Unsupported, match="rows-out-of-range"):
        plan_of(edited, BuildKey(kind, "gfx942", 4, 49))


def test_a_stage_may_use_fewer_workgroups_than_the_grid(specs: Specs) -> None:
    """wq_b's tasks of a workgroup must lie whole heads apart: it stays on 256 of 304."""
    edited = spec_set(specs.model[MODEL], with_grid(specs, "gfx942", 304))
    wq_b = plan_k1(edited, BuildKey("k1", "gfx942", 4, 6)).stage("wq_b")
    assert (wq_b.span, wq_b.per_workgroup, wq_b.tasks_of(300)) == (256, 2, ())


def test_a_grid_that_no_gpu_holds(specs: Specs) -> None:
    edited = spec_set(specs.model[MODEL], with_grid(specs, "gfx942", 305))
    with pytest.raises(Unsupported) as refused:
        plan_of(edited, BuildKey("k2", "gfx942", 4, 6))
    assert [r.code for r in refused.value.reasons] == [Code.GRID_TOO_LARGE]


def test_a_small_shared_width_admits_more_rows(specs: Specs) -> None:
    """20 units a tile, 320 columns a rank: two whole steps of down and a half, and the seam decides."""
    model = specs.model[MODEL]
    thin = model.model_copy(update={"moe": model.moe.model_copy(update={"intermediate": 1280})})
    report = width_report(thin, specs.arch["gfx942"])
    assert (report.limit.rows, report.limit.by) == (48, "seam workgroups")
    assert plan_of(spec_set(thin, specs.arch["gfx942"]), BuildKey("k2", "gfx942", 4, 48)).key.rows == 48


def with_block(specs: Specs, arch: str, block: Any) -> Any:
    spec = specs.arch[arch]
    return spec.model_copy(update={"gemv": spec.gemv.model_copy(update={"expert_k_block": block})})


@pytest.mark.parametrize(("arch", "block", "words"), [
    ("gfx942", 512, "state 1024 or whole"),  # a draft layer's four K slices would have half a round each
    ("gfx942", 1280, "state 1024 or whole"),  # divides the columns, not into rounds
    ("gfx942", 3072, "state 1024 or whole"), ("gfx942", 8192, "state 1024 or whole"),
    ("gfx950", 1024, "state whole"),
])  # fmt: skip
def test_k_blocks_that_gate_up_cannot_hold(specs: Specs, arch: str, block: int, words: str) -> None:
    with pytest.raises(Unsupported) as refused:
        width_report(specs.model[MODEL], with_block(specs, arch, block))
    assert [r.code for r in refused.value.reasons] == [Code.K_BLOCK_UNFIT]
    assert words in refused.value.reasons[0].fix and str(block) in refused.value.reasons[0].text
    assert width_report(specs.model[MODEL], with_block(specs, arch, "whole")).width > 1


@pytest.mark.parametrize(("arch", "tp", "moe", "words"), [
    ("gfx942", 4, {"intermediate": 1152}, "288 expert columns"),  # a quarter step behind the whole ones
    ("gfx942", 4, {"intermediate": 4352}, "1088 expert columns"),  # more scale factors than a wave's LDS
    ("gfx950", 2, {"intermediate": 2112}, "1056 expert columns"),
    ("gfx950", 2, {"experts": 576}, "576 experts"),
])  # fmt: skip
def test_experts_that_the_ffn_half_is_not_built_for(
    specs: Specs, arch: str, tp: int, moe: dict[str, int], words: str
) -> None:
    """Refused for K2 and the FFN launch; K1 has no expert."""
    model, spec = specs.model[MODEL], specs.arch[arch].model_copy(update={"tp": (tp,)})
    edited = spec_set(model.model_copy(update={"moe": model.moe.model_copy(update=moe)}), spec)
    for kind in ("k2", "ffn"):
        (reason,) = key_reasons(edited, BuildKey(kind, arch, tp, 6))
        assert reason.code == Code.MODEL_SHAPE and words in reason.text
    assert not key_reasons(edited, BuildKey("k1", arch, tp, 6))


@pytest.mark.parametrize(("edit", "kinds", "words"), [
    ({"hidden": 5376}, ("k2", "ffn"), "hidden = 5376"),  # a quarter of a wave behind the whole ones
    ({"attention": {"head_dim": 256}}, ("k2",), "head_dim = 256"),
    ({"attention": {"rope_dim": 128}}, ("k2",), "rope_dim = 128"),
])  # fmt: skip
def test_sizes_that_would_only_be_met_while_a_kernel_is_traced(
    specs: Specs, edit: dict[str, Any], kinds: tuple[str, ...], words: str
) -> None:
    model, spec = specs.model[MODEL], specs.arch["gfx950"]
    nested = {
        n: getattr(model, n).model_copy(update=v) if isinstance(v, dict) else v for n, v in edit.items()
    }
    edited = spec_set(model.model_copy(update=nested), spec)
    for kind in kinds:
        reasons = key_reasons(edited, BuildKey(kind, "gfx950", 2, 6))
        assert any(r.code == Code.MODEL_SHAPE and words in r.text for r in reasons), reasons


CASES: dict[str, tuple[set[Code], str]] = {
    "dsv41_k2-gfx942-tp4-s43-r2": ({Code.ROWS_OUT_OF_RANGE}, "dsv41_k2-gfx942-tp4-s42-r2"),
    "dsv41_ffn-gfx942-tp2-s43": ({Code.TP_NOT_OFFERED, Code.ROWS_OUT_OF_RANGE}, "dsv41_ffn-gfx942-tp4-s42"),
    "dsv41_ffn-gfx950-tp3-s6": ({Code.TP_NOT_OFFERED, Code.MODEL_SHAPE}, "dsv41_ffn-gfx950-tp2-s6"),
    "dsv41_k2-gfx950-tp2-s6-r0-index": ({Code.LAYER_KIND_UNKNOWN}, "dsv41_k2-gfx950-tp2-s6-r0"),
    "dsv41_k2-gfx950-tp2-s6-r2-draft": ({Code.DRAFT_UNKNOWN}, "dsv41_k2-gfx950-tp2-s6-r0-draft"),
    "dsv41_k2-gfx950-tp2-s6-r2-nofold": ({Code.NOT_OF_THIS_KIND}, "dsv41_k2-gfx950-tp2-s6-r2"),
    "dsv41_k1-gfx950-tp2-s6-r0-draft": ({Code.NOT_OF_THIS_KIND}, "dsv41_k1-gfx950-tp2-s6-r0"),
    "dsv41_ffn-gfx950-tp2-s6-r1": ({Code.NOT_OF_THIS_KIND}, "dsv41_ffn-gfx950-tp2-s6"),
    "dsv41_keylist-gfx942-tp4-s6-r0": ({Code.LAYER_KIND_UNKNOWN}, "dsv41_keylist-gfx942-tp4-s6-r1"),
    "dsv41_keylist-gfx942-tp4-s6-r3-timeline": (
        {Code.RATIO_UNKNOWN, Code.NOT_OF_THIS_KIND}, "dsv41_keylist-gfx942-tp4-s6-r2"),
    "dsv41_k2-gfx942-tp3-s99-r3-nofold-w192-draft": (
        {Code.TP_NOT_OFFERED, Code.MODEL_SHAPE, Code.ROWS_OUT_OF_RANGE, Code.RATIO_UNKNOWN,
         Code.NOT_OF_THIS_KIND, Code.WINDOW_NEEDS_RATIO_0, Code.DRAFT_UNKNOWN},
        "dsv41_k2-gfx942-tp4-s42-r0-draft"),
}  # fmt: skip


@pytest.mark.parametrize("build", CASES)
def test_all_reasons(specs: Specs, build: str) -> None:
    codes, near = CASES[build]
    with pytest.raises(Unsupported) as refused:
        plan_of(specs, BuildKey.parse(build))
    assert ({r.code for r in refused.value.reasons}, refused.value.nearest) == (codes, near)
    assert all(r.text and r.fix for r in refused.value.reasons)


def test_the_nearest_of_any_key_has_a_plan(specs: Specs) -> None:
    for kind in ("k1", "k2", "ffn", "keylist"):
        for ratio, index, draft in ((0, True, True), (1, True, False), (2, False, True), (5, True, True)):
            key = BuildKey(kind, "gfx950", 3, 77, ratio, False, index, 192, True, draft=draft)
            near = nearest(specs, key)
            assert near is not None and not key_reasons(specs, near), key.id


def test_layer_kinds(specs: Specs) -> None:
    assert layer_kinds(specs.model[MODEL]) == {(0, False), (1, False), (1, True), (2, False), (2, True)}


def test_routing_that_is_not_the_models(specs: Specs) -> None:
    """Every difference at once; a draft layer is held to the draft's counts."""
    model = specs.model[MODEL]
    right = Routing(384, 6, "sqrtsoftplus", True, 1.5, 10.0)
    assert routing_reasons(model, right) == []
    assert routing_reasons(model, replace(right, experts=128, per_token=3), draft=True) == []
    wrong = Routing(128, 3, "softmax", False, 2.5, 7.0, 0, True)
    reasons = routing_reasons(model, wrong)
    assert len(reasons) == 8 and {r.code for r in reasons} == {Code.ROUTING_UNKNOWN}
    assert "SwiGLU limit: 7.0, the kernels compute 10.0" in [r.text for r in reasons]


def test_a_model_whose_routing_no_kernel_computes(specs: Specs) -> None:
    model = specs.model[MODEL]
    moe = model.moe.model_copy(update={"norm_topk_prob": False, "hash_layers": 3})
    odd = spec_set(model.model_copy(update={"moe": moe}), specs.arch["gfx950"])
    with pytest.raises(Unsupported) as refused:
        plan_of(odd, BuildKey("k2", "gfx950", 2, 6))
    assert [r.code for r in refused.value.reasons] == [Code.ROUTING_UNKNOWN] * 2
    assert plan_of(odd, BuildKey("k1", "gfx950", 2, 6)), "K1 does not route"


def test_a_grid_too_small_for_the_router(specs: Specs) -> None:
    small = spec_set(specs.model[MODEL], arch_with(specs.arch["gfx942"], units=70))
    with pytest.raises(Unsupported) as refused:
        plan_of(small, BuildKey("k2", "gfx942", 4, 6))
    text = " ".join(r.text for r in refused.value.reasons)
    assert "router tasks" in text and "wo_b and down tasks" in text
