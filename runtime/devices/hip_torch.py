"""What of a GPU is torch's: its tensors' device, the stream that it works on now, tensors over raw memory.

Everything else of the HIP device is the same lines on a GPU and on a stand-in library, where torch has no
GPU and another object takes this one's place.
"""

from __future__ import annotations

import ctypes
from typing import Protocol

import torch


class TorchSide(Protocol):
    """What the HIP device asks torch."""

    @property
    def device(self) -> torch.device: ...
    def current_stream(self) -> int: ...
    def over(self, address: int, nbytes: int) -> torch.Tensor:
        """uint8 [nbytes] over device memory."""
        ...


class _Pages:
    """Device memory, in the words that torch takes memory of others in."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 2,
        }  # fmt: skip


class GpuTorch:
    """A ROCm build of torch, on one of its GPUs."""

    def __init__(self, index: int) -> None:
        self.device = torch.device("cuda", index)

    def current_stream(self) -> int:
        """The stream that torch's operations go to now, also inside a capture of torch's."""
        return int(torch.cuda.current_stream(self.device).cuda_stream)

    def over(self, address: int, nbytes: int) -> torch.Tensor:
        """uint8 [nbytes] over device memory."""
        return torch.as_tensor(_Pages(address, nbytes), device=self.device)


def host_tensor(address: int, nbytes: int) -> torch.Tensor:
    """uint8 [nbytes] over memory of this process."""
    return torch.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), dtype=torch.uint8)
