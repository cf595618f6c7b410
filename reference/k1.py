"""All of K1 on one rank, in either form: `exact` (float64) or `promised` (float32 in the stated order).

Both forms round where a data format is crossed (bf16 tensors, MXFP8, records) and nowhere else in the exact
form. Outputs carry the launch arguments' names, intermediates the names of the scratch regions.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import torch
from torch import Tensor

from flymono.reference import front, seam
from flymono.reference.case import K1Case
from flymono.reference.formats import F32, F64, FLAVOURS, Fp8, bf16
from flymono.reference.quant import Blocks, mxfp8, record_blocks
from flymono.reference.sizes import K1Sizes, SumOrder
from flymono.reference.weights import K1Weights

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


@dataclass(frozen=True)
class _Run:
    """What every stage of one evaluation needs."""

    case: K1Case
    weights: K1Weights
    sizes: K1Sizes
    order: SumOrder
    flavour: Fp8
    exact: bool

    def norm(self, x: Tensor, weight: Tensor, kind: str) -> Tensor:
        """bf16 RMSNorm of rows; `kind` is lin, q or kv (they sum in different orders)."""
        if self.exact:
            return bf16(front.norm_exact(x, weight, self.sizes.eps)).to(BF16)
        if kind == "lin":
            rstd = front.layer_norm_rstd(x, self.sizes.eps, self.order)
        else:
            vector = self.order.norm_vector if kind == "q" else 2
            rstd = front.lora_norm_rstd(x, self.sizes.eps, self.order, vector)
        return front.scaled(x, rstd, weight)


def _seam(run: _Run) -> tuple[Tensor, Tensor, Tensor, seam.Gates]:
    case, order = run.case, run.order
    residual = seam.residual_of(case.res_in, case.pend, case.post_in, case.comb_in, case.fold, run.exact)
    if run.exact:
        lin = bf16(seam.collapse_exact(residual, case.pre_in)).to(BF16)
        pmix, _ = seam.partials_exact(residual, run.weights.hc_fn, order)
        return residual, lin, pmix, seam.gates_exact(pmix.sum(0), run.weights, run.sizes)
    lin = seam.collapse(residual, case.pre_in)
    pmix = seam.partials(residual, run.weights.hc_fn, order)
    return residual, lin, pmix, seam.gates(pmix, run.weights, run.sizes, order)


def _wqkv(run: _Run, x8: Blocks) -> tuple[Tensor, Tensor]:
    """Partials of the K halves, and the bf16 rows that the norms read."""
    x, w = x8.values(), run.weights.wqkv_values
    if run.exact:
        parts = torch.stack([xs @ ws.T for xs, ws in zip(x.chunk(2, -1), w.chunk(2, -1), strict=True)])
        return parts, bf16(parts.sum(0)).to(BF16)
    parts = front.wqkv_parts(x, w, run.order)
    return parts, (parts[0] + parts[1]).to(BF16)


def _record(run: _Run, kv: Tensor) -> Tensor:
    """The cache after the records of this step are in it."""
    sizes, dtype = run.sizes, F64 if run.exact else F32
    cos, sin = front.cos_sin_of(run.case, sizes)
    kn = run.norm(kv, run.weights.kvn_w, "kv")
    turned = front.rotate_tail(kn.to(dtype), cos.to(dtype), sin.to(dtype), sizes.nope)
    nope = record_blocks(turned[:, : sizes.nope], sizes.record_group, run.flavour)
    data, scales = front.record_bytes(nope, bf16(turned[:, sizes.nope :]), sizes)
    return front.write_records(run.case, sizes, data, scales)


def _query(run: _Run, qx8: Blocks) -> Tensor:
    """wq_b, its bf16 rounding, RoPE, and the second rounding."""
    sizes, dtype = run.sizes, F64 if run.exact else F32
    x, w = qx8.values(), run.weights.wqb_values
    u = bf16(x @ w.T) if run.exact else front.gemv_part(x, w, run.order).to(BF16)
    heads = u.to(dtype).unflatten(-1, (sizes.heads, sizes.head_dim))
    cos, sin = (v.to(dtype)[:, None] for v in front.cos_sin_of(run.case, sizes))
    return bf16(front.rotate_tail(heads, cos, sin, sizes.nope)).to(BF16)


def k1_outputs(
    case: K1Case, weights: K1Weights, sizes: K1Sizes, order: SumOrder | None = None, form: Form = "promised"
) -> K1Outputs:
    """Evaluate K1 for `case`.

    `order` names the GEMV strategy and the summation splits; the exact form only takes its slice and half
    boundaries from it. The byte format of MXFP8 and records is the case's `fp8`.
    """
    run = _Run(case, weights, sizes, order or SumOrder(), FLAVOURS[case.fp8], form == "exact")
    residual, lin, pmix, gates = _seam(run)
    normed = run.norm(lin, weights.attn_w, "lin")
    x8 = mxfp8(normed, sizes.group, run.flavour)
    parts, qkv = _wqkv(run, x8)
    qn = run.norm(qkv[:, : sizes.q_rank], weights.qn_w, "q")
    qx8 = mxfp8(qn, sizes.group, run.flavour)
    kt, klen = (None, None) if case.index else front.key_table(case, sizes)
    return K1Outputs(
        res_out=residual, post_out=gates.post, comb_out=gates.comb, pre_out=gates.pre,
        q=_query(run, qx8), swa=_record(run, qkv[:, sizes.q_rank :]), kt=kt, klen=klen,
        normed_out=normed if case.index else None, qr_out=qn if case.index else None,
        lin=lin, pmix=pmix, x8=x8, qkvp=parts, qx8=qx8,
    )  # fmt: skip
