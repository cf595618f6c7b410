"""All of K1 on one rank, in either form: `exact` (float64) or `promised` (float32 in the stated order).

Both forms round where a data format is crossed (bf16 tensors, MXFP8, records) and nowhere else in the exact
form. Outputs carry the launch arguments' names, intermediates the names of the scratch regions.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor

from . import f32, front, seam
from .case import K1Case
from .formats import F32, F64, FLAVOURS, Fp8, bf16
from .quant import Blocks, mxfp8, record_blocks
from .sizes import K1Sizes, SumOrder
from .weights import K1Weights

Form = Literal["exact", "promised"]
BF16 = torch.bfloat16


@dataclass(frozen=True)
class K1Outputs:
    """Outputs of a launch, and what its stages hand to each other (float64 where the form is exact)."""

    res_out: Tensor  # bf16 [S, C, D]
    post_out: Tensor  # f32 [S, C]
    comb_out: Tensor  # f32 [S, C, C]
    pre_out: Tensor  # f32 [S, C]
    q: Tensor  # bf16 [S, H, head_dim]
    swa: Tensor  # uint8 [cache bytes], after the launch
    kt: Tensor | None  # int32 [S, keys]; None in index builds, which leave it alone
    klen: Tensor | None  # int32 [2 S]
    normed_out: Tensor | None  # bf16 [S, D]; index builds only
    qr_out: Tensor | None  # bf16 [S, q_rank]; index builds only
    lin: Tensor  # bf16 [S, D]
    pmix: Tensor  # f32 [slices, S, mix + 1]
    x8: Blocks  # [S, D]
    qkvp: Tensor  # f32 [halves, S, q_rank + kv_dim]
    qx8: Blocks  # [S, q_rank]

    def tensors(self) -> dict[str, Tensor]:
        """Launch-argument name -> output tensor (no intermediates)."""
        names = [f.name for f in fields(self)][:10]
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


class K1:
    """One evaluation, a method a stage. A subclass that replaces a stage models a kernel that
    computes it otherwise.

    `order` names the GEMV strategy and the summation splits; the exact form only takes its slice and half
    boundaries from it. The byte format of MXFP8 and records is the case's `fp8`.
    """

    def __init__(
        self,
        case: K1Case,
        weights: K1Weights,
        sizes: K1Sizes,
        order: SumOrder | None = None,
        exact: bool = False,
    ) -> None:
        self.case, self.weights, self.sizes, self.exact = case, weights, sizes, exact
        self.order = order or SumOrder()
        self.flavour: Fp8 = FLAVOURS[case.fp8]
        self.dtype = F64 if exact else F32

    # -------------------------------------------------------------- seam

    def residual(self) -> Tensor:
        """3.1: bf16 [S, C, D]."""
        case = self.case
        return seam.residual_of(case.res_in, case.pend, case.post_in, case.comb_in, case.fold, self.exact)

    def lin(self, residual: Tensor) -> Tensor:
        """3.2: bf16 [S, D]."""
        pre = self.case.pre_in
        return (
            bf16(seam.collapse_exact(residual, pre)).to(BF16) if self.exact else seam.collapse(residual, pre)
        )

    def pmix(self, residual: Tensor) -> Tensor:
        """3.3, the slices' share: [slices, S, mix + 1]."""
        if self.exact:
            return seam.partials_exact(residual, self.weights.hc_fn, self.order)[0]
        return seam.partials(residual, self.weights.hc_fn, self.order)

    def gates(self, pmix: Tensor) -> seam.Gates:
        """3.3, the rest."""
        if self.exact:
            return seam.gates_exact(pmix.sum(0), self.weights, self.sizes)
        return seam.gates(pmix, self.weights, self.sizes, self.order)

    # -------------------------------------------------------------- norms and quantisers

    def normed(self, lin: Tensor) -> Tensor:
        """3.4: bf16 [S, D]."""
        eps = self.sizes.eps
        if self.exact:
            return bf16(front.norm_exact(lin, self.weights.attn_w, eps)).to(BF16)
        return front.scaled(lin, front.layer_norm_rstd(lin, eps, self.order), self.weights.attn_w)

    def lora_norm(self, value: Tensor, weight: Tensor, vector: int) -> Tensor:
        """3.6 and 3.7: bf16 RMSNorm in the front's form; a thread owns `vector` neighbouring columns."""
        eps = self.sizes.eps
        if self.exact:
            return bf16(front.norm_exact(value, weight, eps)).to(BF16)
        return front.scaled(value, front.lora_norm_rstd(value, eps, self.order, vector), weight)

    def x8(self, normed: Tensor) -> Blocks:
        """3.4, the MXFP8 of the layer input."""
        return mxfp8(normed, self.sizes.group, self.flavour)

    def qx8(self, qn: Tensor) -> Blocks:
        """3.6, the MXFP8 of the query latent."""
        return mxfp8(qn, self.sizes.group, self.flavour)

    # -------------------------------------------------------------- GEMVs

    def qkvp(self, x8: Blocks) -> Tensor:
        """3.5: partials of the K halves [halves, S, q_rank + kv_dim]."""
        x, w, halves = x8.values(), self.weights.wqkv_values, self.order.k_halves
        if not self.exact:
            return front.wqkv_parts(x, w, self.order)
        parts = zip(x.chunk(halves, -1), w.chunk(halves, -1), strict=True)
        return torch.stack([xs @ ws.T for xs, ws in parts])

    def qkv(self, parts: Tensor) -> Tensor:
        """3.5, the consumer's sum: bf16 [S, q_rank + kv_dim]."""
        return bf16(parts.sum(0)).to(BF16) if self.exact else f32.ordered_sum(parts, 0).to(BF16)

    def wqb(self, qx8: Blocks) -> Tensor:
        """3.9 before the rotation: bf16 [S, H, head_dim]."""
        x, w = qx8.values(), self.weights.wqb_values
        u = bf16(x @ w.T).to(BF16) if self.exact else front.gemv_part(x, w, self.order).to(BF16)
        return torch.unflatten(u, -1, (self.sizes.heads, self.sizes.head_dim))

    # -------------------------------------------------------------- rotation, record, keys

    def turned(self, value: Tensor) -> Tensor:
        """bf16 [S, ..., head_dim] with the last dims rotated (3.7, 3.9)."""
        shape = (value.shape[0], *[1] * (value.dim() - 2), -1)
        cos, sin = (v.to(self.dtype).reshape(shape) for v in front.cos_sin_of(self.case, self.sizes))
        tail = front.rotate_tail(value.to(self.dtype), cos, sin, self.sizes.nope)
        return bf16(tail).to(BF16)

    def record(self, kn: Tensor) -> tuple[Tensor, Tensor]:
        """3.7: values and scale words of every row's record."""
        sizes, turned = self.sizes, self.turned(kn)
        nope = record_blocks(turned[:, : sizes.nope], sizes.record_group, self.flavour)
        return front.record_bytes(nope, turned[:, sizes.nope :], sizes)

    def cache(self, data: Tensor, scales: Tensor) -> Tensor:
        """The cache after the launch."""
        return front.write_records(self.case, self.sizes, data, scales)

    def keys(self) -> tuple[Tensor, Tensor]:
        """3.8: kt and klen."""
        return front.key_table(self.case, self.sizes)

    def run(self) -> K1Outputs:
        """All stages."""
        sizes, weights, index = self.sizes, self.weights, self.case.index
        residual = self.residual()
        lin, pmix = self.lin(residual), self.pmix(residual)
        gates, normed = self.gates(pmix), self.normed(lin)
        x8 = self.x8(normed)
        qkvp = self.qkvp(x8)
        qkv = self.qkv(qkvp)
        qn = self.lora_norm(qkv[:, : sizes.q_rank], weights.qn_w, self.order.norm_vector)
        kn = self.lora_norm(qkv[:, sizes.q_rank :], weights.kvn_w, 2)
        qx8 = self.qx8(qn)
        kt, klen = (None, None) if index else self.keys()
        return K1Outputs(
            res_out=residual, post_out=gates.post, comb_out=gates.comb, pre_out=gates.pre,
            q=self.turned(self.wqb(qx8)), swa=self.cache(*self.record(kn)), kt=kt, klen=klen,
            normed_out=normed if index else None, qr_out=qn if index else None,
            lin=lin, pmix=pmix, x8=x8, qkvp=qkvp, qx8=qx8,
        )  # fmt: skip


def k1_outputs(
    case: K1Case, weights: K1Weights, sizes: K1Sizes, order: SumOrder | None = None, form: Form = "promised"
) -> K1Outputs:
    """Evaluate K1 for `case`: `promised` in the kernels' rounding order, `exact` in float64."""
    return K1(case, weights, sizes, order, form == "exact").run()
