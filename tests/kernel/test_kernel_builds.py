"""Builds of every kind compile without spills, with the plan's LDS, matrix instructions and arguments."""

from __future__ import annotations

import pytest
import small

from flymono.gen.build import Settings, build
from flymono.gen.compiler import Compiler
from flymono.gen.store import Store
from flymono.gen.units import unit_of
from flymono.runtime.plan import BuildKey

KINDS = ["r2", "r1-nofold-index", "r0-w192-timeline", "r0-nofold", "r2-index-timeline", "r1"]
ROWS = {
    "gfx942-tp4": (1, 5, 6, 7, 12, 13, 32, 33, 42),
    "gfx950-tp2": (1, 8, 16, 17, 33, 48),
    "gfx950-tp4": (3, 9, 31, 48),
}
BUILDS = [
    f"dsv41_k1-{place}-s{rows}-{KINDS[(i + j) % len(KINDS)]}"
    for i, (place, all_rows) in enumerate(ROWS.items())
    for j, rows in enumerate(all_rows)
]
# K2 and the FFN launch where their code changes: a pass more, the widest step, drafts. Every row count is
# the business of bench/every_width.py (docs/figures.md).
WHOLE = [
    "dsv41_k2-gfx942-tp4-s1-r1",
    "dsv41_k2-gfx942-tp4-s18-r2",
    "dsv41_k2-gfx942-tp4-s42-r0",
    "dsv41_k2-gfx942-tp4-s35-r0-draft",
    "dsv41_k2-gfx950-tp2-s9-r2-index",
    "dsv41_k2-gfx950-tp4-s17-r1",
    "dsv41_k2-gfx950-tp2-s48-r0-draft",
    "dsv41_ffn-gfx942-tp4-s42",
    "dsv41_ffn-gfx942-tp4-s17-draft",
    "dsv41_ffn-gfx950-tp2-s48",
    "dsv41_ffn-gfx950-tp4-s33-draft",
]
# The public implementation's figures at 6 rows: (VGPRs, LDS bytes, instructions).
PUBLIC = {
    "dsv41_k2-gfx942-tp4-s6-r2": (213, 57216, 17357),
    "dsv41_k2-gfx950-tp2-s6-r2": (252, 89792, 12815),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILDS)
def test_build(name: str, store: Store, compiler: Compiler) -> None:
    """gen's own checks hold (spills, scratch, LDS, kernarg, MFMA counts, barriers, errata).

    The loop over passes keeps the code of long steps about as short as that of two passes.
    """
    artefact, _ = build(unit_of(small.SPECS, BuildKey.parse(name)), Settings(store), compiler)
    assert artefact.resources.vgprs <= 256
    assert artefact.resources.instructions < 3000


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_build_of_a_half_or_a_whole(name: str, store: Store, compiler: Compiler) -> None:
    """The same checks; a wave has at most the registers of two a SIMD."""
    artefact, _ = build(unit_of(small.SPECS, BuildKey.parse(name)), Settings(store), compiler)
    assert artefact.resources.vgprs <= 256
    assert artefact.manifest["unchecked"] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLIC)
def test_k2_is_smaller_than_the_public_kernel(name: str, store: Store, compiler: Compiler) -> None:
    figures = build(unit_of(small.SPECS, BuildKey.parse(name)), Settings(store), compiler)[0].resources
    vgprs, lds, instructions = PUBLIC[name]
    assert figures.vgprs <= vgprs
    assert figures.lds_bytes <= lds
    assert figures.instructions <= 0.6 * instructions
