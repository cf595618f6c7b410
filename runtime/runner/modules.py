"""Code objects by build id, from wherever a host has them: a bundle, or artefacts of the generator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from flymono.runtime.devices.gpu import Function, Gpu
from flymono.runtime.plan import BuildKey, KernelPlan, SpecSet, plan_of
from flymono.runtime.plan.layout import fits
from flymono.runtime.plan.scratch import Scratch
from flymono.runtime.runner.errors import RunnerError


class Modules(Protocol):
    """Where code objects come from."""

    def code(self, plan: KernelPlan) -> tuple[bytes, str]:
        """The code object of a plan's build and the symbol of its kernel; a UserError if there is none, or if
        it was made from another plan (arguments, memory, tags or grid differ)."""
        ...


@dataclass(frozen=True)
class Built:
    """A build that is loaded."""

    plan: KernelPlan
    function: Function


@dataclass
class Builds:
    """Builds of one runner, loaded once each. Plans come from the specs, code from `modules`."""

    gpu: Gpu
    specs: SpecSet
    modules: Modules
    _loaded: dict[BuildKey, Built] = field(default_factory=dict)

    def get(self, key: BuildKey, layout: Scratch) -> Built:
        """The build on scratch of `layout`, loaded now if it was not. Raises RunnerError inside a capture,
        and
        what planning, modules or the GPU raise."""
        held = self._loaded.get(key)
        if held is None:
            if self.gpu.is_capturing():
                text = f"{key.id} would be loaded inside a graph capture"
                raise RunnerError(text, fix=f"run a step of {key.rows} rows eagerly before it is captured")
            plan = plan_of(self.specs, key)
            fits(key.id, layout, plan.scratch.regions, "runner's scratch")
            code, symbol = self.modules.code(plan)
            held = self._loaded[key] = Built(plan, self.gpu.load(code, symbol))
        return held

    @property
    def plans(self) -> list[KernelPlan]:
        """Of everything that may have been launched."""
        return [built.plan for built in self._loaded.values()]

    def clear(self) -> None:
        """Forget all."""
        self._loaded.clear()
