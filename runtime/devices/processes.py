"""An emulated GPU of one rank whose peers run in other processes (or threads), over shared memory.

Invariants
 - Launches start when they are queued, on a thread of the rank's own, and run while the host goes on: ranks
   meet in their kernels' waits, nowhere else.
 - Peer memory, the rank's and those that it has opened, is external to the emulator: other ranks change it
   while a launch runs. A handle also tells where the exporting rank's record is, so that a wait knows whom
   it waits for.
 - A rank whose process ended, that was closed or that stopped with a finding is gone for the others: a
   launch that waits for it ends too.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flymono.emulator import Emulator, Roster
from flymono.runtime.devices.base import Counters, Touched
from flymono.runtime.devices.emulated import EmulatedGpu, EmulatedMemory, EmulatedNode, Work
from flymono.runtime.devices.emulator import EmulatorDevice, Prepared
from flymono.runtime.devices.gpu import GpuError, Memory, MemoryKind
from flymono.runtime.devices.segments import HANDLE_BYTES, Record, Segment, SegmentError
from flymono.specs import Specs

MAGIC = b"flymonoP"
_HANDLE = struct.Struct(f"<8s{HANDLE_BYTES}s{HANDLE_BYTES}s")  # the rank's record, the memory


@dataclass
class _RankDevice(EmulatorDevice):
    """The emulator of one rank, which knows the records of the others."""

    roster: Roster | None = None

    def emulator(self) -> Emulator:
        """A core that watches the other ranks."""
        made = super().emulator()
        if self.roster is not None:
            made.watch(self.roster)
        return made


@dataclass(eq=False)
class SharedMemory(EmulatedMemory):
    """Peer memory: the pages of a segment."""

    segment: Segment | None = field(default=None, repr=False)


class Closed(GpuError):
    """The GPU was closed while its launches ran."""


class RankNode(EmulatedNode):
    """What `ProcessGpu` queues to: the launches of one rank, run in order by a thread."""

    def __init__(
        self, specs: Specs, arch: str, rank: int, options: Mapping[str, Any] | None = None, *,
        on_done: Callable[[int, str, Counters], None] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(specs, arch, 1, options, on_done=on_done)
        self.rank, self.record = rank, Record(rank)
        self.device: _RankDevice = _RankDevice(self.device.arch, self.device.options, progress=self._go_on)
        self.peers: dict[bytes, Segment] = {}
        """Records of other ranks, by handle."""
        self.gpu = ProcessGpu(self, rank)
        self.gpus = (self.gpu,)
        self._worker: threading.Thread | None = None
        self._closing = False

    def watch(self, record: bytes) -> None:
        """Know a rank by its record's handle. Raises SegmentError when it is gone."""
        if record not in self.peers and record != self.record.segment.handle:
            self.peers[record] = Segment.attach(record)
            addresses = tuple(segment.address for segment in self.peers.values())
            self.device.roster = Roster(self.record.segment.address, addresses)

    def queue(self, rank: int, work: Sequence[Work]) -> None:
        """Start what is queued as soon as what came before has ended."""
        with self._changed:
            self._refuse_failed()
            if self._closing:
                raise Closed(f"rank {self.rank} is closed")
            self._queues[0].extend(self._outside(w) if isinstance(w, Prepared) else w for w in work)
            if self._queues[0]:
                self.record.say("working")
            if self._worker is None:
                self._worker = threading.Thread(target=self._serve, name=f"rank {self.rank}", daemon=True)
                self._worker.start()
            self._changed.notify_all()

    def synchronise(self, rank: int) -> None:
        """Wait for the queue's end. Raises GpuError for what went wrong in it."""
        if threading.current_thread() is self._worker:
            return  # host code of the queue: what came before it has run
        with self._changed:
            while self._queues[0] or self._running[0]:
                self._changed.wait()
            self._refuse_failed()

    def close(self) -> None:
        """Stop what runs; others see that the rank is gone."""
        with self._changed:
            self._closing = True
            self._queues[0].clear()
            self._changed.notify_all()
        if self._worker is not None and self._worker is not threading.current_thread():
            self._worker.join()
        self.record.say("left")
        self.record.segment.close()

    def _outside(self, work: Prepared) -> Prepared:
        """Memory that other ranks reach is external."""
        peers = [m for m in self.gpu.memories.values() if m.kind == "peer"]

        def shared(t: Touched) -> bool:
            return t.shared or any(m.address <= t.address < m.address + m.nbytes for m in peers)

        return replace(work, touched=tuple(replace(t, external=shared(t)) for t in work.touched))

    def _serve(self) -> None:
        while (work := self._next()) is not None:
            error: BaseException | None = None
            try:
                self._execute([[work]])
            except BaseException as raised:
                error = raised
            with self._changed:
                self._running[0] = False
                if error is not None:
                    self._fail(error)
                elif not self._queues[0]:
                    self.record.say("resting")
                self._changed.notify_all()

    def _next(self) -> Work | None:
        with self._changed:
            while not self._queues[0] and not self._closing:
                self._changed.wait()
            if self._closing:
                return None
            self._running[0] = True
            return self._queues[0].popleft()

    def _fail(self, error: BaseException) -> None:
        self._error = (
            error if isinstance(error, GpuError) else GpuError(f"rank {self.rank} stopped: {error!r}")
        )
        self._queues[0].clear()
        self.record.say("left")

    def _go_on(self, instructions: int) -> None:
        """The core asks now and then, also while a launch only waits."""
        if self._closing:
            raise Closed(f"rank {self.rank} was closed while a launch ran")


