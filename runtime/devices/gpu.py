"""What a server needs of a GPU: memory, code, launches in order, capture. Implementations: `emulated`, `hip`.

Invariants
 - A launch returns before its kernel ends. Kernels of a rank run in the order of their launches; what a
   launch is given in `kernarg` is copied before it returns.
 - Memory is zero when it is given, and its address does not change until it is freed.
 - Inside a capture launches are recorded and not run; whatever would allocate, map or load there is a
   `GpuError` that says so. What a replay reads is what memory holds then.
 - Tensors are on `torch_device`, where torch's own allocator gives memory to outputs: that is allowed inside
   a
   capture (a graph keeps it).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch

from flymono.runtime.devices.base import Touched
from flymono.specs.findings import UserError

MemoryKind = Literal["device", "peer", "pinned"]
"""On the GPU; on the GPU, uncached, for other ranks to write; on the host, which may read it without a
sync."""


class GpuError(UserError):
    """A GPU refused something, or a kernel did what it must not; the text names call, build and reason."""

    exit_code = 1


class Memory(Protocol):
    """Bytes that kernels reach at `address`; `tensor` is uint8 [nbytes] over them."""

    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def kind(self) -> MemoryKind: ...
    @property
    def tensor(self) -> torch.Tensor: ...


@dataclass(eq=False)
class HostMemory:
    """A `Memory` that is a CPU tensor's."""

    tensor: torch.Tensor
    kind: MemoryKind

    @property
    def address(self) -> int:
        """Where kernels and host find it."""
        return self.tensor.data_ptr()

    @property
    def nbytes(self) -> int:
        """Its size."""
        return self.tensor.nbytes


class Function(Protocol):
    """A kernel of a code object that was loaded."""

    @property
    def kernel(self) -> str: ...


class Graph(Protocol):
    """Launches that were captured."""

    def replay(self) -> None:
        """Queue them again, in order. Returns before they end."""
        ...


class Gpu(Protocol):
    """One rank's GPU."""

    @property
    def arch(self) -> str:
        """The arch spec's name."""
        ...

    @property
    def compute_units(self) -> int:
        """Workgroups that can be resident at a time, one a compute unit."""
        ...

    @property
    def torch_device(self) -> torch.device:
        """Where tensors are that kernels read and write."""
        ...

    def allocate(self, nbytes: int, kind: MemoryKind = "device") -> Memory:
        """Zeroed memory. Raises GpuError: inside a capture, or when there is none left."""
        ...

    def free(self, memory: Memory) -> None:
        """Give memory back, or unmap a peer's; nothing for what is freed already."""
        ...

    def export(self, memory: Memory) -> bytes:
        """A handle of peer memory for another rank's `open`; its bytes mean nothing to anyone else."""
        ...

    def open(self, handle: bytes) -> Memory:
        """A peer's memory. Raises GpuError for a handle that cannot be mapped."""
        ...

    def load(self, code: bytes, kernel: str) -> Function:
        """The kernel `kernel` of a code object. Raises GpuError: inside a capture, or for bad code."""
        ...

    def launch(
        self, function: Any, grid: int, block: int, kernarg: bytes | bytearray | memoryview, stream: int,
        buffers: Callable[[], Sequence[Touched]],
    ) -> None:  # fmt: skip
        """Queue `grid` workgroups of `block` lanes of a `Function` that this GPU has loaded. `buffers()`
        names what the kernel may touch: devices that check call it before they return, and keep what it gives
        alive until the kernel has run; others do not call it."""
        ...

    def in_order(self, call: Callable[[], object]) -> None:
        """Run host code whose torch operations belong between the launches before and after it.

        A GPU's stream orders them by itself, also inside a capture, so there it is just called."""
        ...

    def current_stream(self) -> int:
        """The stream that torch's operations go to now."""
        ...

    def is_capturing(self) -> bool:
        """Whether the current stream is being captured."""
        ...

    def synchronise(self) -> None:
        """Wait for this rank's launches. Raises GpuError for what went wrong in one of them."""
        ...

    def close(self) -> None:
        """Free everything that is left; may be called again."""
        ...


class Capturing(Protocol):
    """A GPU whose stream can be captured without torch."""

    def begin_capture(self) -> None:
        """Record what is launched from here on."""
        ...

    def end_capture(self) -> Graph:
        """What was recorded since `begin_capture`."""
        ...
