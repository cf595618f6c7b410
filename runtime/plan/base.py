"""What the plan of every kernel kind holds, and the contradictions that each plan is searched for.

A kind adds its own numbers in a subclass; its stages, sites, regions, LDS, arguments and costs live in files
of its own. gen, the host and the command line read the fields below of any kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .abi import Abi
from .cost import Cost
from .dims import Dims
from .faults import FaultWords, build_code
from .handoff import blocked, programs_of
from .keys import BuildKey
from .lds import LdsMap
from .passes import Passes
from .placement import Stage
from .points import POINTS
from .scratch import Scratch
from .strategy import Strategy
from .tags import EpochWords, TagRule, Tags
from .waits import Site, order_faults
from .width import RowLimit


@dataclass(frozen=True)
class KernelPlan:
    """All numbers that every kernel kind has. `passes` are the GEMVs'; `tag` is this launch's tag rule."""

    key: BuildKey
    grid: int
    block: int
    waves: int
    grid_why: str
    dims: Dims
    strategy: Strategy
    row_limit: RowLimit
    passes: Passes
    stages: tuple[Stage, ...]
    sites: tuple[Site, ...]
    lds: LdsMap
    scratch: Scratch
    tags: Tags
    epoch: EpochWords
    fault: FaultWords
    abi: Abi
    cost: Cost

    def stage(self, name: str) -> Stage:
        """The stage `name`."""
        return {s.name: s for s in self.stages}[name]

    def site(self, name: str) -> Site:
        """The wait site `name`."""
        return {s.name: s for s in self.sites}[name]

    @property
    def points(self) -> tuple[str, ...]:
        """After what of a workgroup a timeline build notes the clock (the launch's entry first)."""
        return POINTS[self.key.kind] if self.key.timeline else ()

    @property
    def tag(self) -> TagRule:
        """The tag of this launch; the FFN launch has K2's."""
        return self.tags["k1" if self.key.kind == "k1" else "k2"]

    @property
    def code(self) -> int:
        """How a fault head names the build; the kernels that share nothing have none."""
        return build_code(self.key) if self.sites else 0

    @property
    def ends_epoch(self) -> bool:
        """Whether the launch is the last of its layer: it stores the next epoch."""
        return any(s.name == "epoch" for s in self.stages)


def longest_chain(sites: Sequence[Site]) -> int:
    """Hand-offs in a row on the longest path through the wait graph."""
    depth: dict[str, int] = {}
    for site in sites:
        depth[site.stage] = max(depth.get(site.stage, 0), depth.get(site.producer, 0) + 1)
    return max(depth.values(), default=0)


def plan_faults(plan: KernelPlan, order: Sequence[str]) -> list[str]:
    """Contradictions inside a plan, checked for each plan that is made; the property tests look deeper."""
    faults = order_faults(plan.sites, plan.stages, order)
    faults += [
        f"workgroup {b.workgroup} waits for ever in {b.task.stage} {b.task.index}"
        for b in blocked(programs_of(plan.stages, plan.sites, plan.grid))
    ]
    if plan.lds.total > plan.lds.budget:
        faults.append(f"LDS {plan.lds.total} exceeds {plan.lds.budget}")
    named = {s.name for s in plan.sites}
    for stage in plan.stages:
        faults += [f"{stage.name}: no site {name!r}" for name in stage.waits if name not in named]
        if stage.span * stage.stride > plan.grid:
            faults.append(f"{stage.name}: {stage.span} workgroups, {stage.stride} apart, on {plan.grid}")
    return faults


def checked(faults: Sequence[str], key: BuildKey) -> None:
    """AssertionError if a plan contradicts itself: a mistake of the planner, never of its user."""
    if faults:
        raise AssertionError(f"{key.id}: the plan contradicts itself: {list(faults)}")
