"""float32 arithmetic in a stated order: the operations a kernel's promised rounding order is made of.

Invariants
 - Tensors are float32 and every operation rounds once, as IEEE says; torch never contracts two operations.
 - rsq, rcp and exp2 are the correctly rounded results. The hardware promises 1 ulp, so nothing that follows
   one of them is promised bit for bit; results flush subnormals as the hardware does.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .formats import F32, F64

LOG2E = 1.4426950408889634


def fma(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """a * b + c with one rounding to float32.

    The product of two float32 is exact in float64; the sum is rounded to odd there, which makes the final
    rounding to float32 the only one that counts.
    """
    product, addend = a.to(F64) * b.to(F64), c.to(F64)
    total = product + addend
    back = total - product
    error = (product - (total - back)) + (addend - back)
    bits = total.view(torch.int64)
    away = (error > 0) == (total > 0)
    odd = torch.where(away, bits + 1, bits - 1).view(F64)
    fix = (error != 0) & ((bits & 1) == 0) & torch.isfinite(total)
    return torch.where(fix, odd, total).to(F32)


def fma_near(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """fma with a second rounding in float64: cheaper, and right unless the sum sits on a float32 tie."""
    return (a.to(F64) * b.to(F64) + c.to(F64)).to(F32)


def _flush(value: Tensor) -> Tensor:
    return torch.where(value.abs() < 2.0**-126, torch.zeros_like(value), value)


def rsq(x: Tensor) -> Tensor:
    """1 / sqrt(x), correctly rounded."""
    return _flush(x.to(F64).rsqrt().to(F32))


def rcp(x: Tensor) -> Tensor:
    """1 / x, correctly rounded."""
    return _flush(x.to(F64).reciprocal().to(F32))


def exp2(x: Tensor) -> Tensor:
    """2 ** x, correctly rounded."""
    return _flush(torch.exp2(x.to(F64)).to(F32))


def butterfly(value: Tensor, offsets: tuple[int, ...]) -> Tensor:
    """Sum over the last axis (lanes) by v += v[lane xor offset] in the given order; every lane ends equal."""
    lane = torch.arange(value.shape[-1])
    for offset in offsets:
        value = value + value[..., lane ^ offset]
    return value[..., 0]


def ordered_sum(value: Tensor, dim: int) -> Tensor:
    """Sum over `dim` in ascending order."""
    parts = value.unbind(dim)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def pairwise_sum(value: Tensor, dim: int = -1) -> Tensor:
    """(q0 + q1) + (q2 + q3) over an axis of four."""
    q0, q1, q2, q3 = value.unbind(dim)
    return (q0 + q1) + (q2 + q3)


def log2(x: Tensor) -> Tensor:
    """log2(x), correctly rounded."""
    return _flush(torch.log2(x.to(F64)).to(F32))


def rint(x: Tensor) -> Tensor:
    """Round half to even to an integer value."""
    return torch.round(x)
