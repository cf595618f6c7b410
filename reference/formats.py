"""Small float formats as exact maths on float64: bf16, e4m3 in both flavours, E8M0 codes.

Invariants
 - Every function is exact: a value is scaled by a power of two, rounded half-to-even to an integer, and
   scaled back; no library conversion takes part, so a test against ml_dtypes and torch means something.
 - A float64 tensor of "bf16 values" holds numbers on the bf16 grid; storing it as bfloat16 loses nothing.
 - The clamp of a quantiser (448 or 224) is a property of the flavour and not the largest finite code: FNUZ
   reaches 240, but its quantisers stop at 224 so that both flavours give the same byte patterns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

F64 = torch.float64
F32 = torch.float32


@dataclass(frozen=True)
class Fp8:
    """One e4m3 flavour: 1 sign, 4 exponent, 3 mantissa bits."""

    name: str
    bias: int
    clamp: float  # quantisers clamp to +-clamp before rounding
    largest_code: int  # magnitude code of the largest finite value
    nan: int  # code that conversions produce for NaN and overflow (without sign)
    signed_zero: bool

    @property
    def smallest_exponent(self) -> int:
        """Exponent of the smallest normal value; subnormals share its step."""
        return 1 - self.bias


OCP = Fp8("ocp", bias=7, clamp=448.0, largest_code=0x7E, nan=0x7F, signed_zero=True)
FNUZ = Fp8("fnuz", bias=8, clamp=224.0, largest_code=0x7F, nan=0x80, signed_zero=False)
FLAVOURS = {"ocp": OCP, "fnuz": FNUZ}


def pow2(exponent: Tensor) -> Tensor:
    """2**exponent as float64, exact for exponents -1022 .. 1023 (built from bits)."""
    return ((exponent.to(torch.int64) + 1023) << 52).view(F64)


def _exponent(value: Tensor, smallest: int) -> Tensor:
    """floor(log2|value|), at least `smallest` (also for 0, inf and NaN, which callers treat apart)."""
    finite = torch.where(torch.isfinite(value), value, torch.zeros_like(value))
    return torch.where(finite == 0, smallest, torch.frexp(finite).exponent - 1).clamp_min(smallest)


def round_to(value: Tensor, precision: int, smallest: int) -> Tensor:
    """Round float64 half-to-even to `precision` significant bits with gradual underflow at 2**smallest."""
    unit = pow2(_exponent(value, smallest) - (precision - 1))
    return torch.where(torch.isfinite(value), torch.round(value / unit) * unit, value)


def bf16(value: Tensor) -> Tensor:
    """Round to the bf16 grid, one rounding from float64 (torch's own double-to-bf16 rounds twice)."""
    rounded = round_to(value.to(F64), 8, -126)
    return torch.where(
        rounded.abs() >= 2.0**128, torch.copysign(torch.full_like(rounded, torch.inf), rounded), rounded
    )


def f32(value: Tensor) -> Tensor:
    """Round float64 to the float32 grid, kept as float64."""
    return value.to(F32).to(F64)


def bf16_ordinal(value: Tensor) -> Tensor:
    """Integers in the order of bf16 values (neighbours differ by 1, both zeros are 0)."""
    bits = value.to(torch.bfloat16).view(torch.int16).to(torch.int64)
    magnitude = bits & 0x7FFF
    return torch.where(bits < 0, -magnitude, magnitude)


@cache
def decode_table(flavour: Fp8) -> Tensor:
    """float64 [256]: the value of every code; NaN codes are NaN."""
    code = torch.arange(256)
    exponent, mantissa = (code >> 3) & 15, (code & 7).to(F64)
    value = torch.where(
        exponent == 0,
        mantissa * 2.0 ** (flavour.smallest_exponent - 3),
        (8 + mantissa) * pow2(exponent - flavour.bias - 3),
    )
    value = torch.where(code >= 128, -value, value)
    bad = (code == 0x80) if flavour.nan == 0x80 else (code & 0x7F) == flavour.nan
    return torch.where(bad, torch.nan, value)


def decode(codes: Tensor, flavour: Fp8) -> Tensor:
    """float64 values of uint8 codes."""
    return decode_table(flavour)[codes.to(torch.int64)]


def table_take(table: Tensor, codes: Tensor) -> Tensor:
    """`table` by codes of any integer type, in their shape. numpy gathers by bytes; torch would first make
    indices of eight bytes each, which for a weight costs more than the rest of its use."""
    return torch.from_numpy(np.take(table.numpy(), codes.contiguous().numpy()))


WIDE = 1 << 20  # elements of a float64 block: small enough that its memory is used again, not mapped anew


def products(x: Tensor, w: Tensor) -> Tensor:
    """float64 x [n, K] @ w [N, K].T of any float w, widened a block of rows at a time."""
    rows = max(1, WIDE // w.shape[1])
    if w.dtype == F64 or len(w) <= rows:
        return x @ w.to(F64).T
    return torch.cat([x @ part.to(F64).T for part in w.split(rows)], -1)


def encode(value: Tensor, flavour: Fp8) -> Tensor:
    """uint8 codes of float64 values, half-to-even; overflow and NaN give the NaN code, nothing saturates."""
    magnitude = value.abs()
    exponent = _exponent(magnitude, flavour.smallest_exponent)
    finite = torch.where(torch.isfinite(magnitude), magnitude, torch.zeros_like(magnitude))
    steps = torch.round(finite / pow2(exponent - 3)).to(torch.int64)
    # A carry to 16 steps lands on the next exponent by itself; fewer than 8 steps are the subnormals.
    code = ((exponent + flavour.bias).to(torch.int64) << 3) + steps - 8
    bad = ~torch.isfinite(magnitude) | (code > flavour.largest_code)
    sign = torch.signbit(value) & (flavour.signed_zero | (code != 0))
    code = torch.where(sign, code | 0x80, code)
    nan = torch.where(torch.signbit(value) & flavour.signed_zero, flavour.nan | 0x80, flavour.nan)
    return torch.where(bad, nan, code).to(torch.uint8)


def fp8_ordinal(codes: Tensor, flavour: Fp8) -> Tensor:
    """Integers in the order of e4m3 values (neighbours differ by 1, both zeros are 0); NaN is 255."""
    wide = codes.to(torch.int64)
    ordinal = torch.where(wide >= 128, -(wide & 0x7F), wide & 0x7F)
    return torch.where(torch.isnan(decode(codes, flavour)), 255, ordinal)


def to_fnuz(codes: Tensor) -> Tensor:
    """OCP codes as FNUZ codes of half the value: the same bytes, but -0 becomes +0 (0x80 is NaN in FNUZ)."""
    return torch.where(codes == 0x80, torch.zeros_like(codes), codes)
