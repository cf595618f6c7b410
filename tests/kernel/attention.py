"""K2's attention half alone: its template with an empty FFN half, run on a reference case, stage by stage."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import small

from flymono.gen.build import Settings, build
from flymono.gen.compiler import Compiler
from flymono.gen.render import TEMPLATES
from flymono.gen.store import Artefact, Store
from flymono.gen.unit import Unit
from flymono.gen.units import unit_of
from flymono.runtime.plan import BuildKey, K2Plan, plan_k2

STAGES = ("kt", "split", "combine", "wo_a", "wo_b")
EMPTY = ("ffn_imports.j2", "ffn_build.j2", "ffn_records.j2", "ffn_begin.j2", "ffn_stages.j2")


def templates(folder: Path) -> Path:
    """A folder with K2's template whose FFN half is left out."""
    shutil.copy(TEMPLATES / "k2.py.j2", folder / "k2.py.j2")
    for name in EMPTY:
        (folder / name).write_text("")
    return folder


def back_unit(key: BuildKey) -> tuple[K2Plan, Unit]:
    """The attention half of a build, with what the plan promises of it."""
    plan, unit = plan_k2(small.SPECS, key), unit_of(small.SPECS, key)
    mfma = {name: n for name, n in (unit.expect.mfma or {}).items() if name in STAGES}
    stages = tuple(s for s in unit.expect.stages if s in STAGES)
    return plan, replace(unit, id=f"{unit.id}-back", expect=replace(unit.expect, mfma=mfma, stages=stages))


def artefact(key: BuildKey, store: Store, compiler: Compiler, folder: Path) -> tuple[K2Plan, Artefact]:
    plan, unit = back_unit(key)
    return plan, build(unit, Settings(store, templates=templates(folder)), compiler)[0]
