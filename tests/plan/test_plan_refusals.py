"""Unsupported keys: every reason at once, and the nearest build that has a plan."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flymono.runtime.plan import BuildKey, Code, Unsupported, key_reasons, nearest, plan_k1
from flymono.specs import Specs, load

from .plan_specs import arch_with, spec_set

SPECS = load()
CASES = {
    "dsv41_k1-gfx942-tp4-s43-r2": ({Code.ROWS_OUT_OF_RANGE}, "dsv41_k1-gfx942-tp4-s42-r2"),
    "dsv41_k1-gfx950-tp2-s49-r2": ({Code.ROWS_OUT_OF_RANGE}, "dsv41_k1-gfx950-tp2-s48-r2"),
    "dsv41_k1-gfx950-tp2-s0-r2": ({Code.ROWS_OUT_OF_RANGE}, "dsv41_k1-gfx950-tp2-s1-r2"),
    "dsv41_k1-gfx950-tp3-s6-r2": ({Code.TP_NOT_OFFERED, Code.MODEL_SHAPE}, "dsv41_k1-gfx950-tp2-s6-r2"),
    "dsv41_k1-gfx942-tp2-s6-r2": ({Code.TP_NOT_OFFERED}, "dsv41_k1-gfx942-tp4-s6-r2"),
    "dsv41_k1-gfx942-tp2-s43-r2": (
        {Code.TP_NOT_OFFERED, Code.ROWS_OUT_OF_RANGE},
        "dsv41_k1-gfx942-tp4-s42-r2",
    ),
    "dsv41_k1-gfx942-tp4-s6-r4": ({Code.RATIO_UNKNOWN}, "dsv41_k1-gfx942-tp4-s6-r2"),
    "dsv41_k1-gfx942-tp4-s6-r2-w192": ({Code.WINDOW_NEEDS_RATIO_0}, "dsv41_k1-gfx942-tp4-s6-r2"),
    "dsv41_k1-gfx942-tp4-s6-r0-w64": ({Code.WINDOW_UNKNOWN}, "dsv41_k1-gfx942-tp4-s6-r0"),
    "dsv41_k9-gfx942-tp4-s6-r2": ({Code.KIND_UNKNOWN}, "dsv41_k1-gfx942-tp4-s6-r2"),
    "k3_k1-gfx942-tp4-s6-r2": ({Code.MODEL_UNKNOWN}, "dsv41_k1-gfx942-tp4-s6-r2"),
    "dsv41_k1-gfx90a-tp2-s6-r2": ({Code.ARCH_UNKNOWN}, "dsv41_k1-gfx950-tp2-s6-r2"),
    "dsv41_k9-gfx942-tp3-s99-r3-index-w64": (
        {
            Code.KIND_UNKNOWN,
            Code.TP_NOT_OFFERED,
            Code.MODEL_SHAPE,
            Code.ROWS_OUT_OF_RANGE,
            Code.RATIO_UNKNOWN,
            Code.WINDOW_UNKNOWN,
        },
        "dsv41_k1-gfx942-tp4-s42-r2-index",
    ),
}


@pytest.mark.parametrize("build", CASES)
def test_all_reasons(build: str) -> None:
    codes, near = CASES[build]
    with pytest.raises(Unsupported) as refused:
        plan_k1(SPECS, BuildKey.parse(build))
    assert ({r.code for r in refused.value.reasons}, refused.value.nearest) == (codes, near)
    text = refused.value.render()
    assert near in text and all(r.text in text and r.fix in text for r in refused.value.reasons)


@given(
    st.builds(
        BuildKey,
        kind=st.sampled_from(["k1", "k2"]),
        arch=st.sampled_from(["gfx942", "gfx950", "gfx90a"]),
        tp=st.integers(0, 9),
        rows=st.integers(0, 99),
        ratio=st.integers(0, 4),
        fold=st.booleans(),
        index=st.booleans(),
        window=st.sampled_from([64, 128, 192]),
        timeline=st.booleans(),
    )
)
def test_the_nearest_build_has_a_plan(key: BuildKey) -> None:
    near = nearest(SPECS, key)
    assert near is not None and not key_reasons(SPECS, near)
    if not key_reasons(SPECS, key):
        assert near == key


def test_a_spec_that_admits_nothing_refuses_each_key(specs: Specs) -> None:
    broken = spec_set(specs.model["deepseek_v41_flash"], arch_with(specs.arch["gfx942"], lds=30000))
    with pytest.raises(Unsupported) as refused:
        plan_k1(broken, BuildKey.parse("dsv41_k1-gfx942-tp4-s6-r2"))
    assert refused.value.nearest is None
    assert {r.code for r in refused.value.reasons} == {Code.LDS_TOO_SMALL}


def test_missing_matrix_instructions(specs: Specs) -> None:
    bare = spec_set(specs.model["deepseek_v41_flash"], arch_with(specs.arch["gfx942"], mfma=()))
    with pytest.raises(Unsupported) as refused:
        plan_k1(bare, BuildKey.parse("dsv41_k1-gfx942-tp4-s6-r2"))
    assert [r.code for r in refused.value.reasons] == [Code.MFMA_MISSING] * 3


def test_a_small_gpu(specs: Specs) -> None:
    small = spec_set(specs.model["deepseek_v41_flash"], arch_with(specs.arch["gfx942"], units=228))
    with pytest.raises(Unsupported) as refused:
        plan_k1(small, BuildKey.parse("dsv41_k1-gfx942-tp4-s6-r2"))
    assert {r.code for r in refused.value.reasons} == {Code.GRID_TOO_SMALL}
    assert "228" not in refused.value.reasons[0].text and "128" in refused.value.reasons[0].text


def test_tp_that_does_not_divide_the_model(specs: Specs) -> None:
    odd = spec_set(specs.model["deepseek_v41_flash"], arch_with(specs.arch["gfx950"], tp=(2, 3)))
    with pytest.raises(Unsupported) as refused:
        plan_k1(odd, BuildKey.parse("dsv41_k1-gfx950-tp2-s6-r2"))
    assert {r.code for r in refused.value.reasons} == {Code.MODEL_SHAPE}


def test_a_refusal_survives_a_process_boundary() -> None:
    with pytest.raises(Unsupported) as refused:
        plan_k1(SPECS, BuildKey.parse("dsv41_k1-gfx942-tp4-s43-r2"))
    again = pickle.loads(pickle.dumps(refused.value))
    assert again.render() == refused.value.render()


def test_every_code_is_explained() -> None:
    assert all(code.about.endswith(".") for code in Code)
