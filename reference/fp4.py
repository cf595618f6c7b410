"""MXFP4 weights: e2m1 nibbles, two a byte with the even column low, one E8M0 code a row and 32 columns.

Every value is exact in float32 (one mantissa bit times a power of two), so dequantised tensors are float32
and are widened where sums are formed.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from .formats import F32, pow2, table_take

MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
GROUP = 32


@cache
def pair_table() -> Tensor:
    """float32 [256, 2]: both values of a byte, even column first."""
    half = torch.tensor(MAGNITUDES, dtype=F32)
    every = torch.cat([half, -half])
    code = torch.arange(256)
    return torch.stack([every[code & 15], every[code >> 4]], -1)


@cache
def _magnitude_table() -> Tensor:
    """As `pair_table`, magnitudes where the subnormal 0.5 counts as the smallest normal value 1."""
    table = pair_table().abs()
    return torch.where(table > 0, table.clamp_min(1.0), table)


def _dequantised(table: Tensor, data: Tensor, codes: Tensor) -> Tensor:
    rows = data.shape[0]
    # A pair of float32 travels as one float64 container: numpy gathers by bytes without widening them first.
    pairs = np.take(table.view(torch.float64).numpy().ravel(), data.contiguous().numpy())
    value = torch.from_numpy(pairs).view(F32).reshape(rows, -1, GROUP)
    scale = pow2(codes.to(torch.int64) - 127).to(F32)
    return value.mul_(scale[..., None]).reshape(rows, -1)


def fp4_values(data: Tensor, codes: Tensor) -> Tensor:
    """float32 [N, K] of uint8 [N, K / 2] and codes [N, K / 32]."""
    return _dequantised(pair_table(), data, codes)


def fp4_magnitudes(data: Tensor, codes: Tensor) -> Tensor:
    """float32 [N, K]: what error bounds of a dot product are relative to (see weights.magnitudes)."""
    return _dequantised(_magnitude_table(), data, codes)


def without_negative_zero(data: Tensor) -> Tensor:
    """The same values with every -0 nibble (0x8) as +0."""
    return table_take(_positive_zeros(), data)


@cache
def _positive_zeros() -> Tensor:
    """uint8 [256]: a byte's pair with both zeros positive."""
    code = torch.arange(256, dtype=torch.uint8)
    low = torch.where(code & 0x0F == 0x08, 0, code & 0x0F)
    high = torch.where(code & 0xF0 == 0x80, 0, code & 0xF0)
    return low | high
