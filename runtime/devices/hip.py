"""A GPU through HIP: what the `Gpu` interface says, on AMD's runtime.

Invariants
 - Arguments travel as one buffer that the host packed (HIP's `extra`), which HIP copies before a launch
   returns.
 - Peer memory is uncached: stores of other GPUs become visible while a kernel runs. Pinned memory is
   coherent, so that the host reads what a kernel wrote without a sync, and after it died.
 - Memory is zeroed, and the zeroes have arrived, before anyone gets its address.
 - A launch makes one call and no allocation; what a capture records is what torch's current stream records.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from flymono.runtime.devices.base import Touched
from flymono.runtime.devices.gpu import GpuError, Memory, MemoryKind
from flymono.runtime.devices.hip_library import Hip
from flymono.runtime.devices.hip_torch import GpuTorch, TorchSide, host_tensor
from flymono.runtime.plan.placement import grid_of
from flymono.specs import Specs

BUFFER_POINTER, BUFFER_SIZE, END = 1, 2, 3  # HIP_LAUNCH_PARAM_*
UNCACHED = 3  # hipDeviceMallocUncached
COHERENT = 0x40000000 | 0x1 | 0x2  # hipHostMallocCoherent, Portable, Mapped
LAZY_PEER_ACCESS = 1  # hipIpcMemLazyEnablePeerAccess
IPC_BYTES = 64
MAGIC = b"flymonoH"


@dataclass(eq=False)
class HipMemory:
    """Memory of this GPU, of a peer's (`own` is False) or of the host."""

    address: int
    nbytes: int
    kind: MemoryKind
    tensor: torch.Tensor
    own: bool = True


@dataclass(eq=False)
class HipFunction:
    """A kernel of a module, with the five pointers that a launch hands over."""

    kernel: str
    handle: Any
    extra: Any = field(default_factory=lambda: (ctypes.c_void_p * 5)(BUFFER_POINTER, 0, BUFFER_SIZE, 0, END))
    bytes: Any = field(default_factory=ctypes.c_size_t)
    kernarg: Any = field(default_factory=lambda: (ctypes.c_uint8 * 4096)())

    def __post_init__(self) -> None:
        self.extra[1] = ctypes.addressof(self.kernarg)
        self.extra[3] = ctypes.addressof(self.bytes)
        self.at = ctypes.addressof(self.extra)


class HipGraph:
    """What a capture recorded."""

    def __init__(self, gpu: HipGpu, handle: Any) -> None:
        self._gpu, self._handle = gpu, handle

    def replay(self) -> None:
        """Queue it on the current stream."""
        self._gpu.hip.call("hipGraphLaunch", self._handle, self._gpu.current_stream())

    def close(self) -> None:
        """Give the graph back."""
        if self._handle is not None:
            self._gpu.hip.call("hipGraphExecDestroy", self._handle)
            self._handle = None


