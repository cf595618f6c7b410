"""GPUs of one node on the emulator: a queue of launches a rank, run side by side when a rank is synchronised.

Invariants
 - A launch that touches memory shared with other ranks runs together with the other ranks' launch of the same
   number among such: a rank that is synchronised first waits until they are queued. When nobody has queued
   theirs for `patience` seconds, it runs alone, as on a GPU: its waits then give up, or the emulator finds
   that it stands still.
 - Host code that belongs between launches (`in_order`) runs when the launches before it have run.
 - After a finding the node is done for: every later launch and synchronisation raises the same error.

Ranks may be driven from one thread in turn, or from a thread each.
"""

from __future__ import annotations

import itertools
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition
from typing import Any

import torch

from flymono.emulator import CodeObject, CodeObjectError, EmulationError, Job
from flymono.runtime.devices.base import Counters, Touched
from flymono.runtime.devices.emulator import EmulatorDevice, Prepared, execute
from flymono.runtime.devices.gpu import GpuError, HostMemory, MemoryKind
from flymono.runtime.plan.placement import grid_of
from flymono.specs import Specs

ALIGN = 256
HANDLE = struct.Struct("<8sQQ")
MAGIC = b"flymono1"
PATIENCE = 120.0

Work = Prepared | Callable[[], object]


@dataclass(eq=False)
class EmulatedMemory(HostMemory):
    """Host memory that kernels reach."""

    own: bool = True  # else opened: a peer's


@dataclass(frozen=True)
class EmulatedFunction:
    """A kernel of a code object that was read."""

    code: CodeObject
    kernel: str


class EmulatedNode:
    """`ranks` GPUs of `arch`; `options` are those of `flymono.emulator.Emulator`. `on_done(rank, kernel,
    counters)` is told of every launch that has run."""

    def __init__(
        self, specs: Specs, arch: str, ranks: int, options: Mapping[str, Any] | None = None, *,
        patience: float = PATIENCE, on_done: Callable[[int, str, Counters], None] | None = None,
    ) -> None:  # fmt: skip
        self.device = EmulatorDevice(specs.arch[arch], dict(options or {"seed": 0}))
        self.device.check(grid_of(specs.arch[arch]).workgroups)
        self.arch, self.patience, self.on_done = arch, patience, on_done
        self.gpus = tuple(EmulatedGpu(self, rank) for rank in range(ranks))
        self._queues = tuple(deque[Work]() for _ in range(ranks))
        self._together = [0] * ranks  # launches with the others that each rank has made
        self._running = [False] * ranks
        self._changed = Condition()
        self._error: GpuError | None = None

    def queue(self, rank: int, work: Sequence[Work]) -> None:
        """Append launches (and host code between them) to a rank's queue."""
        with self._changed:
            self._refuse_failed()
            self._queues[rank].extend(work)
            self._changed.notify_all()

    def synchronise(self, rank: int) -> None:
        """Run until the rank's queue is empty. Raises GpuError with the findings of any rank."""
        start = time.monotonic()
        with self._changed:
            while True:
                self._refuse_failed()
                if self._running[rank]:
                    self._changed.wait()
                elif not self._queues[rank]:
                    return
                elif any(batch := self._ready()) or time.monotonic() - start > self.patience:
                    self._run(batch if any(batch) else self._alone())
                    start = time.monotonic()
                else:
                    self._changed.wait(max(0.0, start + self.patience - time.monotonic()))

    def _refuse_failed(self) -> None:
        if self._error is not None:
            raise self._error

    def _ready(self) -> list[list[Work]]:
        """What may run now of each rank: up to host code, or host code alone; of launches with the others, as
        many as every rank has queued."""
        heads = [list(_head(q)) for q in self._queues]
        limit = min(
            made + sum(map(_with_others, head)) for made, head in zip(self._together, heads, strict=True)
        )
        ready = []
        for made, head in zip(self._together, heads, strict=True):
            numbers = itertools.accumulate((_with_others(w) for w in head), initial=made)
            next(numbers)
            ready.append([w for w, n in zip(head, numbers, strict=True) if n <= limit])
        return [[] if r else batch for r, batch in zip(self._running, ready, strict=True)]

    def _alone(self) -> list[list[Work]]:
        return [[] if r else list(_head(q)) for r, q in zip(self._running, self._queues, strict=True)]

    def _run(self, batch: list[list[Work]]) -> None:
        """Run a batch with the lock given up, so that launches go on returning at once."""
        for rank, work in enumerate(batch):
            for one in work:
                self._queues[rank].popleft()
                self._together[rank] += _with_others(one)
            self._running[rank] |= bool(work)
        self._changed.release()
        error: BaseException | None = None
        try:
            self._execute(batch)
        except BaseException as raised:  # an interrupt too must not leave other threads waiting
            error = raised
        finally:
            self._changed.acquire()
        for rank, work in enumerate(batch):
            self._running[rank] &= not work
        if error is not None:
            self._error = error if isinstance(error, GpuError) else GpuError(f"the node stopped: {error!r}")
            for queue in self._queues:
                queue.clear()
        self._changed.notify_all()
        if error is not None:
            raise error

    def _execute(self, batch: list[list[Work]]) -> None:
        for call in (work for ranks in batch for work in ranks if not isinstance(work, Prepared)):
            call()
        launches = [[work for work in ranks if isinstance(work, Prepared)] for ranks in batch]
        if not any(launches):
            return
        try:
            _, counters = execute(self.device.emulator(), launches, self.device.progress)
        except EmulationError as error:
            self.device.last = error.result
            ran = [f"rank {r}: {', '.join(p.job.kernel for p in q)}" for r, q in enumerate(launches) if q]
            raise GpuError(f"on the emulator, {'; '.join(ran)}: {error}") from error
        if self.on_done is not None:
            for rank, (own, counts) in enumerate(zip(launches, counters, strict=True)):
                for prepared, count in zip(own, counts, strict=True):
                    self.on_done(rank, prepared.job.kernel, count)