class ProcessGpu(EmulatedGpu):
    """The GPU of one rank (gpu.Gpu and gpu.Capturing). Make one with `process_gpu`."""

    node: RankNode

    def allocate(self, nbytes: int, kind: MemoryKind = "device") -> EmulatedMemory:
        """Zeroed memory; peer memory in pages that other processes can map."""
        if kind != "peer":
            return super().allocate(nbytes, kind)
        self._refuse_in_capture(f"allocating {nbytes} bytes of {kind} memory")
        try:
            segment = Segment.create(f"peer-{self.rank}", nbytes)
        except (SegmentError, ValueError) as error:
            raise GpuError(f"rank {self.rank}: {error}") from error
        return self._keep(SharedMemory(segment.tensor, "peer", True, segment))

    def _keep(self, memory: SharedMemory) -> SharedMemory:
        self.memories[memory.address] = memory
        return memory

    def export(self, memory: Memory) -> bytes:
        """Where the memory and this rank's record are."""
        if not isinstance(memory, SharedMemory) or memory.segment is None:
            raise GpuError(f"{memory.kind} memory cannot be shared", fix='allocate it as "peer"')
        return _HANDLE.pack(MAGIC, self.node.record.segment.handle, memory.segment.handle)

    def open(self, handle: bytes) -> SharedMemory:
        """A peer's memory, mapped. Raises GpuError if its rank is gone or the handle is none."""
        self._refuse_in_capture("opening peer memory")
        magic, record, memory = _HANDLE.unpack(handle) if len(handle) == _HANDLE.size else (b"", b"", b"")
        if magic != MAGIC:
            raise GpuError(f"rank {self.rank} cannot open peer memory: this is no handle of it")
        try:
            self.node.watch(record)
            segment = Segment.attach(memory)
        except SegmentError as error:
            raise GpuError(f"rank {self.rank} cannot open peer memory: {error}") from error
        return self._keep(SharedMemory(segment.tensor, "peer", False, segment))

    def free(self, memory: Memory) -> None:
        """Forget it; others cannot open it any more."""
        held = self.memories.pop(memory.address, None)
        if isinstance(held, SharedMemory) and held.segment is not None:
            held.segment.close()

    def close(self) -> None:
        """Stop what runs and free what is left; may be called again."""
        if not self.node._closing:
            self.node.close()
        for memory in list(self.memories.values()):
            self.free(memory)
        super().close()


def process_gpu(
    specs: Specs, arch: str, rank: int, options: Mapping[str, Any] | None = None, *,
    on_done: Callable[[int, str, Counters], None] | None = None,
) -> ProcessGpu:  # fmt: skip
    """The GPU of `rank`, whose peers are those whose memory it opens; arguments as for EmulatedNode."""
    return RankNode(specs, arch, rank, options, on_done=on_done).gpu
