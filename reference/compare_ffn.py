"""The FFN half of a launch on all ranks against the reference: stage by stage, and end to end.

Each stage is judged on what the kernel itself fed to it (regions of that rank, peer regions included), so one
wrong stage gives one wrong verdict. A verdict covers all ranks: its leading axis is the rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..specs.schema import NumericsSpec
from . import attention_back as back
from . import router, seam
from .bounds import Operand, Value
from .experts import Picks
from .ffn import Ffn, FfnCase, FfnOutputs
from .ffn_bounds import FfnBounds, by_token, rows_of, stacked
from .formats import F64
from .formula import terms_of
from .interval import Interval
from .judging import quantised, stored
from .launch import Launch
from .layer_regions import FfnIntermediates, unpack_ffn
from .layer_sizes import LayerOrder, LayerSizes
from .layer_weights import FfnWeights
from .quant import ROUTED
from .router import Routing
from .verdict import Judge, Verdict

Rows = slice  # a rank's rows of one expert (the class has a stage of this name)
Launches = Sequence[Launch]  # one a rank: outputs, regions (with the peer regions attn and ffn), tag


def values_of(parts: Sequence[Value]) -> Value:
    """Values of the ranks, stacked."""
    return Value(torch.stack([p.exact for p in parts]), torch.stack([p.error for p in parts]))


def intervals_of(parts: Sequence[Interval]) -> Interval:
    """Intervals of the ranks, stacked."""
    return Interval(torch.stack([p.lo for p in parts]), torch.stack([p.hi for p in parts]))


class FfnComparison:
    """Verdicts of one launch on all ranks. `pushes` is off where wo_b made the partials (K2)."""

    def __init__(
        self, case: FfnCase, weights: Sequence[FfnWeights], sizes: LayerSizes, order: LayerOrder,
        numerics: Mapping[str, NumericsSpec], launches: Launches, pushes: bool = True,
    ) -> None:  # fmt: skip
        self.case, self.weights, self.sizes, self.order = case, tuple(weights), sizes, order
        self.numerics, self.launches, self.pushes = numerics["ffn"], launches, pushes
        self.terms = terms_of(self.numerics, order.names(sizes), order.gemv)
        self.bounds = tuple(FfnBounds(case.fp8, w, sizes, order, self.terms) for w in weights)

    def _judge(self, stage: str) -> Judge:
        return Judge(self.numerics, stage)

    @property
    def tag(self) -> int:
        """The launch's tag; ranks run in step."""
        return self.launches[0].tag

    @cached_property
    def kernel(self) -> tuple[FfnIntermediates, ...]:
        """Intermediates of every rank."""
        rows, fp8 = self.case.rows, self.case.fp8
        return tuple(unpack_ffn(one.regions, self.sizes, self.order, rows, fp8) for one in self.launches)

    def _each(self, name: str, *inner: str) -> Tensor:
        """A field of every rank's intermediates, stacked."""
        out: list[Any] = list(self.kernel)
        for part in (name, *inner):
            out = [getattr(value, part) for value in out]
        return torch.stack(out)

    def _out(self, name: str) -> Tensor:
        rows, streams, hidden = self.case.rows, self.sizes.streams, self.sizes.hidden
        shapes = {
            "out": (rows, hidden), "res_out": (rows, streams, hidden), "post_out": (rows, streams),
            "comb_out": (rows, streams, streams), "pre_out": (rows, streams),
        }  # fmt: skip
        return torch.stack([one.outputs[name].reshape(shapes[name]) for one in self.launches])

    @cached_property
    def routing(self) -> tuple[Routing, ...]:
        """The kernel's own routes, from the first copy of each rank."""
        return tuple(Routing(k.ids[0].clamp(0, self.sizes.experts - 1), k.weights[0]) for k in self.kernel)

    # -------------------------------------------------------------- seam

    def stages(self) -> list[Verdict]:
        """Every stage, in the order of the kernel."""
        push = self.push() if self.pushes else []
        seam_half = push + self.slice() + self.gate() + self.norm() + self.xq()
        return (
            seam_half + self.router() + self.route() + self.shared() + self.ug() + self.down() + self.reduce()
        )

    def push(self) -> list[Verdict]:
        """The launch's own partials in every peer buffer."""
        judge, got = self._judge("push"), self._each("attn", "value")
        want = self.case.part.reshape(got.shape[1:]).expand_as(got)
        return [
            judge.bits("attn", got, want),
            judge.tags("attn_tags", self._each("attn", "tags"), self.tag),
        ]

    def _folded(self, attn: Tensor) -> Tensor:
        case = self.case
        return seam.fold(case.res_in, back.rank_sum(attn), case.post_in, case.comb_in)

    def slice(self) -> list[Verdict]:
        """Sum of partials, fold, collapse and the slices' projections."""
        judge, residual, last = self._judge("slice"), self._out("res_out"), self.sizes.mix
        folded = torch.stack([self._folded(k.attn.value) for k in self.kernel])
        lin = torch.stack([seam.collapse(r, self.case.pre_in) for r in residual])
        mix = values_of([b.partials(r) for b, r in zip(self.bounds, residual, strict=True)])
        pmix = self._each("pmix", "value")
        return [
            judge.bits("res_out", residual, folded),
            judge.bits("lin", self._each("lin", "value"), lin),
            judge.tags("lin_tags", self._each("lin", "tags"), self.tag),
            judge.bound("pmix", pmix[..., :last], Value(mix.exact[..., :last], mix.error[..., :last])),
            judge.bound("pmix_squares", pmix[..., last], Value(mix.exact[..., last], mix.error[..., last])),
            judge.tags("pmix_tags", self._each("pmix", "tags"), self.tag),
        ]

    def gate(self) -> list[Verdict]:
        """Gates from the kernel's partial projections."""
        judge, ranks = self._judge("gate"), []
        for bounds, kernel in zip(self.bounds, self.kernel, strict=True):
            partial = kernel.pmix.value.to(F64)
            ranks.append(bounds.gates(Value(partial, torch.zeros_like(partial))))
        names = ("pre_out", "post_out", "comb_out")
        return [judge.bound(name, self._out(name), values_of([r[name] for r in ranks])) for name in names]

    def norm(self) -> list[Verdict]:
        """RMSNorm of the kernel's layer input."""
        judge, normed = self._judge("norm"), self._each("normed")
        pairs = zip(self.bounds, self.kernel, self.weights, strict=True)
        y = [b.norm(Interval.point(k.lin.value), w.ffn_w, "norm_rstd") for b, k, w in pairs]
        flags = judge.flags("xrdy_moe", self._each("xrdy"), self.tag)
        return [stored(judge, "normed", normed, intervals_of(y)), flags]

    def xq(self) -> list[Verdict]:
        """Both MXFP8 copies of the kernel's row."""
        judge, y, bounds = self._judge("xq"), Interval.point(self._each("normed")), self.bounds[0]
        copies = {
            name: replace(
                getattr(self.kernel[0], name), data=self._each(name, "data"), codes=self._each(name, "codes")
            )
            for name in ("x8r", "x8")
        }
        return [
            *quantised(judge, bounds, ("x8rs", "x8r"), y, copies["x8r"], ROUTED),
            *quantised(judge, bounds, ("x8s", "x8"), y, copies["x8"]),
            judge.flags("x8rdy", self._each("x8rdy"), self.tag),
        ]

    # -------------------------------------------------------------- routing

    def router(self) -> list[Verdict]:
        """Parts of the logits from the kernel's rows."""
        judge = self._judge("router")
        value = values_of([b.logit_parts(k.normed) for b, k in zip(self.bounds, self.kernel, strict=True)])
        return [
            judge.bound("logit", self._each("logit", "value"), value),
            judge.tags("logit_tags", self._each("logit", "tags"), self.tag),
        ]

    def route(self) -> list[Verdict]:
        """Selection and weights from the kernel's logits."""
        judge, ids = self._judge("route"), self._each("ids")[:, 0]
        scores = [b.scores(k.logit.value) for b, k in zip(self.bounds, self.kernel, strict=True)]
        biased = intervals_of([b.biased(s) for b, s in zip(self.bounds, scores, strict=True)])
        weights = intervals_of(
            [b.routing_weights(s, r.ids) for b, s, r in zip(self.bounds, scores, self.routing, strict=True)]
        )
        ties = torch.stack([self._ties(k, r) for k, r in zip(self.kernel, self.routing, strict=True)])
        copies = torch.stack([torch.cat([k.ids, k.weights.view(torch.int32)], -1) for k in self.kernel])
        value = Value(weights.middle, (weights.hi - weights.lo) / 2)
        return [
            judge.ranked("ids", ids, biased.lo, biased.hi),
            judge.bits("ties", ties, torch.zeros_like(ties)),
            judge.bound("weights", self._each("weights")[:, 0], value),
            judge.bits("copies", copies, copies[:, :1].expand_as(copies)),
            judge.tags("route_tags", self._each("route_tags"), self.tag),
        ]

    def _ties(self, kernel: FfnIntermediates, routing: Routing) -> Tensor:
        """int64 [S, K]: lower ids of equal score that a chosen expert was preferred to."""
        key = torch.stack(
            [router.logits(kernel.logit.value), self.weights[0].bias.expand(self.case.rows, -1)]
        )
        key = torch.where(torch.isnan(key), torch.inf, key)
        ids = routing.ids.to(torch.int64)
        own = key.gather(-1, ids[None].expand(2, -1, -1))
        same = (key[:, :, None] == own[..., None]).all(0)
        lower = torch.arange(self.sizes.experts) < ids[..., None]
        earlier = torch.nn.functional.one_hot(ids, self.sizes.experts).cumsum(1) > 0
        return (same & lower & ~earlier).sum(-1)

    # -------------------------------------------------------------- experts

    def shared(self) -> list[Verdict]:
        """Shared expert: activation from the kernel's rows, MXFP8 of its own activation."""
        judge, smid = self._judge("shared"), self._each("smid", "value")
        ends = [b.smid(Operand.of_blocks(k.x8)) for b, k in zip(self.bounds, self.kernel, strict=True)]
        sm = replace(self.kernel[0].sm, data=self._each("sm", "data"), codes=self._each("sm", "codes"))
        tags = torch.cat([self._each("smq_tags"), self._each("smc_tags")], -1)
        return [
            stored(judge, "smid", smid, intervals_of(ends)),
            judge.tags("smid_tags", self._each("smid", "tags"), self.tag),
            *quantised(judge, self.bounds[0], ("smc", "smq"), Interval.point(smid), sm),
            judge.tags("sm_tags", tags, self.tag),
        ]

    def _slots(self) -> list[tuple[int, list[Rows]]]:
        """Experts picked on any rank, with each rank's rows (empty where a rank did not pick one)."""
        ranks = [dict(Picks(r.ids).slots()) for r in self.routing]
        every = sorted({expert for slots in ranks for expert in slots})
        return [(expert, [slots.get(expert, Rows(0, 0)) for slots in ranks]) for expert in every]

    def ug(self) -> list[Verdict]:
        """Routed gate and up from the kernel's rows and routes."""
        judge, x = self._judge("ug"), [Operand.of_blocks(k.x8r) for k in self.kernel]
        tokens = [Picks(r.ids).token for r in self.routing]
        parts: list[list[Interval]] = [[] for _ in self.kernel]
        for expert, rows in self._slots():
            for rank, own in enumerate(rows):
                if own.stop > own.start:
                    parts[rank].append(self.bounds[rank].up(rows_of(x[rank], tokens[rank][own]), expert))
        h = intervals_of([stacked(p) for p in parts])
        mid = replace(self.kernel[0].mid, data=self._each("mid", "data"), codes=self._each("mid", "codes"))
        flags = torch.cat([k.ugf for k in self.kernel])
        return [
            *quantised(judge, self.bounds[0], ("mids", "mid"), h, mid, ROUTED),
            judge.flags("ugf", flags, self.tag),
        ]

    def down(self) -> list[Verdict]:
        """Routed and shared down, and the combination, as every rank received them."""
        h = [Operand.of_blocks(k.mid) for k in self.kernel]
        parts: list[list[Interval]] = [[] for _ in self.kernel]
        for expert, rows in self._slots():
            for rank, own in enumerate(rows):
                if own.stop > own.start:
                    parts[rank].append(self.bounds[rank].down(rows_of(h[rank], own), expert))
        sums = []
        for rank, kernel in enumerate(self.kernel):
            bounds, routing = self.bounds[rank], self.routing[rank]
            v = by_token(stacked(parts[rank]), Picks(routing.ids), self.sizes)
            shared = bounds.shared_out(Operand.of_blocks(kernel.sm))
            sums.append(bounds.partial(v, Interval.point(routing.weights), shared))
        return self._pushed(intervals_of(sums))

    def _pushed(self, sums: Interval) -> list[Verdict]:
        judge, got = self._judge("down"), self._each("ffn", "value")
        every = Interval(sums.lo.expand(got.shape), sums.hi.expand(got.shape))
        return [stored(judge, "ffn", got, every), judge.tags("ffn_tags", self._each("ffn", "tags"), self.tag)]

    def reduce(self) -> list[Verdict]:
        """The launch's output from the kernel's partials."""
        want = torch.stack([back.rank_sum(k.ffn.value) for k in self.kernel])
        return [self._judge("reduce").bits("out", self._out("out"), want)]

    # -------------------------------------------------------------- end to end

    def end_to_end(self, attn: Tensor | None = None, noise: float = 0.0) -> list[Verdict]:
        """Outputs against the exact form under the kernel's routes.

        `attn` are exact partials [tp, S, D] and `noise` the relative difference they may carry (K2); by
        default they are the launch's own inputs.
        """
        judge, case = self._judge("end_to_end"), self.case
        exact = Ffn(
            case if attn is None else replace(case, part=attn), self.weights, self.sizes, self.order, True
        )
        residual = exact.residual(exact.attn(exact.pushed()))
        lin = exact.lin(residual).to(F64)
        moved = noise * exact.pushed().to(F64).square().sum((0, -1)).sqrt()  # [S]
        share = _over(case.post_in.to(F64) * moved[:, None], residual.to(F64).norm(dim=-1))
        through = (case.pre_in.to(F64) * case.post_in.to(F64)).sum(-1).abs() * moved
        r = _over(through, lin.norm(dim=-1)) + self.terms["bf16_step"]
        return [
            judge.relative("res_out", self._out("res_out"), residual, share + self.terms["bf16_step"]),
            self._routes(judge, exact, lin, r),
            self._output(judge, exact, lin, r),
        ]

    def _routes(self, judge: Judge, exact: Ffn, lin: Tensor, r: Tensor) -> Verdict:
        y, gate_w = exact.normed(lin).to(F64), self.weights[0].gate_w.to(F64)
        spread = (y.square() @ gate_w.square().T).sqrt() * (self.terms["logit_gap"] * r[:, None])
        biased = self.bounds[0].biased(self.bounds[0].scores_of(Value(y @ gate_w.T, spread)))
        ids = self._each("ids")[:, 0]
        low, high = (v.expand(len(self.kernel), -1, -1) for v in (biased.lo, biased.hi))
        return judge.ranked("ids", ids, low, high)

    def _output(self, judge: Judge, exact: Ffn, lin: Tensor, r: Tensor) -> Verdict:
        given = exact_under(exact, lin, self.routing[0].ids)
        size = torch.stack([one.partial for one in given.ranks]).to(F64).square().sum((0, -1)).sqrt()
        t = self.terms
        inner = t["swiglu_gain"] * (r * t["e4m3_step"]).sqrt()
        noise = 2 * ((inner * t["e4m3_step"]).sqrt() + t["bf16_step"])
        budget = _over(noise * size, given.out.to(F64).norm(dim=-1))
        return judge.relative("out", self._out("out"), given.out.expand_as(self._out("out")), budget)


