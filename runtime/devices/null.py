"""A GPU on which a launch does nothing: what the host does for a launch can be timed without its kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from flymono.runtime.devices.base import Touched
from flymono.runtime.devices.gpu import GpuError, HostMemory, MemoryKind


@dataclass(frozen=True)
class NullFunction:
    """A name."""

    kernel: str


class NullGpu:
    """gpu.Gpu without kernels; `launches` counts what was launched. Every peer handle opens to own memory."""

    def __init__(self, arch: str, compute_units: int = 256) -> None:
        self.arch, self.compute_units, self.launches = arch, compute_units, 0
        self.torch_device = torch.device("cpu")
        self.capturing = False
        self._peers = list[HostMemory]()

    def allocate(self, nbytes: int, kind: MemoryKind = "device") -> HostMemory:
        """Zeroed host memory. Raises GpuError inside a capture."""
        if self.capturing:
            raise GpuError(f"allocating {nbytes} bytes of {kind} memory inside a capture")
        memory = HostMemory(torch.zeros(nbytes, dtype=torch.uint8), kind)
        if kind == "peer":
            self._peers.append(memory)
        return memory

    def free(self, memory: HostMemory) -> None:
        """Nothing: it goes when nobody holds it."""

    def export(self, memory: HostMemory) -> bytes:
        """An empty handle."""
        return b""

    def open(self, handle: bytes) -> HostMemory:
        """The peer memory that was allocated last."""
        return self._peers[-1]

    def load(self, code: bytes, kernel: str) -> NullFunction:
        """The name of the kernel."""
        return NullFunction(kernel)

    def launch(
        self, function: NullFunction, grid: int, block: int, kernarg: bytes | bytearray | memoryview,
        stream: int, buffers: Callable[[], Sequence[Touched]],
    ) -> None:  # fmt: skip
        """Count it."""
        self.launches += 1

    def in_order(self, call: Callable[[], object]) -> None:
        """Call it."""
        call()

    def current_stream(self) -> int:
        """Always the same."""
        return 0

    def is_capturing(self) -> bool:
        """What `capturing` says."""
        return self.capturing

    def synchronise(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Nothing is held."""
        self._peers.clear()
