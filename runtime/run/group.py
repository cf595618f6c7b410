"""A TP group's ranks and what their runner holds: scratch, epoch words, peer buffer; launches on all at once.

Invariants
 - A rank's buffers are its own; the table of peer buffers is the same on all.
 - Before a run they hold what earlier epochs leave: other values everywhere, under those epochs' tags, used
   counters of the queues. A wait that takes what it finds, or a flag that is read too early, then gives wrong
   results instead of the right ones of the same inputs. Epoch 0 is the first launch, which finds zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from flymono.gen.store import Artefact
from flymono.runtime.devices.base import Counters, Device
from flymono.runtime.plan import FfnPlan, K2Plan, KernelPlan
from flymono.runtime.plan.faults import BOUND
from flymono.runtime.plan.layout import fits
from flymono.runtime.plan.scratch import Region, Scratch
from flymono.runtime.run.bind import Bound, bind, to_launch
from flymono.runtime.runner.faults import FaultReport, fault_report
from flymono.runtime.step import check_step

EPOCH = 3  # of a single run: both halves of the peer buffer have been used
_NOT_OUTPUTS = frozenset({"scratch", "epoch", "fault", "tl"})

Given = Mapping[str, Tensor | int]


@dataclass(frozen=True)
class Launched:
    """One rank's launch that has been made: its buffers after it, what the device counted, and the half of
    the rank's peer buffer that it used."""

    bound: Bound
    counters: Counters
    tag: int
    half: Tensor | None = None

    def outputs(self, plan: KernelPlan) -> dict[str, Tensor]:
        """Buffers that the kernel wrote, by ABI name."""
        names = [a.name for a in plan.abi.arguments if a.written and a.name not in _NOT_OUTPUTS]
        return {name: self.bound.tensor(name) for name in names}

    def regions(self, plan: KernelPlan) -> dict[str, Tensor]:
        """Scratch regions, and those of the peer half, as bytes, by name."""
        found = _cut(self.bound.tensor("scratch"), plan.scratch.regions)
        if isinstance(plan, K2Plan | FfnPlan) and self.half is not None:
            found |= _cut(self.half, plan.peer.regions.regions)
        return found


def _cut(memory: Tensor, regions: Sequence[Region]) -> dict[str, Tensor]:
    return {r.name: memory[r.offset : r.end] for r in regions}


@dataclass(frozen=True)
class Kernel:
    """A build with what each rank gives it, by ABI name (the group's own buffers are apart)."""

    plan: KernelPlan
    artefact: Artefact
    given: tuple[Given, ...]


