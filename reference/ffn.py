"""The FFN half on all ranks of a group, in either form: what K2 does from wo_b on, and the FFN launch does.

Seam, router and selection are the same numbers on every rank (their input is the same sum), so they are
evaluated once; experts, the shared expert and partials have one result a rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from . import attention_back as back
from . import experts, front, router, seam, shared
from .experts import Picks
from .formats import F32, F64, FLAVOURS, Fp8, bf16, products
from .layer_sizes import LayerOrder, LayerSizes
from .layer_weights import FfnWeights
from .quant import Blocks, mxfp8, mxfp8_routed
from .router import Routing

BF16 = torch.bfloat16


@dataclass(frozen=True)
class FfnCase:
    """Inputs of one FFN launch, the same on every rank but for `part`; S rows, hidden D, streams C."""

    rows: int
    tp: int
    fp8: str
    seed: int
    part: Tensor  # bf16 [tp, S, D]: every rank's unreduced wo_b output
    res_in: Tensor  # bf16 [S, C, D]: residual after the attention seam
    post_in: Tensor  # f32 [S, C]
    comb_in: Tensor  # f32 [S, C, C], [source][target]
    pre_in: Tensor  # f32 [S, C]

    def arguments(self, rank: int) -> dict[str, Tensor]:
        """Launch-argument name -> tensor of a rank."""
        shared_names = ("res_in", "post_in", "comb_in", "pre_in")
        return {"part": self.part[rank]} | {name: getattr(self, name) for name in shared_names}


@dataclass(frozen=True)
class RankFfn:
    """What the stages of one rank hand on (float64 where the form is exact)."""

    smid: Tensor  # bf16 values [S, I]: the shared expert's activation
    sm: Blocks  # [S, I]
    mid: Blocks  # [n, I]: routed activations, a row a pick
    partial: Tensor  # bf16 [S, D]


@dataclass(frozen=True)
class FfnOutputs:
    """Outputs of a launch, and what its stages hand to each other."""

    out: Tensor  # bf16 [S, D]
    res_out: Tensor  # bf16 [S, C, D]
    post_out: Tensor  # f32 [S, C]
    comb_out: Tensor  # f32 [S, C, C]
    pre_out: Tensor  # f32 [S, C]
    attn: Tensor  # bf16 [tp, S, D]: partials as pushed
    lin: Tensor  # bf16 [S, D]
    pmix: Tensor  # f32 [slices, S, mix + 1]
    normed: Tensor  # bf16 [S, D]
    x8r: Blocks  # [S, D]
    x8: Blocks  # [S, D]
    logit: Tensor  # f32 [parts, S, E]
    routing: Routing
    ranks: tuple[RankFfn, ...]

    def tensors(self) -> dict[str, Tensor]:
        """Launch-argument name -> output tensor."""
        return {name: getattr(self, name) for name in ("out", "res_out", "post_out", "comb_out", "pre_out")}


class Ffn:
    """One evaluation, a method a stage; a subclass that replaces a stage models a kernel that does."""

    def __init__(
        self,
        case: FfnCase,
        weights: Sequence[FfnWeights],
        sizes: LayerSizes,
        order: LayerOrder | None = None,
        exact: bool = False,
    ) -> None:
        self.case, self.weights, self.sizes, self.exact = case, tuple(weights), sizes, exact
        self.order = order or LayerOrder()
        self.flavour: Fp8 = FLAVOURS[case.fp8]

    # -------------------------------------------------------------- seam

    def attn(self, parts: Tensor) -> Tensor:
        """2.1: bf16 [S, D], the attention output."""
        return back.rank_sum_exact(parts) if self.exact else back.rank_sum(parts)

    def residual(self, attn: Tensor) -> Tensor:
        """2.2: bf16 [S, C, D]."""
        case = self.case
        return seam.residual_of(case.res_in, attn, case.post_in, case.comb_in, True, self.exact)

    def lin(self, residual: Tensor) -> Tensor:
        """2.2: bf16 [S, D]."""
        pre = self.case.pre_in
        if self.exact:
            return bf16(seam.collapse_exact(residual, pre)).to(BF16)
        return seam.collapse(residual, pre)

    def pmix(self, residual: Tensor) -> Tensor:
        """2.2: [slices, S, mix + 1]."""
        fn = self.weights[0].hc_fn
        if self.exact:
            return seam.partials_exact(residual, fn, self.order)[0]
        return seam.partials(residual, fn, self.order)

    def gates(self, pmix: Tensor) -> seam.Gates:
        """2.2: gates for the next layer's seam."""
        if self.exact:
            return seam.gates_exact(pmix.sum(0), self.weights[0], self.sizes)
        return seam.gates(pmix, self.weights[0], self.sizes, self.order)

    def normed(self, lin: Tensor) -> Tensor:
        """2.2: bf16 [S, D]."""
        eps, weight = self.sizes.eps, self.weights[0].ffn_w
        if self.exact:
            return bf16(front.norm_exact(lin, weight, eps)).to(BF16)
        return front.scaled(lin, front.layer_norm_rstd(lin, eps, self.order), weight)

    # -------------------------------------------------------------- quantisers, router

    def x8r(self, normed: Tensor) -> Blocks:
        """2.3: MXFP8 for the routed experts."""
        return mxfp8_routed(normed, self.sizes.group, self.flavour)

    def x8(self, normed: Tensor) -> Blocks:
        """2.3: MXFP8 for the shared expert."""
        return mxfp8(normed, self.sizes.group, self.flavour)

    def logit(self, normed: Tensor) -> Tensor:
        """3.1: parts of the logits [parts, S, E]."""
        gate_w = self.weights[0].gate_w
        if self.exact:
            return router.logit_parts_exact(normed, gate_w, self.order)[0]
        return router.logit_parts(normed, gate_w, self.order)

    def route(self, parts: Tensor) -> Routing:
        """3.2: experts and weights."""
        total = parts.sum(0) if self.exact else router.logits(parts)
        return router.select(total, self.weights[0].bias, self.sizes, self.exact)

    # -------------------------------------------------------------- experts of a rank

    def smid(self, rank: int, x8: Blocks) -> Tensor:
        """5: the shared expert's activation, bf16 [S, I]."""
        x, w, limit = x8.values(), self.weights[rank].values("sgu"), self.sizes.limit
        if self.exact:
            gate, up = bf16(x @ w.T).chunk(2, -1)
            return shared.activation_exact(gate, up, limit).to(BF16)
        gate, up = shared.gemv(x, w, self.order).to(BF16).chunk(2, -1)
        return shared.activation(gate, up, limit)

    def sm(self, smid: Tensor) -> Blocks:
        """5: its MXFP8."""
        return mxfp8(smid, self.sizes.group, self.flavour)

    def shared_down(self, rank: int, sm: Blocks) -> Tensor:
        """5: the shared expert's partial, bf16 [S, D]."""
        h, w = sm.values(), self.weights[rank].values("sw2")
        return (bf16(h @ w.T) if self.exact else shared.gemv(h, w, self.order)).to(BF16)

    def up(self, rank: int, expert: int, x: Tensor) -> Tensor:
        """4.3: gate and up [n, 2 I] of the picks of one expert, from dequantised rows [n, D]."""
        w = self.weights[rank].experts.expert(expert).up_values()
        return products(x, w) if self.exact else experts.up_gemv(x, w, self.order)

    def activation(self, gate: Tensor, up: Tensor) -> Tensor:
        """4.4 before the requantisation: bf16 [n, I]."""
        if self.exact:
            return bf16(experts.activation_exact(gate, up, self.sizes.limit)).to(BF16)
        return experts.activation(gate, up, self.sizes.limit)

    def mids(self, x8r: Blocks, routing: Routing) -> tuple[Blocks, ...]:
        """4.3, 4.4: MXFP8 activations of every rank, a row a pick; an expert is fetched once."""
        picks, x = Picks(routing.ids), x8r.values()
        rows = torch.empty(len(self.weights), len(picks.order), self.sizes.inter, dtype=BF16)
        for expert, own in picks.slots():
            for rank in range(len(self.weights)):
                gate, up = self.up(rank, expert, x[picks.token[own]]).chunk(2, -1)
                rows[rank, own] = self.activation(gate, up)
        return tuple(self.mid(done) for done in rows)

    def mid(self, h: Tensor) -> Blocks:
        """4.4: MXFP8 of the activations."""
        return mxfp8_routed(h, self.sizes.group, self.flavour)

    def down(self, rank: int, expert: int, h: Tensor) -> Tensor:
        """4.5: [n, D] of the picks of one expert, from dequantised rows [n, I]."""
        w = self.weights[rank].experts.expert(expert).down_values()
        return products(h, w) if self.exact else experts.down_gemv(h, w, self.order)

    def downs(self, mids: Sequence[Blocks], routing: Routing) -> tuple[Tensor, ...]:
        """4.5: [S, K, D] of every rank, in selection order."""
        picks, h = Picks(routing.ids), [mid.values() for mid in mids]
        # Results go into one tensor made beforehand: small ones kept between an expert's large temporaries
        # would leave holes that the next expert does not fit in, and memory would grow by gigabytes.
        dtype = F64 if self.exact else F32
        rows = torch.empty(len(mids), len(picks.order), self.sizes.hidden, dtype=dtype)
        for expert, own in picks.slots():
            for rank in range(len(mids)):
                rows[rank, own] = self.down(rank, expert, h[rank][own])
        return tuple(experts.of_tokens(done, picks, self.sizes) for done in rows)

    def partial(self, v: Tensor, routing: Routing, shared_out: Tensor) -> Tensor:
        """6.1: a rank's bf16 [S, D] from its picks' results [S, K, D] and its shared expert's."""
        combine = experts.combine_exact if self.exact else experts.combine
        return combine(v, routing.weights, shared_out)

    def out(self, partials: Tensor) -> Tensor:
        """6.2: bf16 [S, D]."""
        return back.rank_sum_exact(partials) if self.exact else back.rank_sum(partials)

    # -------------------------------------------------------------- all of it

    def pushed(self) -> Tensor:
        """Every rank's attention partial as all ranks receive it, bf16 [tp, S, D]."""
        return self.case.part

    def experts(self, x8r: Blocks, x8: Blocks, routing: Routing) -> tuple[RankFfn, ...]:
        """The experts of every rank."""
        smids = [self.smid(rank, x8) for rank in range(self.case.tp)]
        sms, mids = [self.sm(smid) for smid in smids], self.mids(x8r, routing)
        downs = self.downs(mids, routing)
        out = []
        for rank, (smid, sm, mid, v) in enumerate(zip(smids, sms, mids, downs, strict=True)):
            out.append(RankFfn(smid, sm, mid, self.partial(v, routing, self.shared_down(rank, sm))))
        return tuple(out)

    def routes(self) -> Routing:
        """The step's experts and their weights alone: everything up to the selection."""
        normed = self.normed(self.lin(self.residual(self.attn(self.pushed()))))
        return self.route(self.logit(normed))

    def run(self) -> FfnOutputs:
        """All stages on all ranks."""
        attn = self.pushed()
        residual = self.residual(self.attn(attn))
        lin, pmix = self.lin(residual), self.pmix(residual)
        gates, normed = self.gates(pmix), self.normed(lin)
        x8r, x8, logit = self.x8r(normed), self.x8(normed), self.logit(normed)
        routing = self.route(logit)
        ranks = self.experts(x8r, x8, routing)
        return FfnOutputs(
            out=self.out(torch.stack([r.partial for r in ranks])), res_out=residual, post_out=gates.post,
            comb_out=gates.comb, pre_out=gates.pre, attn=attn, lin=lin, pmix=pmix, normed=normed, x8r=x8r,
            x8=x8, logit=logit, routing=routing, ranks=ranks,
        )  # fmt: skip


def ffn_outputs(
    case: FfnCase,
    weights: Sequence[FfnWeights],
    sizes: LayerSizes,
    order: LayerOrder | None = None,
    form: str = "promised",
) -> FfnOutputs:
    """Evaluate the FFN launch on all ranks; `weights` has one entry a rank."""
    return Ffn(case, weights, sizes, order, form == "exact").run()


__all__ = ["Ffn", "FfnCase", "FfnOutputs", "RankFfn", "ffn_outputs"]
