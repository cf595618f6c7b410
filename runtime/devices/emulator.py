"""The emulator as a device: every buffer of a launch registered by its argument's name.

Invariant: what a launch may touch is what its arguments name, nothing else; a kernel that reads past
a buffer is a finding with the argument's name in it.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch

from flymono.emulator import CodeObject, EmulationError, Emulator, Job, LaunchResult
from flymono.runtime.devices.base import Counters, Launch, Touched, Traffic
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

    def emulator(self) -> Emulator:
        """A core with these options and no buffers. Raises DeviceError for options that it does not know."""
        try:
            return Emulator(self.arch.name, xcds=self.arch.machine.xcds, **self.options)
        except ValueError as error:
            raise DeviceError(str(error), exit_code=2) from error

    def check(self, grid: int) -> None:
        """DeviceError (exit code 2) with everything that is wrong with arch and options, before any work."""
        emulator = self.emulator()
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
        codes = dict[bytes, CodeObject]()
        prepared = [[_prepared(launch, codes) for launch in queue] for queue in queues]
        try:
            results, counters = execute(self.emulator(), prepared, self.progress)
        except EmulationError as error:
            self.last = error.result
            raise DeviceError(str(error), tuple(error.findings)) from error
        self.last = results[0][0]
        return counters


@dataclass(frozen=True)
class Prepared:
    """A launch as the core takes it, and the memory that it may touch."""

    job: Job
    touched: tuple[Touched, ...]


def execute(
    emulator: Emulator, queues: Sequence[Sequence[Prepared]], progress: Callable[[int], None] | None = None
) -> tuple[list[list[LaunchResult]], list[list[Counters]]]:
    """Run a queue a rank, ranks side by side, on exactly the memory that the launches name.

    Raises EmulationError with every finding.
    """
    names = _register(emulator, [[p.touched for p in queue] for queue in queues])
    start = time.process_time()
    results = emulator.launch_ranks([[p.job for p in queue] for queue in queues], progress)
    seconds = time.process_time() - start
    counters = [
        [counters_of(result, seconds, own) for result, own in zip(*rank, strict=True)]
        for rank in zip(results, names, strict=True)
    ]
    return results, counters


def _register(
    emulator: Emulator, queues: Sequence[Sequence[Sequence[Touched]]]
) -> list[list[dict[str, str]]]:
    """Make every buffer known once, under the name of its first argument; gives {argument: that name} of each
    launch. A buffer that any launch may write is writable: launches hand buffers to one another. Arguments
    that overlap (a cache's layers in one block of memory) are one buffer."""
    everything = [t for queue in queues for launch in queue for t in launch]
    spans = _united(everything)
    starts, labels, named = [s.start for s in spans], dict[int, str](), []
    for rank, queue in enumerate(queues):
        own = list[dict[str, str]]()
        for launch in queue:
            own.append({})
            for t in launch:
                span = spans[bisect_right(starts, t.address) - 1]
                if span.start not in labels:
                    mine = len(queues) > 1 and not t.shared
                    labels[span.start] = _free(
                        f"{t.name} of rank {rank}" if mine else t.name, labels.values()
                    )
                    at = (span.start, span.end - span.start)
                    emulator.register(labels[span.start], at, span.writable, span.external)
                own[-1][t.name] = labels[span.start]
                if t.regions:
                    moved = [(n, t.address - span.start + offset, size) for n, offset, size in t.regions]
                    emulator.name_regions(labels[span.start], moved)
        named.append(own)
    return named


@dataclass
class _Span:
    """Bytes [start, end) that are one buffer."""

    start: int
    end: int
    writable: bool
    external: bool = False


def _united(everything: Iterable[Touched]) -> list[_Span]:
    """The disjoint spans of all buffers, in the order of their addresses."""
    spans = list[_Span]()
    for t in sorted(everything, key=lambda t: t.address):
        end, writable = t.address + t.nbytes, t.writable or t.shared
        if spans and t.address < spans[-1].end:
            spans[-1].end, spans[-1].writable = max(spans[-1].end, end), spans[-1].writable or writable
            spans[-1].external |= t.external
        else:
            spans.append(_Span(t.address, end, writable, t.external))
    return spans


def _free(name: str, taken: Iterable[str]) -> str:
    """`name`, told apart from those taken: launches of a queue may give one name to different buffers."""
    held = set(taken)
    return next(n for i in count(1) if (n := name if i == 1 else f"{name} ({i})") not in held)


def _touched(launch: Launch) -> Iterator[Touched]:
    """Memory that a launch may touch, by name."""
    for name, value in launch.arguments:
        if isinstance(value, torch.Tensor) and value.numel():
            written, regions = name in launch.writable, launch.regions.get(name, ())
            yield Touched(name, value.data_ptr(), value.nbytes, written, regions=regions)
    for name, value in launch.shared.items():
        regions = launch.regions.get(name, ())
        yield Touched(name, value.data_ptr(), value.nbytes, True, shared=True, regions=regions)


def _prepared(launch: Launch, codes: dict[bytes, CodeObject]) -> Prepared:
    if launch.code not in codes:
        codes[launch.code] = CodeObject(launch.code)
    values = [value for _, value in launch.arguments]
    job = Job(codes[launch.code], launch.kernel, launch.grid, values, None, tuple(launch.stages))
    return Prepared(job, tuple(_touched(launch)))


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
