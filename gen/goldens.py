"""Texts of the golden files: what a reviewer should see change when a build changes.

For each build of the golden matrix, below `tests/golden/builds/`:
`<id>.py` the generated module, `<id>.plan.json` the plan, `<id>.figures.json` resource figures and counts of
the code object, `<id>.outputs.json` digests of the outputs of one emulated launch with seeded inputs.
Instruction-level text is left out on purpose: it is large, and the figures say when it changed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict

from ..runtime.plan import BuildKey, plan_of, to_json
from ..specs.loader import Specs
from .build import linted
from .isa import machine_code
from .store import Artefact
from .unit import digest
from .units import unit_of

# A small matrix: both archs at the demo's shape, a ragged last pass, the shape with the most arguments; and
# every other kind of kernel, index and draft builds among them.
MATRIX = (
    "dsv41_k1-gfx942-tp4-s6-r2",
    "dsv41_k1-gfx942-tp4-s7-r0-nofold",
    "dsv41_k1-gfx950-tp2-s6-r2",
    "dsv41_k1-gfx950-tp4-s17-r1-index",
    "dsv41_k2-gfx942-tp4-s6-r2",
    "dsv41_k2-gfx950-tp4-s17-r1-index",
    "dsv41_ffn-gfx942-tp4-s7-draft",
    "dsv41_keylist-gfx942-tp4-s6-r2",
)
# The two builds of the demo, which are also launched.
DEMO = (MATRIX[0], MATRIX[2])


def source_text(specs: Specs, build: str) -> str:
    """The generated module of a build."""
    return linted(unit_of(specs, BuildKey.parse(build))).source


def plan_text(specs: Specs, build: str) -> str:
    """The plan of a build as JSON."""
    return to_json(plan_of(specs, BuildKey.parse(build)))


def figures_text(artefact: Artefact) -> str:
    """Registers, LDS, instruction counts by kind and bytes of code, as JSON."""
    families = Counter(_family(i.mnemonic) for i in artefact.instructions)
    stages = Counter(i.stage or "entry" for i in artefact.instructions)
    code = sum(len(body) for _, body in machine_code(artefact.hsaco).values())
    return _json(
        {
            "resources": asdict(artefact.resources),
            "mfma_by_stage": dict(artefact.manifest["mfma_by_stage"]),
            "instructions_by_family": dict(sorted(families.items())),
            "instructions_by_stage": dict(stages),
            "code_bytes": code,
        }
    )


def outputs_text(outputs: Mapping[str, bytes]) -> str:
    """Digests of output buffers by ABI name, as JSON."""
    return _json({name: {"bytes": len(data), "sha256": digest(data)} for name, data in outputs.items()})


def _json(data: object) -> str:
    return json.dumps(data, indent=1) + "\n"


def _family(mnemonic: str) -> str:
    """`v_mfma`, or the first word: v, s, ds, global, buffer."""
    return "mfma" if mnemonic.startswith("v_mfma") else mnemonic.split("_")[0]
