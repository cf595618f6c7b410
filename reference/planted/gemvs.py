"""Planted bugs of the block-scaled GEMVs."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..formats import OCP, decode, pow2
from ..k1 import K1
from ..quant import Blocks
from .registry import planted

BF16 = torch.bfloat16


def _weights(k1: K1, wqkv: Tensor | None = None, wqb: Tensor | None = None) -> K1:
    """A right evaluation with other dequantised weights."""
    other = replace(k1.weights)
    other.__dict__["wqkv_values"] = k1.weights.wqkv_values if wqkv is None else wqkv
    other.__dict__["wqb_values"] = k1.weights.wqb_values if wqb is None else wqb
    return K1(k1.case, other, k1.sizes, k1.order)


def _scales(data: Tensor, codes: Tensor, block: int) -> Tensor:
    """float64 weights under other codes."""
    scale = pow2(codes.to(torch.int64) - 127).repeat_interleave(block, 0).repeat_interleave(block, 1)
    return decode(data, OCP) * scale


def _without_block(w: Tensor, at: int, width: int = 32) -> Tensor:
    short = w.clone()
    short[:, at : at + width] = 0.0
    return short


def _transposed_tile(w: Tensor) -> Tensor:
    wrong = w.clone()
    wrong[:16, :16] = w[:16, :16].mT
    return wrong


@planted("wqkv.qkvp", "one 32-wide K block is not multiplied")
class WqkvBlockDropped(K1):
    def qkvp(self, x8: Blocks) -> Tensor:
        return _weights(self, wqkv=_without_block(self.weights.wqkv_values, 352)).qkvp(x8)


@planted("wqkv.qkvp", "one 16 x 16 tile of the weight is transposed")
class WqkvTileTransposed(K1):
    def qkvp(self, x8: Blocks) -> Tensor:
        return _weights(self, wqkv=_transposed_tile(self.weights.wqkv_values)).qkvp(x8)


@planted("wqkv.qkvp", "weight codes of neighbouring K blocks are swapped")
class WqkvScalesSwapped(K1):
    def qkvp(self, x8: Blocks) -> Tensor:
        codes = torch.unflatten(self.weights.wqkv_s, 1, (-1, 2)).flip(-1).flatten(1)
        return _weights(self, wqkv=_scales(self.weights.wqkv, codes, self.weights.block)).qkvp(x8)


@planted("wqkv.qkvp", "weight codes of the next 32 rows are used")
class WqkvScaleRowNext(K1):
    def qkvp(self, x8: Blocks) -> Tensor:
        codes = self.weights.wqkv_s.roll(-1, 0)
        return _weights(self, wqkv=_scales(self.weights.wqkv, codes, self.weights.block)).qkvp(x8)


@planted("wqkv.qkvp", "weight and activation codes are exchanged within a step")
class WqkvActivationScaleNext(K1):
    def qkvp(self, x8: Blocks) -> Tensor:
        return super().qkvp(replace(x8, codes=x8.codes.roll(-1, -1)))


@planted("wqkv.qkvp", "OCP weight bytes are read as FNUZ without the code shift")
class WqkvReadAsFnuz(K1):
    def qkvp(self, x8: Blocks) -> Tensor:
        return _weights(self, wqkv=self.weights.wqkv_values / 2).qkvp(x8)


@planted("wqkv.qkvp", "the second wave's sum is not added")
class WqkvWaveLost(K1):
    def qkvp(self, x8: Blocks) -> Tensor:
        half = self.sizes.hidden // self.order.k_halves
        step = torch.arange(self.sizes.hidden) % half // self.order.k_step
        keep = step % self.order.waves != 1
        return _weights(self, wqkv=self.weights.wqkv_values * keep).qkvp(x8)


@planted("wqkv.qkvp", "activation bytes of a step are laid out for a contiguous K map")
class WqkvKMapWrong(K1):
    def qkvp(self, x8: Blocks) -> Tensor:
        runs = torch.unflatten(x8.data, -1, (-1, 2, self.order.k_step // 32, 16))
        return super().qkvp(replace(x8, data=runs.transpose(-3, -2).flatten(-4)))


@planted("wqkv.qkvp", "the K halves are stored in each other's place")
class WqkvHalvesSwapped(K1):
    def qkvp(self, x8: Blocks) -> Tensor:
        return super().qkvp(x8).flip(0)


@planted("wqkv.qkvp", "one 16-row tile of partials is that of an older step")
class WqkvTileStale(K1):
    def qkvp(self, x8: Blocks) -> Tensor:
        parts = super().qkvp(x8)
        parts[0, 0, :16] += 1.0
        return parts


@planted("wq_b.q_nope", "one 32-wide K block is not multiplied")
class WqbBlockDropped(K1):
    def wqb(self, qx8: Blocks) -> Tensor:
        return _weights(self, wqb=_without_block(self.weights.wqb_values, 96)).wqb(qx8)


@planted("wq_b.q_nope", "one 16 x 16 tile of the weight is transposed")
class WqbTileTransposed(K1):
    def wqb(self, qx8: Blocks) -> Tensor:
        return _weights(self, wqb=_transposed_tile(self.weights.wqb_values)).wqb(qx8)


@planted("wq_b.q_nope", "weight codes of neighbouring K blocks are swapped")
class WqbScalesSwapped(K1):
    def wqb(self, qx8: Blocks) -> Tensor:
        codes = torch.unflatten(self.weights.wqb_s, 1, (-1, 2)).flip(-1).flatten(1)
        return _weights(self, wqb=_scales(self.weights.wqb, codes, self.weights.block)).wqb(qx8)


@planted("wq_b.q_nope", "heads are shifted by one")
class HeadsShifted(K1):
    def wqb(self, qx8: Blocks) -> Tensor:
        return super().wqb(qx8).roll(1, 1)


@planted(
    "wq_b.q_nope", "a row's query is that of its neighbour (a stale token tile)", lambda case: case.rows > 2
)
class TokenTileStale(K1):
    def wqb(self, qx8: Blocks) -> Tensor:
        return super().wqb(qx8).roll(1, 0)
