"""A launch on some ranks of a group, with fewer workgroups where something is to be lost, and what is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from benches import Bench, fresh, specs
from hand_offs import Code

from flymono.runtime.devices.base import Counters
from flymono.runtime.devices.emulator import EmulatorDevice
from flymono.runtime.plan import KernelPlan
from flymono.runtime.run.bind import Bound, bind, to_launch
from flymono.runtime.run.group import Group
from flymono.runtime.runner.faults import FaultReport

ENDLESS = 1 << 62
SHORT = 1000


@dataclass(frozen=True)
class Ended:
    """What a run left: each rank's arguments (None: it did not launch), and what it executed."""

    bound: tuple[Bound | None, ...]
    counters: tuple[Counters | None, ...]

    def written(self, plan: KernelPlan, rank: int) -> dict[str, torch.Tensor]:
        """Every buffer that a launch may write, but for its fault words."""
        bound = self.bound[rank]
        assert bound is not None
        names = [a.name for a in plan.abi.arguments if a.written and a.used and a.name != "fault"]
        return {n: bound.tensor(n) for n in names if isinstance(bound.values[n], torch.Tensor)}


def run(
    bench: Bench, code: Any, group: Group, ranks: Sequence[int] | None = None,
    grids: Mapping[int, int] | None = None, **options: Any,
) -> Ended:  # fmt: skip
    """Launch on `ranks` (all), `grids` of them with so many workgroups. What is lost leaves memory unwritten, so
    the emulator's checks of values are off; the clock jumps when nothing happens."""
    plan, ranks = bench.plan, range(len(bench.given)) if ranks is None else ranks
    bound = {r: bind(plan, {**fresh(plan, bench.given[r]), **group.arguments(r)}) for r in ranks}
    shared = {f"peer buffer of rank {r}": p for r, p in enumerate(group.peer)}
    queues = []
    for rank in range(max(ranks) + 1):
        launches = []
        if rank in bound:
            one = to_launch(plan, bound[rank], code.hsaco, code.kernel, code.stage_ranges, shared)
            launches = [replace(one, grid=(grids or {}).get(rank, plan.grid))]
        queues.append(launches)
    how: dict[str, Any] = {"seed": 0, "check": False, "on_standstill": "clock", "idle_rounds": 16} | options
    done = EmulatorDevice(specs().arch[plan.key.arch], how).launch_ranks(queues)
    every = range(len(group.epoch))
    return Ended(
        tuple(bound.get(r) for r in every),
        tuple(done[r][0] if r in bound else None for r in every),
    )


def reports(group: Group, plans: Sequence[KernelPlan]) -> dict[int, FaultReport]:
    return {one.rank: one for one in group.faults(plans)}


def snapshot(bench: Bench, group: Group) -> list[torch.Tensor]:
    """Copies of all that outlives a launch, but for fault words and marks."""
    mark = getattr(bench.plan, "peer", None)
    skip = mark.mark_bytes if mark is not None else 0
    return [t.clone() for t in (*group.scratch, *group.epoch, *(p[skip:] for p in group.peer))]


__all__ = ["ENDLESS", "SHORT", "Code", "Ended", "reports", "run", "snapshot"]