def _over(a: Tensor, b: Tensor) -> Tensor:
    """a / b, 0 where both are 0."""
    return torch.where(a == 0, 0.0, a / b)


def exact_under(exact: Ffn, lin: Tensor, ids: Tensor) -> FfnOutputs:
    """The exact form behind the layer input with the experts given, and their exact weights."""

    class Given(Ffn):
        def lin(self, residual: Tensor) -> Tensor:
            return lin

        def route(self, parts: Tensor) -> Routing:
            scores = router.score_exact(parts.sum(0))
            return Routing(ids, router.weights_of(scores, ids, self.sizes))

    return Given(exact.case, exact.weights, exact.sizes, exact.order, True).run()


def compare_ffn_stages(
    case: FfnCase, weights: Sequence[FfnWeights], sizes: LayerSizes, order: LayerOrder,
    numerics: Mapping[str, NumericsSpec], launches: Launches,
) -> list[Verdict]:  # fmt: skip
    """Verdicts of every stage of the FFN launch from the kernel's own inputs to it."""
    return FfnComparison(case, weights, sizes, order, numerics, launches).stages()


def compare_ffn_end_to_end(
    case: FfnCase, weights: Sequence[FfnWeights], sizes: LayerSizes, order: LayerOrder,
    numerics: Mapping[str, NumericsSpec], launches: Launches,
) -> list[Verdict]:  # fmt: skip
    """Verdicts of the FFN launch's outputs from its inputs alone (and the kernel's routes)."""
    return FfnComparison(case, weights, sizes, order, numerics, launches).end_to_end()
