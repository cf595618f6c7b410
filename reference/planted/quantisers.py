"""Planted bugs of the layer norm and of the MXFP8 quantiser."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from .. import front
from ..formats import F32, F64, OCP, Fp8, decode, encode, pow2
from ..k1 import K1
from ..quant import Blocks, code_of, group_max, mxfp8, quantise_with
from .registry import fnuz, planted

BF16 = torch.bfloat16


def _mx_with(value: Tensor, group: int, flavour: Fp8, clamp: float) -> Blocks:
    """MXFP8 whose codes are made for another largest value."""
    codes = code_of(group_max(value, group), replace(flavour, clamp=clamp))
    return Blocks(quantise_with(value, codes, flavour), codes, flavour)


@planted("norm.x8", "no eps in the layer norm", lambda case: case.rows > 2 and not case.index)
class NormEpsMissing(K1):
    def normed(self, lin: Tensor) -> Tensor:
        return front.scaled(lin, front.layer_norm_rstd(lin, 0.0, self.order), self.weights.attn_w)


@planted("norm.normed", "no eps in the layer norm", lambda case: case.rows > 2 and case.index)
class StoredNormEpsMissing(NormEpsMissing):
    pass


@planted("norm.x8", "the norm's result is quantised before its bf16 rounding")
class NormRoundingMissing(K1):
    def x8(self, normed: Tensor) -> Blocks:
        lin = self.lin(self.residual())
        rstd = front.layer_norm_rstd(lin, self.sizes.eps, self.order)
        y = (lin.to(F32) * rstd[:, None]) * self.weights.attn_w.to(F32)
        return Blocks(quantise_with(y, mxfp8(normed, 32, self.flavour).codes, self.flavour),
                      mxfp8(normed, 32, self.flavour).codes, self.flavour)  # fmt: skip


@planted("norm.x8s", "the largest value of the other FP8 flavour decides the code")
class OtherFlavoursClamp(K1):
    def x8(self, normed: Tensor) -> Blocks:
        other = 448.0 if self.flavour.clamp < 448 else 224.0
        return _mx_with(normed, self.sizes.group, self.flavour, other)


@planted("norm.x8s", "FNUZ's largest finite value 240 is taken for its clamp 224", fnuz)
class FnuzLargestAsClamp(K1):
    def x8(self, normed: Tensor) -> Blocks:
        return _mx_with(normed, self.sizes.group, self.flavour, 240.0)


@planted("norm.x8s", "a group's code is stored in its neighbour's place")
class NeighboursCode(K1):
    def x8(self, normed: Tensor) -> Blocks:
        right = super().x8(normed)
        return replace(right, codes=right.codes.roll(1, -1))


@planted("norm.x8", "the quantiser cuts instead of rounding half to even")
class QuantiserTruncates(K1):
    def x8(self, normed: Tensor) -> Blocks:
        right = super().x8(normed)
        value = normed.to(F64) * pow2(127 - right.codes.to(torch.int64)).repeat_interleave(
            self.sizes.group, -1
        )
        nearest = decode(right.data, self.flavour)
        toward_zero = torch.where(nearest.abs() > value.abs(), right.data - 1, right.data)
        return replace(right, data=toward_zero)


@planted("norm.x8", "OCP bytes are stored where FNUZ ones belong", fnuz)
class OcpBytesAsFnuz(K1):
    def x8(self, normed: Tensor) -> Blocks:
        right = super().x8(normed)
        value = normed.to(F64) * pow2(127 - right.codes.to(torch.int64)).repeat_interleave(
            self.sizes.group, -1
        )
        return replace(right, data=encode(value.clamp(-448, 448), OCP))


@planted("norm.x8", "two rows of the layer input change places", lambda case: case.rows > 2)
class RowsSwapped(K1):
    def x8(self, normed: Tensor) -> Blocks:
        right = super().x8(normed)
        return Blocks(right.data.roll(1, 0), right.codes.roll(1, 0), right.flavour)
