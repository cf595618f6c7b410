"""The emulator as a device: every buffer of a launch registered by its argument's name.

Invariant: what a launch may touch is what its arguments name, nothing else; a kernel that reads past
a buffer is a finding with the argument's name in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch

from flymono.emulator import CodeObject, EmulationError, Emulator, Job, LaunchResult
from flymono.runtime.devices.base import Counters, Launch, Traffic
from flymono.specs.findings import UserError
from flymono.specs.schema import ArchSpec


class DeviceError(UserError):
    """A launch that the emulator found something wrong with, or options that it does not know."""

    def __init__(self, message: str, findings: tuple[Any, ...] = (), exit_code: int = 1) -> None:
        super().__init__(message)
        self.findings, self.exit_code = findings, exit_code


@dataclass
class EmulatorDevice:
    """One emulated GPU of `arch`; `options` are those of `flymono.emulator.Emulator`."""

    arch: ArchSpec
    options: dict[str, Any] = field(default_factory=dict)
    last: LaunchResult | None = None
    progress: Callable[[int], None] | None = None

    @property
    def name(self) -> str:
        """How reports name this device."""
        changed = ", ".join(f"{k} {v}" for k, v in self.options.items() if k != "seed")
        return f"the emulator of {self.arch.name}" + (f" ({changed})" if changed else "")

    def _emulator(self) -> Emulator:
        try:
            return Emulator(self.arch.name, xcds=self.arch.machine.xcds, **self.options)
        except ValueError as error:
            raise DeviceError(str(error), exit_code=2) from error

    def check(self, grid: int) -> None:
        """DeviceError (exit code 2) with everything that is wrong with arch and options, before any work."""
        emulator = self._emulator()
        faults = emulator.faults()
        starved = emulator.options["starved"]
        if isinstance(starved, int) and starved >= grid:
            faults.append(f"order starves workgroup {starved}; there are 0 to {grid - 1}")
        if faults:
            text = "the emulator cannot run this:" + "".join(f"\n  {fault}" for fault in faults)
            raise DeviceError(text, exit_code=2)

    def launch(self, launch: Launch) -> Counters:
        """Run to the end; DeviceError with every finding if the kernel did what it must not."""
        return self.launch_ranks([[launch]])[0][0]

    def launch_ranks(self, queues: Sequence[Sequence[Launch]]) -> list[list[Counters]]:
        """`launch` of a queue a rank. A launch's traffic is that of the whole run, and its seconds too."""
        emulator, codes = self._emulator(), dict[bytes, CodeObject]()
        names = _register(emulator, queues)
        jobs = [[_job(launch, codes) for launch in queue] for queue in queues]
        start = time.process_time()
        try:
            results = emulator.launch_ranks(jobs, self.progress)
        except EmulationError as error:
            self.last = error.result
            raise DeviceError(str(error), tuple(error.findings)) from error
        seconds, self.last = time.process_time() - start, results[0][0]
        return [
            [counters_of(result, seconds, own) for result, own in zip(*rank, strict=True)]
            for rank in zip(results, names, strict=True)
        ]


def _register(emulator: Emulator, queues: Sequence[Sequence[Launch]]) -> list[list[dict[str, str]]]:
    """Make every buffer known once, under the name of its first argument; gives {argument: that name} of each
    launch. A buffer that any launch may write is writable: launches hand buffers to one another."""
    sizes, writable = dict[int, int](), set[int]()
    for launch in (launch for queue in queues for launch in queue):
        for name, tensor in _buffers(launch):
            at = tensor.data_ptr()
            sizes[at] = max(sizes.get(at, 0), tensor.nbytes)
            writable |= {at} if name in launch.writable or name in launch.shared else set()
    labels, named = dict[int, str](), []
    for rank, queue in enumerate(queues):
        own = list[dict[str, str]]()
        for launch in queue:
            for name, tensor in _buffers(launch):
                at = tensor.data_ptr()
                if at not in labels:
                    mine = len(queues) > 1 and name not in launch.shared
                    labels[at] = _free(f"{name} of rank {rank}" if mine else name, labels.values())
                    emulator.register(labels[at], (at, sizes[at]), writable=at in writable)
            own.append({name: labels[tensor.data_ptr()] for name, tensor in _buffers(launch)})
            for name, regions in launch.regions.items():
                emulator.name_regions(own[-1][name], regions)
        named.append(own)
    return named


def _free(name: str, taken: Iterable[str]) -> str:
    """`name`, told apart from those taken: launches of a queue may give one name to different buffers."""
    held = set(taken)
    return next(n for i in count(1) if (n := name if i == 1 else f"{name} ({i})") not in held)


def _buffers(launch: Launch) -> list[tuple[str, torch.Tensor]]:
    """Memory that a launch may touch, by name."""
    arguments = [(n, v) for n, v in launch.arguments if isinstance(v, torch.Tensor) and v.numel()]
    return [*arguments, *launch.shared.items()]


def _job(launch: Launch, codes: dict[bytes, CodeObject]) -> Job:
    if launch.code not in codes:
        codes[launch.code] = CodeObject(launch.code)
    values = [value for _, value in launch.arguments]
    return Job(codes[launch.code], launch.kernel, launch.grid, values, None, tuple(launch.stages))


def counters_of(result: LaunchResult, seconds: float, names: Mapping[str, str]) -> Counters:
    """The emulator's counts in the words of the device interface; `names`: argument -> registered buffer."""
    traffic = {
        name: Traffic(t.load.bytes, t.unique_loaded, t.store.bytes + t.atomic.bytes, t.unique_stored)
        for name, label in names.items()
        if (t := result.traffic.get(label)) is not None
    }
    return Counters(
        instructions=result.instructions,
        by_op=result.by_opcode,
        by_stage={name: stage.by_opcode for name, stage in result.by_stage.items() if stage.instructions},
        traffic=traffic,
        timeline=[(s.workgroup, s.stage, s.first, s.last) for s in result.spans],
        seconds=seconds,
    )
