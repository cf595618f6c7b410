"""Where the results of K2's attention back may lie, from the inputs of each stage (see bounds.py)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from . import attention_back as back
from . import seam
from .attention_back import NEG, Keys, Split
from .bounds import LN2, TINY, Bounds, Operand, Value, rotated
from .formats import F64, FLAVOURS, Fp8
from .interval import Interval
from .k2 import K2Case
from .layer_sizes import LayerOrder, LayerSizes
from .layer_weights import BackWeights, FfnWeights


@dataclass(frozen=True)
class BackBounds(Bounds):
    """Bounds of the attention back on one rank; `terms` are the evaluated terms of the numerics spec."""

    case: K2Case
    weights: BackWeights
    ffn_weights: FfnWeights
    sizes: LayerSizes
    order: LayerOrder
    terms: dict[str, float]

    @property
    def flavour(self) -> Fp8:
        return FLAVOURS[self.case.fp8]

    @property
    def gate(self) -> seam.GateWeights:
        return self.ffn_weights

    # -------------------------------------------------------------- split

    def scores(self, keys: Keys, q: Tensor) -> Value:
        """Base-2 scores [n, H] of one unit; -inf where there is no key."""
        scale = float(back.qk_scale(self.sizes))
        query, k = q.to(F64), keys.values
        exact = back.scores_exact(keys, q, self.sizes)
        error = self.terms["score_sum"] * scale * (k.abs() @ query.abs().T)
        error = error + self.terms["u"] * torch.nan_to_num(exact, neginf=0.0).abs()
        return Value(exact, error * self.terms["second_order"])

    def top(self, s: Value) -> Value:
        """The largest score of a unit [H]; NEG where it has no key."""
        low, high = (s.exact - s.error).amax(0).clamp_min(NEG), (s.exact + s.error).amax(0).clamp_min(NEG)
        return Value((low + high) / 2, (high - low) / 2)

    def weights_of(self, s: Value, top: Tensor) -> Interval:
        """exp2(score - top) of a unit [n, H] under the kernel's top; at most 1, 0 where there is no key."""
        t = self.terms
        x = s.exact - top.to(F64)
        moved = s.error + t["u"] * torch.nan_to_num(x, neginf=0.0).abs()
        low = (torch.exp2(x - moved) * (1 - t["trans"]) - TINY).clamp_min(0.0)
        high = (torch.exp2(x + moved) * (1 + t["trans"]) + TINY).clamp_max(1.0)
        none = torch.isneginf(s.exact)
        return Interval(torch.where(none, 0.0, low), torch.where(none, 0.0, high))

    def total(self, p: Interval) -> Value:
        """Sum of a unit's weights [H]."""
        low, high = (v.sum(0) for v in (p.lo, p.hi))
        return Value((low + high) / 2, (high - low) / 2 + self.terms["key_sum"] * high)

    def values(self, p: Interval, keys: Keys) -> Interval:
        """bf16 sums of values [H, head_dim] under bf16 weights."""
        w, k = p.bf16(), keys.values
        up, down = k.clamp_min(0.0), (-k).clamp_min(0.0)
        low, high = w.lo.T @ up - w.hi.T @ down, w.hi.T @ up - w.lo.T @ down
        error = self.terms["value_sum"] * (w.hi.T @ k.abs()) + TINY
        return Interval(low - error, high + error).bf16()

    # -------------------------------------------------------------- combine

    def combined(self, parts: Split, live: Tensor) -> Interval:
        """bf16 attention output [S, H, head_dim] from a kernel's chunk partials."""
        t, sink = self.terms, self.weights.sink.to(F64) / LN2
        exact = back.combine_exact(parts, self.weights.sink, live)
        m = torch.where(live[..., None], parts.top.to(F64), -torch.inf)
        peak = torch.maximum(m.amax(1), sink)
        apart = torch.nan_to_num(peak[:, None] - m, posinf=0.0)
        w = torch.exp2(m - peak[:, None])
        relative = LN2 * t["u"] * apart + t["trans"]
        spread = w * (relative + t["u"] + t["chunk_sum"])
        bias = torch.exp2(sink - peak)
        bias_error = bias * (LN2 * t["u"] * (sink.abs() + (peak - sink)) + t["trans"] + t["chunk_sum"])
        sums = torch.where(live[..., None], parts.total.to(F64), 0.0)
        values = torch.where(live[..., None, None], parts.part.to(F64), 0.0).abs()
        total, total_error = bias + (w * sums).sum(1), bias_error + (spread * sums).sum(1) + TINY
        error = torch.einsum("tch,tchd->thd", spread + TINY, values)
        both = (error + exact.abs() * total_error[..., None]) / total[..., None] + t["quotient"] * exact.abs()
        return Interval.around(exact, both * t["second_order"]).bf16()

    def rotated_back(self, o: Interval) -> Interval:
        """Inverse rotation [S, H * head_dim], float32 values."""
        half, nope = self.sizes.rope // 2, self.sizes.nope
        table = self.case.cos_sin[self.case.pos]
        tail = rotated(o[..., nope:], table[:, :half], -table[:, half:])
        ends = ((o.lo, tail.lo), (o.hi, tail.hi))
        low, high = (torch.cat([v[..., :nope], r], -1).flatten(1) for v, r in ends)
        return Interval(low, high)

    # -------------------------------------------------------------- projections

    def z(self, x: Operand) -> Interval:
        """bf16 rows of wo_a [S, o_rows]."""
        w, magnitudes, size = self.weights.values("woa"), self.weights.magnitudes("woa"), self.sizes
        parts = []
        for g in range(size.groups):
            at, rows = (
                slice(g * size.group_k, (g + 1) * size.group_k),
                slice(g * size.o_rank, (g + 1) * size.o_rank),
            )
            own = Operand(x.values[:, at], x.magnitude[:, at])
            parts.append(self.gemv(own, w[rows], magnitudes[rows], self.terms["woa_sum"]))
        return Interval(torch.cat([p.lo for p in parts], -1), torch.cat([p.hi for p in parts], -1)).bf16()

    def part(self, x: Operand) -> Interval:
        """bf16 rows of wo_b [S, D]."""
        w, magnitudes = self.weights.values("wob"), self.weights.magnitudes("wob")
        return self.gemv(x, w, magnitudes, self.terms["wob_sum"]).bf16()
