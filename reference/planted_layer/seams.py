"""Planted bugs of the FFN seam and its quantisers."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from .. import front, seam
from ..ffn import Ffn
from ..formats import F32, F64
from ..quant import Blocks, mxfp8, mxfp8_routed, quantise_with
from .registry import Bench, is_ffn, many_ranks, planted

BF16 = torch.bfloat16


@planted("ffn.push.attn", "columns of a pair are exchanged", is_ffn)
class PairsSwapped(Ffn):
    def pushed(self) -> Tensor:
        return torch.unflatten(super().pushed(), -1, (-1, 2)).flip(-1).flatten(-2).contiguous()


@planted("ffn.slice.res_out", "partials are added in descending rank order", many_ranks)
class RankOrderReversed(Ffn):
    def attn(self, parts: Tensor) -> Tensor:
        return super().attn(parts.flip(0))


@planted("ffn.slice.res_out", "the sum is rounded to bf16 after every rank", many_ranks)
class SumRoundedEveryRank(Ffn):
    def attn(self, parts: Tensor) -> Tensor:
        total = parts[0]
        for part in parts[1:]:
            total = (total.to(F32) + part.to(F32)).to(BF16)
        return total


@planted("ffn.slice.res_out", "the mixing matrix is read as [target][source]")
class FfnCombTransposed(Ffn):
    def residual(self, attn: Tensor) -> Tensor:
        case = self.case
        return seam.fold(case.res_in, attn, case.post_in, case.comb_in.mT)


@planted("ffn.slice.lin", "the collapse uses this seam's own pre gate")
class FfnNewPreGate(Ffn):
    def lin(self, residual: Tensor) -> Tensor:
        return seam.collapse(residual, self.gates(self.pmix(residual)).pre)


@planted("ffn.slice.pmix", "the low part of the gate weights is dropped")
class FfnGateLowDropped(Ffn):
    def pmix(self, residual: Tensor) -> Tensor:
        return seam.partials(residual, self.weights[0].hc_fn.to(BF16).to(F32), self.order)


@planted("ffn.slice.pmix_squares", "a stream is left out of the sum of squares")
class FfnSquaresStreamMissing(Ffn):
    def pmix(self, residual: Tensor) -> Tensor:
        short = residual.clone()
        short[:, -1] = 0
        right = super().pmix(residual)
        right[..., -1] = super().pmix(short)[..., -1]
        return right


def _gates_with(ffn: Ffn, pmix: Tensor, **sizes: float) -> seam.Gates:
    changed = replace(ffn.sizes, **sizes)  # type: ignore[arg-type]
    return seam.gates(pmix, ffn.weights[0], changed, ffn.order)


@planted("ffn.gate.pre_out", "no eps under the pre gates")
class FfnPreEpsMissing(Ffn):
    def gates(self, pmix: Tensor) -> seam.Gates:
        return replace(super().gates(pmix), pre=_gates_with(self, pmix, hc_eps=0.0).pre)


@planted("ffn.gate.post_out", "the post gate is not doubled")
class FfnPostFactorMissing(Ffn):
    def gates(self, pmix: Tensor) -> seam.Gates:
        return replace(super().gates(pmix), post=_gates_with(self, pmix, post_multiplier=1.0).post)


@planted("ffn.gate.comb_out", "one Sinkhorn round less")
class FfnSinkhornRoundLess(Ffn):
    def gates(self, pmix: Tensor) -> seam.Gates:
        less = _gates_with(self, pmix, sinkhorn=self.sizes.sinkhorn - 1)
        return replace(super().gates(pmix), comb=less.comb)


@planted("ffn.norm.normed", "the norm's weight is left out")
class FfnNormWeightMissing(Ffn):
    def normed(self, lin: Tensor) -> Tensor:
        ones = torch.ones_like(self.weights[0].ffn_w)
        return front.scaled(lin, front.layer_norm_rstd(lin, self.sizes.eps, self.order), ones)


@planted("ffn.norm.normed", "the row is cut to bf16 instead of rounded")
class FfnNormTruncated(Ffn):
    def normed(self, lin: Tensor) -> Tensor:
        rstd = front.layer_norm_rstd(lin, self.sizes.eps, self.order)
        y = (lin.to(F32) * rstd[:, None]) * self.weights[0].ffn_w.to(F32)
        return (y.view(torch.int32) & -65536).view(F32).to(BF16)


def _has_padding(bench: Bench) -> bool:
    """A padded row of zeros, so that some groups are all zero."""
    return bool((bench.case.res_in == 0).flatten(1).all(-1).any())


@planted("ffn.xq.x8rs", "the routed copy has the shared expert's floor", _has_padding)
class RoutedFloorMissing(Ffn):
    def x8r(self, normed: Tensor) -> Blocks:
        return mxfp8(normed, self.sizes.group, self.flavour)


@planted("ffn.xq.x8s", "the shared copy has the routed experts' floor", _has_padding)
class SharedFloorRaised(Ffn):
    def x8(self, normed: Tensor) -> Blocks:
        return mxfp8_routed(normed, self.sizes.group, self.flavour)


@planted("ffn.xq.x8r", "even and odd columns of a chunk are exchanged")
class ChunkOrderWrong(Ffn):
    def x8r(self, normed: Tensor) -> Blocks:
        right = super().x8r(normed)
        pairs = torch.unflatten(right.data, -1, (-1, 2)).flip(-1).flatten(-2)
        return replace(right, data=pairs.contiguous())


@planted("ffn.xq.x8", "bytes are quantised before the row's bf16 rounding")
class QuantisedEarly(Ffn):
    def x8(self, normed: Tensor) -> Blocks:
        right = super().x8(normed)
        early = self._unrounded if hasattr(self, "_unrounded") else normed
        return replace(right, data=quantise_with(early.to(F64), right.codes, self.flavour))

    def normed(self, lin: Tensor) -> Tensor:
        self._unrounded = front.norm_exact(lin, self.weights[0].ffn_w, self.sizes.eps)
        return super().normed(lin)
