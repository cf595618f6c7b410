"""Code objects for a runner straight from the generator, where no bundle was made."""

from __future__ import annotations

from dataclasses import dataclass

from flymono.runtime.plan import KernelPlan
from flymono.specs import Specs


@dataclass(frozen=True)
class Generated:
    """`runtime.runner.Modules` of artefacts, from the store or built now."""

    specs: Specs

    def code(self, plan: KernelPlan) -> tuple[bytes, str]:
        """The code object and its kernel's symbol. Raises Unsupported or GenError."""
        from flymono.gen import api

        artefact = api.build(plan.key, self.specs)
        return artefact.hsaco, artefact.kernel
