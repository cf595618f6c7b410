"""Small kernels around single functions of `mono/`: rendered, compiled and run like a real one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flymono.emulator.codeobject import CodeObject
from flymono.emulator.device import Emulator, LaunchResult
from flymono.gen.build import Settings, build
from flymono.gen.compiler import Compiler
from flymono.gen.unit import Expect, Unit
from flymono.runtime.plan import BuildKey, plan_k1
from flymono.specs import load

TEMPLATES = Path(__file__).parent / "templates"
SPECS = load()
KEYS = {"gfx942": BuildKey("k1", "gfx942", 4, 6), "gfx950": BuildKey("k1", "gfx950", 2, 6)}
ARCHS = tuple(KEYS)


def unit_of(template: str, arch: str, case: Mapping[str, int] | None = None) -> Unit:
    """A unit of a template in `tests/kernel/templates`; it sees the plan of a 6-row K1 of the arch and
    `case`."""
    key = KEYS[arch]
    plan = plan_k1(SPECS, key)
    model = next(m for m in SPECS.model.values() if m.prefix == key.model)
    context = {"plan": plan, "key": key, "model": model, "symbol": "small", "case": case or {}}
    which = "".join(f"-{v}" for v in (case or {}).values())
    return Unit(f"small-{template.split('.')[0]}-{arch}{which}", arch, template, context, expect=Expect())


class Runner:
    """Compiles once per unit and runs on a fresh emulator."""

    def __init__(self, compiler: Compiler, settings: Settings) -> None:
        self.compiler, self.settings = compiler, settings

    def __call__(
        self,
        template: str,
        arch: str,
        buffers: Mapping[str, np.ndarray[Any, Any]],
        grid: int = 1,
        case: Mapping[str, int] | None = None,
    ) -> LaunchResult:
        """Launch with the buffers' addresses in order; arrays are changed in place."""
        artefact, _ = build(unit_of(template, arch, case), self.settings, self.compiler)
        device = Emulator(arch)
        addresses = [device.register(name, memory) for name, memory in buffers.items()]
        return device.launch(CodeObject(artefact.hsaco), artefact.kernel, grid, addresses)
