"""Memory that a runner owns: what goes from K1 to K2, what kernels find instead of absent inputs, scratch a
width.

Invariants
 - Everything is allocated as zeros, outside captures, and stays where it is until the runner is closed.
 - Scratch is one buffer a step width: a word that is a tag in one width's layout may be data in another's.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from flymono.runtime.devices.gpu import Gpu, Memory
from flymono.runtime.plan.dims import Dims
from flymono.runtime.plan.faults import fault_words
from flymono.runtime.plan.k2.abi import ZERO_RECORD_BYTES
from flymono.runtime.plan.scratch import Scratch
from flymono.runtime.plan.tags import epoch_words
from flymono.runtime.runner.errors import RunnerError

STAND_IN = 256
"""Bytes of what a launch is given for an input that it does not touch."""

_SEAM = ("res", "post", "comb", "pre")
_KEYS = {"kt": "kt", "klen": "klen"}
_COUNTED = {"epoch": "epoch", "fault": "fault"}
OF_KIND: Mapping[str, Mapping[str, str]] = {
    "k1": {f"{n}_out": n for n in _SEAM} | _KEYS | _COUNTED
    | {"q": "q", "normed_out": "normed", "qr_out": "qr"},
    "keylist": _KEYS,
    "k2": {f"{n}_in": n for n in _SEAM} | _KEYS | _COUNTED | {"q": "q", "zrec": "zrec", "peers": "peers"},
    "ffn": _COUNTED | {"peers": "peers"},
}  # fmt: skip
"""Launch argument -> buffer, by kind of launch."""


def qk_scale(d: Dims) -> int:
    """The softmax scale times log2(e) as the bits of an f32 (attention.md 4.1)."""
    bits: int = struct.unpack("<i", struct.pack("<f", d.head_dim**-0.5 * math.log2(math.e)))[0]
    return bits


def buffer_bytes(d: Dims, limit: int, grid: int) -> dict[str, int]:
    """Bytes of every buffer of a runner whose steps have at most `limit` rows."""
    row = {
        "q": d.q_rows * 2, "kt": d.keys * 4, "klen": 2 * 4, "normed": d.hidden * 2, "qr": d.q_rank * 2,
        "res": d.streams * d.hidden * 2, "post": d.streams * 4, "comb": d.streams**2 * 4,
        "pre": d.streams * 4, "first_pre": d.streams * 4,
    }  # fmt: skip
    fixed = {"epoch": epoch_words(grid).words * 4, "zrec": ZERO_RECORD_BYTES, "peers": d.tp * 8}
    fixed |= {"stand_in": STAND_IN, "fault": fault_words().words * 4}
    return {name: limit * size for name, size in row.items()} | fixed


@dataclass(frozen=True)
class Width:
    """The scratch of one step width."""

    layout: Scratch
    memory: Memory


class Buffers:
    """All memory of a runner but the peer buffer."""

    def __init__(self, gpu: Gpu, d: Dims, limit: int, grid: int) -> None:
        self._gpu, self._d, self._limit = gpu, d, limit
        self._sizes = buffer_bytes(d, limit, grid)
        self.named: dict[str, Memory] = {}
        self.widths: dict[int, Width] = {}

    def allocate(self) -> None:
        """Make them, but for scratch."""
        for name, size in self._sizes.items():
            self.named[name] = self._gpu.allocate(size, "pinned" if name == "fault" else "device")
        first = self.tensor("first_pre", (self._limit, self._d.streams), torch.float32)
        first[:, 0] = 1.0

    def add_width(self, rows: int, layout: Scratch) -> None:
        """Scratch of steps of `rows` rows. Raises RunnerError inside a capture."""
        if rows in self.widths:
            return
        if self._gpu.is_capturing():
            text = f"the scratch of {rows} rows would be allocated inside a graph capture"
            raise RunnerError(text, fix=f"run a step of {rows} rows eagerly before it is captured")
        self.widths[rows] = Width(layout, self._gpu.allocate(layout.total))

    def tensor(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """The start of a buffer as a tensor of `shape`."""
        count = math.prod(shape) * dtype.itemsize
        return self.named[name].tensor[:count].view(dtype).reshape(shape)

    @property
    def fault(self) -> Tensor:
        """The fault words, int32, in the host's memory: read without a sync, also when the GPU is gone."""
        return self.named["fault"].tensor.view(torch.int32)

    @property
    def epoch(self) -> Tensor:
        """The epoch words, int32."""
        return self.named["epoch"].tensor.view(torch.int32)

    def forget_tags(self) -> None:
        """Zeros in everything that holds tags: the epoch words and the scratch of every width."""
        self.named["epoch"].tensor.zero_()
        for width in self.widths.values():
            width.memory.tensor.zero_()

    @property
    def nbytes(self) -> int:
        """Bytes that are held."""
        return sum(m.nbytes for m in self.named.values()) + sum(w.memory.nbytes for w in self.widths.values())

    def release(self) -> None:
        """Free everything."""
        for memory in (*self.named.values(), *(w.memory for w in self.widths.values())):
            self._gpu.free(memory)
        self.named.clear()
        self.widths.clear()
