"""Strategies follow capabilities; nothing of the plan reads an arch's name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import flymono.runtime.plan as plan_package
from flymono.runtime.plan import BuildKey, plan_k1, to_data
from flymono.runtime.plan.strategy import strategy_of
from flymono.specs import Specs

from .plan_specs import arch_with, spec_set


def test_shipped(specs: Specs) -> None:
    old, new = strategy_of(specs.arch["gfx942"]), strategy_of(specs.arch["gfx950"])
    assert (old.gemv, old.fp8, old.fp8_max, old.weight_layout) == ("fp8_mfma_fma", "fnuz", 224, "tile_major")
    assert (new.gemv, new.fp8, new.fp8_max, new.weight_layout) == ("scaled_mfma", "ocp", 448, "row_major")
    assert (old.lane_swap, old.bf16_cvt, old.max3) == ("bpermute", "integer_rne", False)
    assert (new.lane_swap, new.bf16_cvt, new.max3) == ("permlane_swap", "cvt_pk", True)
    assert (old.gemv_mfma.per_step, new.gemv_mfma.per_step) == (4, 1)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_a_renamed_arch_has_the_same_plan(specs: Specs, arch: str) -> None:
    base = specs.arch[arch]
    other = spec_set(specs.model["deepseek_v41_flash"], arch_with(base, name="next"))
    mine = plan_k1(specs, BuildKey("k1", arch, base.tp[0], 12))
    theirs = plan_k1(other, BuildKey("k1", "next", base.tp[0], 12))
    a, b = to_data(mine), to_data(theirs)
    assert isinstance(a, dict) and isinstance(b, dict)
    a.pop("key"), b.pop("key")
    assert a == b


def test_without_the_scaled_instruction_the_plain_one_serves(specs: Specs) -> None:
    arch = specs.arch["gfx950"]
    plain = arch_with(arch, capabilities={**arch.capabilities, "mfma_scale_f8f6f4": False})
    how = strategy_of(plain)
    assert (how.gemv, how.fp8, how.gemv_mfma.name) == ("fp8_mfma_fma", "ocp", "f32_16x16x32_fp8_fp8")


def test_no_source_names_an_arch() -> None:
    folder = Path(plan_package.__file__).parent
    named = [p.name for p in folder.glob("*.py") for node in ast.walk(ast.parse(p.read_text()))
             if isinstance(node, ast.Compare) and "gfx" in ast.unparse(node)]  # fmt: skip
    assert named == []


def test_no_source_needs_torch_or_flydsl() -> None:
    folder = Path(plan_package.__file__).parent
    found = [(p.name, name) for p in folder.glob("*.py") for name in ("torch", "flydsl")
             if f"import {name}" in p.read_text() or f"from {name}" in p.read_text()]  # fmt: skip
    assert found == []
