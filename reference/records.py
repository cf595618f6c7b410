"""KV records in a cache, many at once: addresses, reading values, writing (attention sheet 2.1).

A block holds the values of all its states first, then their scale words; the stride between blocks may be
larger than that. Window records have the device's FP8 flavour, compressed ones are OCP everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .formats import F32, F64, Fp8, decode, pow2
from .front import record_bytes
from .quant import record_blocks
from .sizes import K1Sizes


@dataclass(frozen=True)
class RecordCache:
    """One cache: flat uint8 bytes, bytes from a block to the next, states a block, flavour of its bytes."""

    data: Tensor
    stride: int
    block: int
    flavour: Fp8

    def _addresses(self, slots: Tensor, sizes: K1Sizes) -> tuple[Tensor, Tensor]:
        """Byte offsets of values and of scale words."""
        base, off = slots // self.block * self.stride, slots % self.block
        scales = base + self.block * sizes.record_data_bytes + off * sizes.record_scale_bytes
        return base + off * sizes.record_data_bytes, scales

    def raw(self, slots: Tensor, sizes: K1Sizes) -> tuple[Tensor, Tensor]:
        """Values uint8 [n, 576] and scale words uint8 [n, 8] of int64 slots."""
        at, scale_at = self._addresses(slots, sizes)
        data = self.data[at[:, None] + torch.arange(sizes.record_data_bytes)]
        return data, self.data[scale_at[:, None] + torch.arange(sizes.record_scale_bytes)]

    def read(self, slots: Tensor, sizes: K1Sizes) -> Tensor:
        """float64 [n, head_dim]; a scale code of 0 makes its values 0."""
        data, words = self.raw(slots, sizes)
        groups = sizes.nope // sizes.record_group
        codes = words[:, :groups].to(torch.int64)
        scale = torch.where(codes == 0, 0.0, pow2(codes - 127)).repeat_interleave(sizes.record_group, -1)
        nope = decode(data[:, : sizes.nope], self.flavour) * scale
        rope = data[:, sizes.nope :].contiguous().view(torch.bfloat16).to(F64)
        return torch.cat([nope, rope], -1)

    def write(self, slots: Tensor, rows: Tensor, sizes: K1Sizes) -> None:
        """Quantise bf16 rows [n, head_dim] (rotated already) into the cache, in place."""
        nope = record_blocks(rows[:, : sizes.nope], sizes.record_group, self.flavour)
        data, words = record_bytes(nope, rows[:, sizes.nope :].to(F32), sizes)
        at, scale_at = self._addresses(slots, sizes)
        self.data[at[:, None] + torch.arange(sizes.record_data_bytes)] = data
        self.data[scale_at[:, None] + torch.arange(sizes.record_scale_bytes)] = words


def empty_cache(blocks: int, block: int, flavour: Fp8, sizes: K1Sizes, multiple: int = 576) -> RecordCache:
    """A cache whose pages are mapped on first use: only records that are written take memory."""
    stride = -(-block * sizes.record_bytes // multiple) * multiple
    # numpy's zeros come from calloc, which maps pages of zeros on demand; torch's write them.
    return RecordCache(torch.from_numpy(np.zeros(blocks * stride, np.uint8)), stride, block, flavour)
