"""Where the results of the FFN half may lie, from the inputs of each stage (see bounds.py)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from . import router, seam
from .bounds import TINY, Bounds, Operand, Value
from .experts import Picks, of_tokens
from .formats import F64, FLAVOURS, Fp8
from .interval import Interval
from .layer_sizes import LayerOrder, LayerSizes
from .layer_weights import FfnWeights

SILU_MINIMUM = -1.2784645427610738  # where silu is smallest


def silu_range(g: Interval) -> Interval:
    """silu over intervals: it falls up to its minimum and rises behind it."""
    low, high = (torch.nn.functional.silu(v) for v in (g.lo, g.hi))
    inside = (g.lo < SILU_MINIMUM) & (g.hi > SILU_MINIMUM)
    bottom = torch.nn.functional.silu(torch.tensor(SILU_MINIMUM, dtype=F64))
    return Interval(torch.where(inside, bottom, torch.minimum(low, high)), torch.maximum(low, high))


@dataclass(frozen=True)
class FfnBounds(Bounds):
    """Bounds of the FFN half on one rank; `terms` are the evaluated terms of the numerics spec."""

    fp8: str
    weights: FfnWeights
    sizes: LayerSizes
    order: LayerOrder
    terms: dict[str, float]

    @property
    def flavour(self) -> Fp8:
        return FLAVOURS[self.fp8]

    @property
    def gate(self) -> seam.GateWeights:
        return self.weights

    # -------------------------------------------------------------- router

    def logit_parts(self, normed: Tensor) -> Value:
        """Parts of the logits [parts, S, E]."""
        exact, magnitude = router.logit_parts_exact(normed, self.weights.gate_w, self.order)
        return Value(exact, magnitude * self.terms["router_sum"])

    def scores(self, parts: Tensor) -> Interval:
        """Unbiased scores [S, E] from a kernel's parts of the logits."""
        t, wide = self.terms, parts.to(F64)
        x, error = wide.sum(0), t["part_sum"] * wide.abs().sum(0)
        return self.scores_of(Value(x, error))

    def scores_of(self, logits: Value) -> Interval:
        """Unbiased scores from logits that are known to an error."""
        t, x = self.terms, logits.exact
        soft = router.score_exact(x).square()
        ex = torch.sigmoid(x)
        error = (
            ex * (logits.error + t["score_argument"] * x.abs() + t["trans"]) + t["u"] + t["score_log"] * soft
        )
        error = torch.where(x > router.THRESHOLD + logits.error, logits.error, error) * t["second_order"]
        low, high = (soft - error).clamp_min(0.0).sqrt(), (soft + error).sqrt()
        return Interval(low * (1 - t["score_root"]), high * (1 + t["score_root"]))

    def biased(self, scores: Interval) -> Interval:
        """Scores that selection compares."""
        bias = self.weights.bias.to(F64)
        low, high = scores.lo + bias, scores.hi + bias
        return Interval(low - self.terms["u"] * low.abs(), high + self.terms["u"] * high.abs())

    def routing_weights(self, scores: Interval, ids: Tensor) -> Interval:
        """Weights [S, K] of given experts."""
        at = ids.to(torch.int64)
        low, high = (torch.nan_to_num(v, nan=0.0).gather(-1, at) for v in (scores.lo, scores.hi))
        rest_low, rest_high = low.sum(-1, keepdim=True) - low, high.sum(-1, keepdim=True) - high
        scale = self.sizes.routed_scale
        least = scale * low / (low + rest_high).clamp_min(router.FLOOR)
        most = scale * high / (high + rest_low).clamp_min(router.FLOOR)
        return Interval(least, most).widened(self.terms["weight_products"])

    # -------------------------------------------------------------- shared expert

    def smid(self, x: Operand) -> Interval:
        """The shared expert's activation [S, I], bf16 values."""
        t, limit = self.terms, self.sizes.limit
        w, magnitudes = self.weights.values("sgu"), self.weights.magnitudes("sgu")
        both = self.gemv(x, w, magnitudes, t["shared_up_sum"]).bf16()
        width = self.sizes.shared_inter
        g = both[:, :width].map(lambda v: v.clamp_max(limit))
        u = both[:, width:].map(lambda v: v.clamp(-limit, limit))
        s, closed = silu_range(g), torch.sigmoid(-g.lo)
        relative = t["second_order"] * (closed * t["accurate_exp"] + t["silu_quotient"])
        silu = Interval(s.lo - relative * s.lo.abs() - TINY, s.hi + relative * s.hi.abs() + TINY).bf16()
        return silu.times(u).bf16()

    def shared_out(self, sm: Operand) -> Interval:
        """The shared expert's partial [S, D], bf16 values."""
        w, magnitudes = self.weights.values("sw2"), self.weights.magnitudes("sw2")
        return self.gemv(sm, w, magnitudes, self.terms["shared_down_sum"]).bf16()

    # -------------------------------------------------------------- routed experts

    def activation(self, gate: Interval, up: Interval) -> Interval:
        """bf16 (silu(min(gate, limit)) * clamp(up))."""
        t, limit = self.terms, self.sizes.limit
        g = gate.map(lambda v: v.clamp_max(limit))
        u = up.map(lambda v: v.clamp(-limit, limit))
        s, closed = silu_range(g), torch.sigmoid(-g.lo)
        argument = t["sigmoid_argument"] * g.largest + t["trans"]
        relative = t["second_order"] * (closed * argument + t["swiglu_products"])
        flushed = TINY * (1 + g.largest)
        silu = Interval(s.lo - relative * s.lo.abs() - flushed, s.hi + relative * s.hi.abs() + flushed)
        return silu.times(u).bf16()

    def up(self, x: Operand, expert: int) -> Interval:
        """Activations [n, I] of one expert's picks."""
        weights = self.weights.experts.expert(expert)
        y = self.gemv(x, weights.up_values(), weights.up_magnitudes(), self.terms["up_sum"])
        return self.activation(y[:, : self.sizes.inter], y[:, self.sizes.inter :])

    def down(self, h: Operand, expert: int) -> Interval:
        """Results [n, D] of one expert's picks, float32."""
        weights = self.weights.experts.expert(expert)
        return self.gemv(h, weights.down_values(), weights.down_magnitudes(), self.terms["down_sum"])

    def partial(self, v: Interval, weights: Interval, shared: Interval) -> Interval:
        """bf16 [S, D] from picks' results [S, K, D], their weights [S, K] and the shared expert's."""
        zero = torch.zeros_like(v.lo[:, 0])
        acc = Interval(zero, zero.clone())
        for k in range(v.lo.shape[1]):
            term = v[:, k].times(weights[:, k, None]).widened(self.terms["u"]).bf16()
            acc = _plus(acc, term, self.terms["u"])
        return _plus(acc, shared, self.terms["u"])


def _plus(a: Interval, b: Interval, unit: float) -> Interval:
    """bf16 of a float32 sum."""
    return Interval(a.lo + b.lo, a.hi + b.hi).widened(unit).bf16()


def rows_of(x: Operand, rows: Tensor | slice) -> Operand:
    """An operand's rows."""
    return Operand(x.values[rows], x.magnitude[rows])


def by_token(rows: Interval, picks: Picks, sizes: LayerSizes) -> Interval:
    """Rows of picks as [S, K, D]."""
    return Interval(of_tokens(rows.lo, picks, sizes), of_tokens(rows.hi, picks, sizes))


def stacked(parts: list[Interval]) -> Interval:
    """Intervals of slots one after another."""
    return Interval(torch.cat([p.lo for p in parts]), torch.cat([p.hi for p in parts]))
