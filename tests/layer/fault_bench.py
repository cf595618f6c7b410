"""A launch on some ranks, with fewer workgroups where something is to be lost, and what it leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from benches import Bench, fresh, specs

from flymono.runtime.devices.base import Counters
from flymono.runtime.devices.emulator import EmulatorDevice
from flymono.runtime.plan import FfnPlan, K2Plan, KernelPlan
from flymono.runtime.run.bind import RUNNERS, Bound, bind, to_launch
from flymono.runtime.run.group import Group
from flymono.runtime.runner.faults import FaultReport

ENDLESS = 1 << 62
SHORT = 1000


@dataclass(frozen=True)
class Ended:
    """What a run left: each rank's buffers before and arguments after it (None: it did not launch), and what
    it executed."""

    before: tuple[Mapping[str, torch.Tensor], ...]
    bound: tuple[Bound | None, ...]
    counters: tuple[Counters | None, ...]

    def given(self, rank: int) -> dict[str, Any]:
        """The arguments of a rank that launched."""
        bound = self.bound[rank]
        assert bound is not None
        return bound.values

    def outputs(self, plan: KernelPlan, rank: int) -> dict[str, torch.Tensor]:
        """What the launch has to write, and nobody else."""
        own = {a.name for a in plan.abi.arguments if a.written and a.used} - {*RUNNERS, "tl"}
        return {n: v for n, v in self.given(rank).items() if n in own and isinstance(v, torch.Tensor)}


def run(
    bench: Bench, code: Any, group: Group, ranks: Sequence[int] | None = None,
    grids: Mapping[int, int] | None = None, **options: Any,
) -> Ended:  # fmt: skip
    """Launch on `ranks` (all), `grids` of them with so many workgroups. What is lost leaves memory unwritten,
    so the emulator's checks of values are off; the clock jumps when nothing happens."""
    plan, ranks = bench.plan, range(len(bench.given)) if ranks is None else ranks
    bound = {r: bind(plan, {**fresh(plan, bench.given[r]), **group.arguments(r)}) for r in ranks}
    before = {r: {n: v.clone() for n, v in b.values.items() if isinstance(v, torch.Tensor) and n in
    b.writable}
              for r, b in bound.items()}  # fmt: skip
    shared = {f"peer buffer of rank {r}": p for r, p in enumerate(group.peer)}
    queues = []
    for rank, values in bound.items():
        one = to_launch(plan, values, code.hsaco, code.kernel, code.stage_ranges, shared)
        queues.append([replace(one, grid=(grids or {}).get(rank, plan.grid))])
    how: dict[str, Any] = {"seed": 0, "check": False, "on_standstill": "clock", "idle_rounds": 16} | options
    counts = EmulatorDevice(specs().arch[plan.key.arch], how).launch_ranks(queues)
    done = dict(zip(bound, counts, strict=True))
    every = range(len(group.epoch))
    return Ended(
        tuple(before.get(r, {}) for r in every),
        tuple(bound.get(r) for r in every),
        tuple(done[r][0] if r in done else None for r in every),
    )


def reports(group: Group, plans: Sequence[KernelPlan]) -> dict[int, FaultReport]:
    return {one.rank: one for one in group.faults(plans)}


def state(plan: KernelPlan, group: Group) -> list[torch.Tensor]:
    """Copies of all that outlives a launch, but for fault words, stop words and marks."""
    skip = plan.peer.mark_bytes if isinstance(plan, K2Plan | FfnPlan) else 0
    epochs = [torch.cat([e[: plan.epoch.stop], e[plan.epoch.stop + 1 :]]) for e in group.epoch]
    return [t.clone() for t in (*group.scratch, *epochs, *(p[skip:] for p in group.peer))]
