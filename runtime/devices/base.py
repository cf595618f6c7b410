"""The one interface that the host side needs of a device.

Invariants
 - A device never compiles and never plans: it gets bytes, buffers and an argument list.
 - Buffers are named by their launch argument, so that every message can name what it is about.
 - A launch either completes, with its counters, or raises an error that lists what went wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch


@dataclass(frozen=True)
class Launch:
    """One launch of one kernel.

    `arguments` are the kernel's arguments in ABI order: a tensor stands for its address, an int for
    itself. `regions` names byte ranges of a buffer ((label, offset, bytes), ...) for messages.
    `stages` are PC ranges ((stage, low, high), ...) that counters are split by. `shared` names memory that
    the kernel reaches through addresses it reads (peer buffers), which no argument names.
    """

    code: bytes
    kernel: str
    grid: int
    arguments: Sequence[tuple[str, torch.Tensor | int]]
    writable: frozenset[str]
    regions: Mapping[str, Sequence[tuple[str, int, int]]] = field(default_factory=dict)
    stages: Sequence[tuple[str, int, int]] = ()
    shared: Mapping[str, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Touched:
    """Memory that a launch may touch, under its argument's name. `shared`: other ranks touch it too;
    `external`: they do from other processes or threads. `regions`
    as in `Launch`. `keep` is whatever has to stay alive until the launch has run."""

    name: str
    address: int
    nbytes: int
    writable: bool
    shared: bool = False
    regions: Sequence[tuple[str, int, int]] = ()
    keep: object = None
    external: bool = False


@dataclass(frozen=True)
class Traffic:
    """Bytes of one buffer in one launch: asked for by lanes, and distinct bytes touched."""

    load_requested: int = 0
    load_unique: int = 0
    store_requested: int = 0
    store_unique: int = 0


@dataclass(frozen=True)
class Counters:
    """What a launch did. Counts of wave instructions; ticks are counts too, never seconds."""

    instructions: int = 0
    by_op: Mapping[str, int] = field(default_factory=dict)
    by_stage: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    traffic: Mapping[str, Traffic] = field(default_factory=dict)
    timeline: Sequence[tuple[int, str, int, int]] = ()  # workgroup, stage, first tick, last tick
    seconds: float = 0.0  # of processor time, which other work on the machine does not change


class Device(Protocol):
    """Executes launches."""

    @property
    def name(self) -> str:
        """How reports name the device."""
        ...

    def launch(self, launch: Launch) -> Counters:
        """Run `launch` to its end on the tensors it names (in place)."""
        ...

    def launch_ranks(self, queues: Sequence[Sequence[Launch]]) -> list[list[Counters]]:
        """Run one queue of launches a rank, in order; ranks run side by side and may drift apart."""
        ...
