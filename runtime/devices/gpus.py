"""GPUs of this process as the device that `flymono run` executes on, a GPU a rank.

Invariants
 - A launch runs on copies of what it is given, one a storage, so that arguments that overlap go on
   overlapping; what it may write is copied back when all ranks have ended. Where tensors are the GPU's
   already (a stand-in runtime on the CPU) there is no copy.
 - Memory that kernels reach through addresses (peer buffers) is uncached memory of the rank that owns it, and
   every address of it among the arguments is the GPU's: a scalar, or a table that holds nothing else.
 - All ranks' launches are queued before anyone waits: kernels of one rank wait for those of the others.
 - A GPU counts nothing: counters are empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import zip_longest

import torch
from torch import Tensor

from flymono.emulator import CodeObject, pack_arguments
from flymono.runtime.devices.base import Counters, Launch
from flymono.runtime.devices.gpu import GpuError, Memory
from flymono.runtime.devices.hip import HipFunction, HipGpu
from flymono.specs import Specs


class HipDevice:
    """`gpus` in the order of ranks."""

    def __init__(self, gpus: Sequence[HipGpu]) -> None:
        self.gpus = tuple(gpus)
        for gpu in self.gpus:
            for peer in self.gpus:
                if peer is not gpu:
                    gpu.reach(peer)

    @classmethod
    def of(cls, specs: Specs, arch: str, ranks: int) -> HipDevice:
        """The first `ranks` GPUs of this process. GpuError where one is missing, unfit or of another arch."""
        gpus = list[HipGpu]()
        for rank in range(ranks):
            try:
                gpus.append(HipGpu(specs, rank))
            except GpuError as error:
                if not rank:
                    raise
                text = f"TP{ranks} needs {ranks} GPUs in this process, GPU {rank} is not to be had: {error}"
                raise GpuError(text, fix="a smaller --tp, or show more GPUs (HIP_VISIBLE_DEVICES)") from error
            if gpus[-1].arch != arch:
                raise GpuError(f"GPU {rank} is {gpus[-1].arch}, not {arch}", fix=f"--arch {gpus[-1].arch}")
        return cls(gpus)

    @property
    def name(self) -> str:
        """How reports name the device."""
        return f"{len(self.gpus)} x {self.gpus[0].name} ({self.gpus[0].arch})"

    def launch(self, launch: Launch) -> Counters:
        """Run to the end, on the first GPU."""
        return self.launch_ranks([[launch]])[0][0]

    def launch_ranks(self, queues: Sequence[Sequence[Launch]]) -> list[list[Counters]]:
        """Run one queue of launches a rank, in order. Raises GpuError for what went wrong on any."""
        hosts = {t.data_ptr(): t for queue in queues for launch in queue for t in launch.shared.values()}
        with ExitStack() as given_back:
            peers = dict[int, tuple[Tensor, Memory]]()
            for gpu, (address, host) in zip(self.gpus, hosts.items(), strict=False):
                memory = gpu.allocate(host.nbytes, "peer")  # the nth is rank n's
                given_back.callback(gpu.free, memory)
                memory.tensor[: host.nbytes].copy_(_bytes(host))
                peers[address] = (host, memory)
            self._run(queues, peers)
            for host, left in peers.values():
                _bytes(host).copy_(left.tensor[: host.nbytes])
        return [[Counters() for _ in queue] for queue in queues]

    def _run(self, queues: Sequence[Sequence[Launch]], peers: Peers) -> None:
        ranks = [_Rank(gpu, peers) for gpu in self.gpus[: len(queues)]]
        prepared = [[r.prepare(launch) for launch in q] for r, q in zip(ranks, queues, strict=True)]
        for step in zip_longest(*prepared):
            for rank, one in zip(ranks, step, strict=True):
                if one is not None:
                    rank.queue(one)
        _end(self.gpus[: len(queues)])
        for rank, queue in zip(ranks, queues, strict=True):
            rank.fetch(queue)


Peers = Mapping[int, tuple[Tensor, Memory]]
"""Address of a peer buffer on the host -> it, and its memory on the GPU that owns it."""


@dataclass(frozen=True)
class _Prepared:
    function: HipFunction
    grid: int
    block: int
    kernarg: bytes


@dataclass
class _Rank:
    """One rank's memory while a queue runs; `placed`: a host storage's address -> host bytes, GPU bytes."""

    gpu: HipGpu
    peers: Peers
    placed: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    kept: list[Tensor] = field(default_factory=list)

    def prepare(self, launch: Launch) -> _Prepared:
        """Code and arguments on the GPU."""
        self.gpu.use()
        kernel = CodeObject(launch.code).kernels[launch.kernel]
        block = (kernel.workgroup_size or (kernel.max_workgroup_size,))[0]
        kernarg = pack_arguments(kernel, [self._value(value) for _, value in launch.arguments])
        return _Prepared(self.gpu.load(launch.code, launch.kernel), launch.grid, block, kernarg)

    def _value(self, value: Tensor | int) -> int:
        if isinstance(value, int):
            return self.peers[value][1].address if value in self.peers else value
        held = value.flatten().tolist() if value.dtype == torch.int64 else []
        if held and all(v in self.peers for v in held):
            table = torch.tensor([self.peers[v][1].address for v in held])
            self.kept.append(table.to(self.gpu.torch_device))
            return self.kept[-1].data_ptr()
        return self._address(value)

    def _address(self, tensor: Tensor) -> int:
        storage = tensor.untyped_storage()
        if not storage.nbytes():
            return 0
        base = storage.data_ptr()
        if base not in self.placed:
            host = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))
            self.placed[base] = host, host.to(self.gpu.torch_device)
        return self.placed[base][1].data_ptr() + tensor.data_ptr() - base

    def queue(self, one: _Prepared) -> None:
        """Launch; nobody waits."""
        self.gpu.use()
        self.gpu.launch(one.function, one.grid, one.block, one.kernarg, self.gpu.current_stream(), tuple)

    def fetch(self, queue: Sequence[Launch]) -> None:
        """Copy back what the launches may have written."""
        written = {
            value.untyped_storage().data_ptr()
            for launch in queue
            for name, value in launch.arguments
            if name in launch.writable and isinstance(value, Tensor)
        }
        for base in written & self.placed.keys():
            host, own = self.placed[base]
            if own.data_ptr() != host.data_ptr():
                host.copy_(own)


def _end(gpus: Sequence[HipGpu]) -> None:
    """Wait for every GPU, and raise what any of them says."""
    errors = []
    for gpu in gpus:
        try:
            gpu.synchronise()
        except GpuError as error:
            errors.append(f"rank {gpu.index}: {error}" if len(gpus) > 1 else str(error))
    if errors:
        raise GpuError("\n".join(errors))


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8).reshape(-1)