def _head(queue: deque[Work]) -> Iterator[Work]:
    """Launches up to host code; host code alone."""
    for number, work in enumerate(queue):
        if not isinstance(work, Prepared):
            if number == 0:
                yield work
            return
        yield work


def _with_others(work: Work) -> bool:
    return isinstance(work, Prepared) and any(t.shared for t in work.touched)


class EmulatedGraph:
    """What a rank's capture recorded."""

    def __init__(self, node: EmulatedNode, rank: int, work: list[Work]) -> None:
        self._node, self._rank, self._work = node, rank, work

    def replay(self) -> None:
        """Queue it again."""
        self._node.queue(self._rank, self._work)


class EmulatedGpu:
    """One rank of a node (gpu.Gpu and gpu.Capturing)."""

    def __init__(self, node: EmulatedNode, rank: int) -> None:
        self.node, self.rank = node, rank
        self.memories: dict[int, EmulatedMemory] = {}
        """Memory that is allocated or opened, by address."""
        self.functions: list[EmulatedFunction] = []
        """Kernels that are loaded."""
        self._captured: list[Work] | None = None

    @property
    def arch(self) -> str:
        """The arch spec's name."""
        return self.node.arch

    @property
    def compute_units(self) -> int:
        """As many as the smallest GPU of the arch has."""
        return min(self.node.device.arch.machine.compute_units.values())

    @property
    def torch_device(self) -> torch.device:
        """The CPU."""
        return torch.device("cpu")

    def _refuse_in_capture(self, what: str) -> None:
        if self._captured is not None:
            text = f"{what} inside a capture (rank {self.rank}): a replay would not do it again"
            raise GpuError(text, fix="do it before: run the step once, eagerly, at the same width")

    def allocate(self, nbytes: int, kind: MemoryKind = "device") -> EmulatedMemory:
        """Zeroed host memory at a multiple of 256. Raises GpuError inside a capture."""
        self._refuse_in_capture(f"allocating {nbytes} bytes of {kind} memory")
        if nbytes < 1:
            raise GpuError(f"allocating {nbytes} bytes (rank {self.rank})")
        whole = torch.zeros(nbytes + ALIGN, dtype=torch.uint8)
        start = -whole.data_ptr() % ALIGN
        memory = EmulatedMemory(whole[start : start + nbytes], kind)
        self.memories[memory.address] = memory
        return memory

    def free(self, memory: EmulatedMemory) -> None:
        """Forget it; launches that are queued keep theirs alive."""
        self.memories.pop(memory.address, None)

    def export(self, memory: EmulatedMemory) -> bytes:
        """Its address, which all ranks of a process share."""
        if memory.kind != "peer":
            raise GpuError(f"{memory.kind} memory cannot be shared", fix='allocate it as "peer"')
        return HANDLE.pack(MAGIC, memory.address, memory.nbytes)

    def open(self, handle: bytes) -> EmulatedMemory:
        """The same memory as the rank that exported it has. Raises GpuError if no rank holds it."""
        self._refuse_in_capture("opening peer memory")
        magic, address, nbytes = HANDLE.unpack(handle) if len(handle) == HANDLE.size else (b"", 0, 0)
        held = [m for gpu in self.node.gpus if (m := gpu.memories.get(address)) is not None and m.own]
        if magic != MAGIC or not held or held[0].nbytes != nbytes:
            raise GpuError(f"rank {self.rank} cannot open peer memory: no rank of this node holds it")
        opened = EmulatedMemory(held[0].tensor, "peer", own=False)
        self.memories.setdefault(address, opened)
        return opened

    def load(self, code: bytes, kernel: str) -> EmulatedFunction:
        """A kernel of a code object. Raises GpuError inside a capture, and for code that is none, has not
        this
        kernel or is another arch's."""
        self._refuse_in_capture(f"loading {kernel}")
        try:
            read = CodeObject(code)
        except (CodeObjectError, ValueError) as error:
            raise GpuError(f"loading {kernel}: {error}") from error
        if read.arch != self.arch:
            raise GpuError(f"loading {kernel}: code for {read.arch} on {self.arch}")
        if kernel not in read.kernels:
            raise GpuError(f"loading {kernel}: the code object has {', '.join(read.kernels)}")
        function = EmulatedFunction(read, kernel)
        self.functions.append(function)
        return function

    def launch(
        self, function: EmulatedFunction, grid: int, block: int, kernarg: bytes | bytearray | memoryview,
        stream: int, buffers: Callable[[], Sequence[Touched]],
    ) -> None:  # fmt: skip
        """Queue a launch, or record it inside a capture. Raises GpuError if the node has failed before."""
        job = Job(function.code, function.kernel, grid, bytes(kernarg), block)
        self._put(Prepared(job, tuple(buffers())))

    def in_order(self, call: Callable[[], object]) -> None:
        """Run `call` when the launches before it have run; inside a capture it is recorded too, and runs at
        each replay."""
        if self._captured is not None:
            self._captured.append(call)
            return
        self.synchronise()
        call()

    def _put(self, work: Work) -> None:
        if self._captured is not None:
            self._captured.append(work)
        else:
            self.node.queue(self.rank, [work])

    def current_stream(self) -> int:
        """The one stream that a rank has."""
        return 0

    def is_capturing(self) -> bool:
        """Whether launches are recorded."""
        return self._captured is not None

    def begin_capture(self) -> None:
        """Record what is launched from here on, until `end_capture`."""
        if self._captured is not None:
            raise GpuError(f"rank {self.rank} is being captured already")
        self._captured = []

    def end_capture(self) -> EmulatedGraph:
        """What was recorded."""
        if self._captured is None:
            raise GpuError(f"rank {self.rank} is not being captured")
        work, self._captured = self._captured, None
        return EmulatedGraph(self.node, self.rank, work)

    @contextmanager
    def capture(self) -> Iterator[list[EmulatedGraph]]:
        """`with gpu.capture() as graphs:` records what is launched; `graphs[0]` is there afterwards. What was
        recorded before an error is dropped."""
        graphs = list[EmulatedGraph]()
        self.begin_capture()
        try:
            yield graphs
        except BaseException:
            self._captured = None
            raise
        graphs.append(self.end_capture())

    def synchronise(self) -> None:
        """Run what all ranks have queued until this one's queue is empty. Raises GpuError with every finding,
        and inside a capture."""
        self._refuse_in_capture("synchronising")
        self.node.synchronise(self.rank)

    def close(self) -> None:
        """Free what is left."""
        self.memories.clear()
        self.functions.clear()