class HipGpu:
    """GPU `index` of this process (gpu.Gpu and gpu.Capturing).

    Raises GpuError when the GPU is none that `specs` know, or has fewer compute units than a launch has
    workgroups: they must all be resident at a time.
    """

    def __init__(self, specs: Specs, index: int = 0, side: TorchSide | None = None) -> None:
        self.side = side if side is not None else GpuTorch(index)
        self.index, self.hip = index, Hip()
        self.use()
        properties = self.hip.call("hipGetDeviceProperties", index)
        self.arch = str(properties.gcnArchName).partition(":")[0]
        self.compute_units = int(properties.multiProcessorCount)
        self.name = str(properties.name)
        self._check(specs)
        self.memories: dict[int, HipMemory] = {}
        """Memory that is allocated or opened, by address."""
        self._modules = list[Any]()
        self._graphs = list[HipGraph]()
        self._launch = self.hip.raw("hipModuleLaunchKernel")
        self._success = self.hip.constant("hipError_t", "hipSuccess")
        self._not_capturing = self.hip.constant("hipStreamCaptureStatus", "hipStreamCaptureStatusNone")

    def _check(self, specs: Specs) -> None:
        if self.arch not in specs.arch:
            raise GpuError(
                f"GPU {self.index} ({self.name}) is {self.arch}",
                fix=f"there are builds for {', '.join(specs.arch)}",
            )
        needed = grid_of(specs.arch[self.arch]).workgroups
        if self.compute_units < needed:
            raise GpuError(
                f"GPU {self.index} ({self.name}) shows {self.compute_units} compute units, a launch needs "
                f"{needed} at a time",
                fix="use the whole GPU: partition mode SPX (amd-smi set --compute-partition SPX)",
            )

    @property
    def torch_device(self) -> torch.device:
        """Where torch's tensors are."""
        return self.side.device

    def current_stream(self) -> int:
        """The stream that torch's operations go to now."""
        return self.side.current_stream()

    def is_capturing(self) -> bool:
        """Whether that stream is being captured."""
        return bool(self.hip.call("hipStreamIsCapturing", self.current_stream()) != self._not_capturing)

    def use(self) -> None:
        """Make it the GPU that this thread's HIP calls go to."""
        self.hip.call("hipSetDevice", self.index)

    def _refuse_in_capture(self, what: str) -> None:
        if self.is_capturing():
            text = f"{what} inside a capture (GPU {self.index}): a replay would not do it again"
            raise GpuError(text, fix="do it before: run the step once, eagerly, at the same width")

    # ---- memory
    def allocate(self, nbytes: int, kind: MemoryKind = "device") -> HipMemory:
        """Zeroed memory. Raises GpuError inside a capture, and when there is none left."""
        self._refuse_in_capture(f"allocating {nbytes} bytes of {kind} memory")
        if nbytes < 1:
            raise GpuError(f"allocating {nbytes} bytes (GPU {self.index})")
        self.use()
        address = int(self._allocated(nbytes, kind))
        if kind == "pinned":
            ctypes.memset(address, 0, nbytes)
        else:
            self.hip.call("hipMemset", address, 0, nbytes)
            self.hip.call("hipDeviceSynchronize")
        return self._keep(address, nbytes, kind)

    def _allocated(self, nbytes: int, kind: MemoryKind) -> Any:
        if kind == "pinned":
            return self.hip.call("hipHostMalloc", nbytes, COHERENT)
        if kind == "peer":
            return self.hip.call("hipExtMallocWithFlags", nbytes, UNCACHED)
        return self.hip.call("hipMalloc", nbytes)

    def _keep(self, address: int, nbytes: int, kind: MemoryKind, own: bool = True) -> HipMemory:
        over = host_tensor if kind == "pinned" else self.side.over
        memory = HipMemory(address, nbytes, kind, over(address, nbytes), own)
        self.memories[address] = memory
        return memory

    def free(self, memory: Memory) -> None:
        """Give memory back, or unmap a peer's; nothing for what is freed already."""
        held = self.memories.pop(memory.address, None)
        if held is None:
            return
        self.use()
        name = "hipFree" if held.own else "hipIpcCloseMemHandle"
        self.hip.call("hipHostFree" if held.kind == "pinned" else name, held.address)

    def export(self, memory: Memory) -> bytes:
        """HIP's handle of peer memory, and its size."""
        if memory.kind != "peer":
            raise GpuError(f"{memory.kind} memory cannot be shared", fix='allocate it as "peer"')
        self.use()
        return MAGIC + memory.nbytes.to_bytes(8, "little") + self.hip.export_ipc(memory.address)

    def open(self, handle: bytes) -> HipMemory:
        """A peer's memory, mapped. Raises GpuError inside a capture and when it cannot be mapped."""
        self._refuse_in_capture("opening peer memory")
        head = len(MAGIC) + 8
        if len(handle) != head + IPC_BYTES or not handle.startswith(MAGIC):
            raise GpuError(f"GPU {self.index} cannot open peer memory: this is no handle of it")
        self.use()
        address = self.hip.open_ipc(handle[head:], LAZY_PEER_ACCESS)
        return self._keep(address, int.from_bytes(handle[len(MAGIC) : head], "little"), "peer", own=False)

    def reach(self, peer: HipGpu) -> None:
        """Let launches here touch memory of another GPU of this process, also what is allocated later."""
        self.use()
        (error,) = self.hip.raw("hipDeviceEnablePeerAccess")(peer.index, 0)
        again = self.hip.constant("hipError_t", "hipErrorPeerAccessAlreadyEnabled")
        if error not in (self._success, again):
            raise GpuError(
                f"GPU {self.index} cannot reach memory of GPU {peer.index}: {self.hip.reason(error)}",
                fix="take GPUs that are linked to one another, or a process a GPU",
            )

    # ---- code
    def load(self, code: bytes, kernel: str) -> HipFunction:
        """The kernel `kernel` of a code object. Raises GpuError inside a capture, and for bad code."""
        self._refuse_in_capture(f"loading {kernel}")
        self.use()
        try:
            module = self.hip.call("hipModuleLoadData", code)
            self._modules.append(module)
            return HipFunction(kernel, self.hip.call("hipModuleGetFunction", module, kernel.encode()))
        except GpuError as error:
            raise GpuError(f"loading {kernel} on {self.arch}: {error}") from error

    def launch(
        self, function: HipFunction, grid: int, block: int, kernarg: bytes | bytearray | memoryview,
        stream: int, buffers: Callable[[], Sequence[Touched]],
    ) -> None:  # fmt: skip
        """Queue a launch on `stream`. Raises GpuError if HIP refuses it."""
        size = len(kernarg)
        memoryview(function.kernarg).cast("B")[:size] = kernarg
        function.bytes.value = size
        (error,) = self._launch(function.handle, grid, 1, 1, block, 1, 1, 0, stream, None, function.at)
        if error != self._success:
            raise GpuError(f"launching {function.kernel}: {self.hip.reason(error)}")

    def in_order(self, call: Callable[[], object]) -> None:
        """Call it: the stream orders what torch does there."""
        call()

    # ---- order
    def synchronise(self) -> None:
        """Wait for the current stream. Raises GpuError for what went wrong in a kernel, and inside a
        capture."""
        self._refuse_in_capture("synchronising")
        self.use()
        self.hip.call("hipStreamSynchronize", self.current_stream())

    def begin_capture(self) -> None:
        """Record what is launched on the current stream from here on (where torch does not capture
        itself)."""
        mode = self.hip.constant("hipStreamCaptureMode", "hipStreamCaptureModeThreadLocal")
        self.hip.call("hipStreamBeginCapture", self.current_stream(), mode)

    def end_capture(self) -> HipGraph:
        """What was recorded since `begin_capture`."""
        recorded = self.hip.call("hipStreamEndCapture", self.current_stream())
        graph = HipGraph(self, self.hip.call("hipGraphInstantiate", recorded, 0)[0])
        self.hip.call("hipGraphDestroy", recorded)
        self._graphs.append(graph)
        return graph

    def close(self) -> None:
        """Free everything that is left; may be called again."""
        for graph in self._graphs:
            graph.close()
        for memory in list(self.memories.values()):
            self.free(memory)
        for module in self._modules:
            self.hip.call("hipModuleUnload", module)
        self._graphs.clear()
        self._modules.clear()