@dataclass(frozen=True)
class Group:
    """The buffers of all ranks, and the layout that the scratch was made for. `peer` is empty where no launch
    pushes. `bound`: ticks that a wait of each rank may last."""

    layout: Scratch
    scratch: tuple[Tensor, ...]
    epoch: tuple[Tensor, ...]
    peer: tuple[Tensor, ...]
    table: Tensor
    fault: tuple[Tensor, ...]
    bound: tuple[int, ...]

    @classmethod
    def of(cls, plans: Sequence[KernelPlan], ranks: int, epoch: int = EPOCH, seed: int = 0) -> Group:
        """Buffers for the launches of `plans`, all of one step width, in front of `epoch`."""
        pushing = [p for p in plans if isinstance(p, K2Plan | FfnPlan)]
        peer = tuple(used_peer(pushing[0], epoch, seed + r) for r in range(ranks) if pushing)
        table = torch.tensor([p.data_ptr() for p in peer], dtype=torch.int64)
        return cls(
            plans[-1].scratch, tuple(used_scratch(plans, epoch, seed + r) for r in range(ranks)),
            tuple(epoch_buffer(plans[-1], epoch, seed + r) for r in range(ranks)), peer, table,
            tuple(torch.zeros(plans[-1].fault.words, dtype=torch.int32) for _ in range(ranks)),
            (BOUND,) * ranks,
        )  # fmt: skip

    def arguments(self, rank: int) -> dict[str, Tensor | int]:
        """The runner's arguments of a rank."""
        own: dict[str, Tensor | int] = {"scratch": self.scratch[rank], "epoch": self.epoch[rank]}
        own |= {"fault": self.fault[rank], "bound": self.bound[rank]}
        if self.peer:
            own |= {"sym": self.peer[rank].data_ptr(), "peers": self.table, "rank": rank}
        return own

    def at(self, rank: int) -> int:
        """The epoch that a rank's next launch takes."""
        return int(self.epoch[rank][0])

    def faults(self, plans: Sequence[KernelPlan]) -> tuple[FaultReport, ...]:
        """What the ranks with a fault have left; `plans`: what may have been launched."""
        found = (fault_report(rank, words.tolist(), plans) for rank, words in enumerate(self.fault))
        return tuple(one for one in found if one is not None)

    def launch(
        self, device: Device, kernels: Sequence[Kernel], checked: bool = True
    ) -> list[tuple[Launched, ...]]:
        """Launch `kernels` one after the other on every rank, ranks side by side; an entry a kernel.
        `checked` is off only where it is to be seen what a step that is refused would do.

        Buffers that are written are changed in place. Raises Unsupported (a build that was made for another
        scratch layout), BindError or StepError before anything runs.
        """
        for k in kernels:
            fits(k.plan.key.id, self.layout, k.plan.scratch.regions, "group's scratch")
        ranks = range(len(self.epoch))
        bound = [[bind(k.plan, {**k.given[r], **self.arguments(r)}) for k in kernels] for r in ranks]
        plans = [k.plan for k in kernels]
        for own in bound if checked else ():
            check_step(plans, _used(plans, own))
        epochs = [[self.at(r) + sum(k.plan.ends_epoch for k in kernels[:n]) for n in range(len(kernels))]
                  for r in ranks]  # fmt: skip
        shared = {f"peer buffer of rank {r}": p for r, p in enumerate(self.peer)}
        counters = device.launch_ranks(
            [[to_launch(k.plan, b, k.artefact.hsaco, k.artefact.kernel, k.artefact.stage_ranges, shared)
              for k, b in zip(kernels, own, strict=True)] for own in bound]
        )  # fmt: skip
        return [
            tuple(self._launched(k.plan, r, epochs[r][n], bound[r][n], counters[r][n]) for r in ranks)
            for n, k in enumerate(kernels)
        ]

    def _launched(
        self, plan: KernelPlan, rank: int, epoch: int, bound: Bound, counters: Counters
    ) -> Launched:
        half = None
        if isinstance(plan, K2Plan | FfnPlan):
            half = self.peer[rank][plan.peer.half_at(epoch) :][: plan.peer.half_bytes]
        return Launched(bound, counters, plan.tag.at(epoch), half)


def _used(plans: Sequence[KernelPlan], bound: Sequence[Bound]) -> dict[str, Tensor | int]:
    """What launches of a queue read and write; an argument that a launch leaves alone is a stand-in."""
    pairs = zip(plans, bound, strict=True)
    return {a.name: one.values[a.name] for p, one in pairs for a in p.abi.arguments if a.used}


def _noise(count: int, seed: int) -> Tensor:
    """int32 [count] of any value."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-(2**31), 2**31 - 1, (count,), generator=generator, dtype=torch.int64).to(
        torch.int32
    )


def used_scratch(plans: Sequence[KernelPlan], epoch: int, seed: int) -> Tensor:
    """uint8: scratch as the launches before `epoch` left it, in launch order."""
    size = max(p.scratch.total for p in plans)
    if epoch == 0:
        return torch.zeros(size, dtype=torch.uint8)
    words = _noise(size // 4, seed)
    for plan in plans:
        for region in plan.scratch.regions:
            if region.kind != "data":
                words[region.offset // 4 + 1 : region.end // 4 : 2] = plan.tag.at(epoch - 1)
    return words.view(torch.uint8)


def used_peer(plan: K2Plan | FfnPlan, epoch: int, seed: int) -> Tensor:
    """uint8: a peer buffer whose halves hold the two epochs before `epoch`."""
    if epoch < 2:
        return torch.zeros(plan.peer.total, dtype=torch.uint8)
    words = _noise(plan.peer.total // 4, seed)
    words[: plan.peer.mark_bytes // 4] = 0
    for before in (1, 2):
        half = plan.peer.half_bytes // 4
        at = plan.peer.half_at(epoch - before) // 4
        words[at + 1 : at + half : 2] = plan.tag.at(epoch - before)
    return words.view(torch.uint8)


def epoch_buffer(plan: KernelPlan, epoch: int, seed: int) -> Tensor:
    """int32: the epoch buffer in front of `epoch`; counters cleared ahead are zero, used ones not."""
    words, buffer = plan.epoch, torch.zeros(plan.epoch.words, dtype=torch.int32)
    buffer[words.epoch] = epoch
    for ring in (words.ug_counters, words.down_counters):
        for before in range(1, min(epoch, words.ring - words.clear_ahead) + 1):
            buffer[ring + (epoch - before) % words.ring] = 77 + seed
    return buffer
