"""What stands in for torch's side of a GPU where torch has none: CPU tensors, and a stream that HIP made.

With `runtime/devices/hip_torch.py` this is all that differs between a GPU and the stand-in library.
"""

from __future__ import annotations

import torch

from flymono.runtime.devices.hip_library import Hip
from flymono.runtime.devices.hip_torch import host_tensor


class CpuTorch:
    """Tensors on the CPU, which the stand-in's kernels read and write where they are."""

    def __init__(self, index: int) -> None:
        hip = Hip()
        hip.call("hipSetDevice", index)
        self.device = torch.device("cpu")
        self._stream = int(hip.call("hipStreamCreateWithFlags", 1).as_c_void_p().value)

    def current_stream(self) -> int:
        """The one stream of this device."""
        return self._stream

    def over(self, address: int, nbytes: int) -> torch.Tensor:
        """Device memory is host memory."""
        return host_tensor(address, nbytes)
