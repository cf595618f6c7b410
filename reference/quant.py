"""The quantisers of the layer: MXFP8 activations (groups of 32) and KV records (groups of 64).

All turn a group's largest magnitude a into the code of a power of two, E(RN32(a / clamp)), where E is the
biased exponent field plus one if any mantissa bit is set, and a value v into
e4m3(clamp(v * 2**(127 - code))).
They differ in the floor under a; the routed experts' rule multiplies by a rounded 1 / clamp instead of
dividing, which changes no code above its floor. (attention sheet 2.1, 2.2, FFN math 2.3.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .formats import F32, F64, Fp8, decode, encode, pow2

FLT_MIN = 2.0**-126
RECORD_FLOOR = float(torch.tensor(1e-4, dtype=F32))
ROUTED_FLOOR = float(torch.tensor(1e-10, dtype=F32))
LARGEST_CODE = 254


@dataclass(frozen=True)
class Blocks:
    """Quantised groups: `data` uint8 [..., n] and `codes` int32 [..., n / group]."""

    data: Tensor
    codes: Tensor
    flavour: Fp8

    def values(self) -> Tensor:
        """Dequantised float64 [..., n]."""
        group = self.data.shape[-1] // self.codes.shape[-1]
        scale = pow2(self.codes.to(torch.int64) - 127)
        return decode(self.data, self.flavour) * scale.repeat_interleave(group, -1)


def exponent_round_up(quotient: Tensor) -> Tensor:
    """E(q): biased exponent field of a float32, plus 1 if its mantissa is not zero (int32)."""
    bits = quotient.to(F32).view(torch.int32)
    return ((bits >> 23) & 0xFF) + ((bits & 0x7FFFFF) != 0).to(torch.int32)


def code_of(amax: Tensor, flavour: Fp8, floor: float = FLT_MIN) -> Tensor:
    """Scale codes (int32) of group maxima; NaN gives 254.

    The quotient is formed in float64 and rounded once more to float32. That is the IEEE float32 quotient:
    a 24-bit number over 448 = 7 * 64 is never closer to a float32 tie than float64 can tell.
    """
    a = torch.where(torch.isnan(amax), amax, amax.to(F64).clamp_min(floor))
    return exponent_round_up((a / flavour.clamp).to(F32)).clamp(0, LARGEST_CODE)


def routed_code(amax: Tensor, flavour: Fp8) -> Tensor:
    """Codes of the routed experts' rule: a float32 product with 1 / clamp, floor 1e-10, at least 1."""
    a = torch.where(torch.isnan(amax), amax, amax.to(F64).clamp_min(ROUTED_FLOOR)).to(F32)
    product = a * torch.tensor(1 / flavour.clamp, dtype=F32)
    return exponent_round_up(product).clamp(1, LARGEST_CODE)


CodeRule = Callable[[Tensor, Fp8], Tensor]  # codes of group maxima


def record_code(amax: Tensor, flavour: Fp8) -> Tensor:
    """The records' rule."""
    return code_of(amax, flavour, RECORD_FLOOR)


MXFP8: CodeRule = code_of
RECORD: CodeRule = record_code
ROUTED: CodeRule = routed_code


def quantise_with(value: Tensor, codes: Tensor, flavour: Fp8) -> Tensor:
    """uint8 codes of float64 [..., n] under given scale codes [..., n / group]."""
    group = value.shape[-1] // codes.shape[-1]
    # Code 254 means the float32 with bits 0, so everything but NaN and inf becomes 0.
    factor = torch.where(codes >= LARGEST_CODE, 0.0, pow2(127 - codes.to(torch.int64)))
    scaled = value.to(F64) * factor.repeat_interleave(group, -1)
    return encode(scaled.clamp(-flavour.clamp, flavour.clamp), flavour)


def group_max(value: Tensor, group: int) -> Tensor:
    """Largest magnitude of each group of consecutive values; NaN wins (float64 [..., n / group])."""
    return torch.unflatten(value.to(F64).abs(), -1, (-1, group)).amax(-1)


def _blocks(value: Tensor, group: int, flavour: Fp8, rule: CodeRule) -> Blocks:
    codes = rule(group_max(value, group), flavour)
    return Blocks(quantise_with(value, codes, flavour), codes, flavour)


def mxfp8(value: Tensor, group: int, flavour: Fp8) -> Blocks:
    """MXFP8 of rows of bf16 values, shape [..., n] with n a multiple of `group`."""
    return _blocks(value, group, flavour, MXFP8)


def mxfp8_routed(value: Tensor, group: int, flavour: Fp8) -> Blocks:
    """The same by the routed experts' code rule."""
    return _blocks(value, group, flavour, ROUTED)


def record_blocks(value: Tensor, group: int, flavour: Fp8) -> Blocks:
    """The quantised (un-rotated) part of a KV record: the floor under a group's maximum is 1e-4."""
    return _blocks(value, group, flavour, RECORD)
