"""Planted bugs of the seam: fold, collapse, projections, gates."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from .. import seam
from ..case import K1Case
from ..formats import F32
from ..k1 import K1
from .registry import folds, planted

BF16 = torch.bfloat16


@planted("slice.res_out", "the mixing matrix is read as [target][source]", folds)
class CombTransposed(K1):
    def residual(self) -> Tensor:
        case = self.case
        return seam.fold(case.res_in, case.pend, case.post_in, case.comb_in.mT)


def _unfused(case: K1Case) -> Tensor:
    r, total = case.res_in.to(F32), case.post_in[:, :, None] * case.pend.to(F32)[:, None]
    for i in range(case.res_in.shape[1]):
        total = total + case.comb_in[:, i, :, None] * r[:, None, i]
    return total.to(BF16)


def _fusing_matters(case: K1Case) -> bool:
    """Whether the fused last product moves any bf16 result of this case (few lie that near a tie)."""
    return folds(case) and bool(
        (_unfused(case) != seam.fold(case.res_in, case.pend, case.post_in, case.comb_in)).any()
    )


@planted("slice.res_out", "the last stream is multiplied and added instead of fused", _fusing_matters)
class FoldWithoutFma(K1):
    def residual(self) -> Tensor:
        return _unfused(self.case)


@planted("slice.lin", "the collapse reads the folded streams before their bf16 rounding", folds)
class FoldRoundingMissing(K1):
    def lin(self, residual: Tensor) -> Tensor:
        case = self.case
        return seam.collapse(seam.fold_exact(case.res_in, case.pend, case.post_in, case.comb_in), case.pre_in)


@planted("slice.lin", "the collapse uses this seam's pre gate instead of the previous seam's")
class NewPreGate(K1):
    def lin(self, residual: Tensor) -> Tensor:
        return seam.collapse(residual, self.gates(self.pmix(residual)).pre)


@planted("slice.lin", "the layer input is cut to bf16 instead of rounded")
class LinTruncated(K1):
    def lin(self, residual: Tensor) -> Tensor:
        total = torch.zeros_like(residual[:, 0], dtype=F32)
        for h in range(self.sizes.streams):
            total = total + self.case.pre_in[:, h, None] * residual[:, h].to(F32)
        return (total.view(torch.int32) & -65536).view(F32).to(BF16)


@planted("slice.pmix", "the low part of the gate weights is dropped")
class GateLowPartDropped(K1):
    def pmix(self, residual: Tensor) -> Tensor:
        return seam.partials(residual, self.weights.hc_fn.to(BF16).to(F32), self.order)


@planted("slice.pmix", "the gate weights are read column-major over the streams")
class GateStreamsSwapped(K1):
    def pmix(self, residual: Tensor) -> Tensor:
        fn = torch.unflatten(self.weights.hc_fn, -1, (-1, self.sizes.streams)).mT.flatten(-2)
        return seam.partials(residual, fn, self.order)


@planted("slice.pmix", "one wave's share of a slice is lost")
class GateWaveLost(K1):
    def pmix(self, residual: Tensor) -> Tensor:
        fn = torch.unflatten(self.weights.hc_fn.clone(), -1, (self.sizes.streams, -1))
        fn[:, 1, :16] = 0.0
        return torch.cat([super().pmix(residual)[1:], self._first(residual, fn.flatten(1))]).roll(1, 0)

    def _first(self, residual: Tensor, fn: Tensor) -> Tensor:
        partial = seam.partials(residual, fn, self.order)[:1]
        partial[..., -1] = super().pmix(residual)[0, ..., -1]
        return partial


@planted("slice.pmix_squares", "a stream is left out of the sum of squares")
class SquaresStreamMissing(K1):
    def pmix(self, residual: Tensor) -> Tensor:
        short = residual.clone()
        short[:, -1] = 0
        right = super().pmix(residual)
        right[..., -1] = super().pmix(short)[..., -1]
        return right


def _gates_with(k1: K1, pmix: Tensor, **sizes: float) -> seam.Gates:
    """The gates under other constants."""
    return seam.gates(pmix, k1.weights, replace(k1.sizes, **sizes), k1.order)  # type: ignore[arg-type]


@planted("gate.comb_out", "one Sinkhorn round less")
class SinkhornRoundLess(K1):
    def gates(self, pmix: Tensor) -> seam.Gates:
        return replace(
            super().gates(pmix), comb=_gates_with(self, pmix, sinkhorn=self.sizes.sinkhorn - 1).comb
        )


@planted("gate.comb_out", "no eps inside Sinkhorn")
class SinkhornEpsMissing(K1):
    def gates(self, pmix: Tensor) -> seam.Gates:
        return replace(super().gates(pmix), comb=_gates_with(self, pmix, hc_eps=0.0).comb)


@planted("gate.comb_out", "rows and columns of the mixing matrix are exchanged")
class SinkhornTransposed(K1):
    def gates(self, pmix: Tensor) -> seam.Gates:
        gates = super().gates(pmix)
        return replace(gates, comb=gates.comb.mT.contiguous())


@planted("gate.pre_out", "no eps under the pre gates")
class PreEpsMissing(K1):
    def gates(self, pmix: Tensor) -> seam.Gates:
        return replace(super().gates(pmix), pre=_gates_with(self, pmix, hc_eps=0.0).pre)


@planted("gate.post_out", "the post gate is not doubled")
class PostFactorMissing(K1):
    def gates(self, pmix: Tensor) -> seam.Gates:
        return replace(super().gates(pmix), post=_gates_with(self, pmix, post_multiplier=1.0).post)


@planted("gate.pre_out", "no eps in the gates' norm", lambda case: case.rows > 2)
class GateEpsMissing(K1):
    def gates(self, pmix: Tensor) -> seam.Gates:
        return _gates_with(self, pmix, eps=0.0)


@planted("gate.pre_out", "the last group of slices is not added")
class GateGroupLost(K1):
    def gates(self, pmix: Tensor) -> seam.Gates:
        kept = pmix.clone()
        kept[-self.order.gate_group :] = 0.0
        return super().gates(kept)
