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


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILDS)
def test_build(name: str, store: Store, compiler: Compiler) -> None:
    """gen's own checks hold (spills, scratch, LDS, kernarg, MFMA counts, barriers, errata).

    The loop over passes keeps the code of long steps about as short as that of two passes.
    """
    artefact, _ = build(unit_of(small.SPECS, BuildKey.parse(name)), Settings(store), compiler)
    assert artefact.resources.vgprs <= 256
    assert artefact.resources.instructions < 3000
