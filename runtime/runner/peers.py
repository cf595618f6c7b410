"""The peer buffer of this rank, those of the others, and the table of their addresses that kernels read."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from flymono.runtime.devices.gpu import Gpu, Memory


class Peers:
    """Peer memory of one rank of a group."""

    def __init__(self, gpu: Gpu, rank: int, nbytes: int) -> None:
        self._gpu, self._rank, self.nbytes = gpu, rank, nbytes
        self.own: Memory | None = None
        self.all: tuple[Memory, ...] = ()
        """Every rank's buffer, as this rank reaches it."""

    def allocate(self) -> bytes:
        """Make this rank's; gives its handle."""
        self.own = self._gpu.allocate(self.nbytes, "peer")
        return self._gpu.export(self.own)

    def open(self, handles: Sequence[bytes], table: Memory) -> None:
        """Map the others', and write all addresses to `table` (int64, in the order of ranks)."""
        assert self.own is not None
        found = list[Memory]()
        for rank, handle in enumerate(handles):
            found.append(self.own if rank == self._rank else self._gpu.open(handle))
            self.all = tuple(found)
        addresses = torch.tensor([m.address for m in found], dtype=torch.int64)
        table.tensor.view(torch.int64)[: len(found)].copy_(addresses)

    def forget_tags(self) -> None:
        """Zeros in this rank's buffer. No rank may be running."""
        assert self.own is not None
        self.own.tensor.zero_()

    def release(self) -> None:
        """Unmap and free."""
        for memory in self.all:
            if memory is not self.own:
                self._gpu.free(memory)
        if self.own is not None:
            self._gpu.free(self.own)
        self.own, self.all = None, ()
