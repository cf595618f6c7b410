"""Where each stage's results may lie: exact values and the error terms of specs/numerics applied to them.

Invariants
 - Inputs are intervals. Stage by stage they are points (the kernel's own numbers); end to end the results of
   one stage are the inputs of the next, through the same functions.
 - Nothing here looks at a kernel's result, and no number is a literal: scalars come from `terms`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import log

import torch
from torch import Tensor

from . import front, seam
from .case import K1Case
from .formats import F32, F64, FLAVOURS, Fp8, decode, f32, pow2, products
from .interval import Interval
from .quant import MXFP8, Blocks, CodeRule, quantise_with
from .sizes import K1Sizes, SumOrder
from .weights import K1Weights

LN2 = log(2.0)
TINY = 2.0**-125  # what flushed subnormals of v_exp can add


@dataclass(frozen=True)
class Value:
    """An exact value and the error that a kernel may add, float64 tensors of one shape."""

    exact: Tensor
    error: Tensor


@dataclass(frozen=True)
class Operand:
    """What a GEMV multiplies with: values, and magnitudes where subnormals count as the smallest normal."""

    values: Interval
    magnitude: Tensor

    @classmethod
    def of_blocks(cls, blocks: Blocks) -> Operand:
        """A kernel's own MXFP8 bytes and codes."""
        values = blocks.values()
        group = values.shape[-1] // blocks.codes.shape[-1]
        step = pow2(blocks.codes.to(torch.int64) - 127 + blocks.flavour.smallest_exponent)
        magnitude = torch.maximum(values.abs(), step.repeat_interleave(group, -1)) * (values != 0)
        return cls(Interval.point(values), magnitude)


class Bounds:
    """Bounds of what every launch has: the seam, norms, quantisers and GEMVs."""

    sizes: K1Sizes
    order: SumOrder
    terms: dict[str, float]

    @property
    def flavour(self) -> Fp8:
        """FP8 bytes of activations."""
        raise NotImplementedError

    @property
    def gate(self) -> seam.GateWeights:
        """Gate projection of the launch's seam."""
        raise NotImplementedError

    # -------------------------------------------------------------- seam

    def partials(self, residual: Tensor) -> Value:
        """Slices' projections and sums of squares [slices, S, mix + 1] from the residual."""
        exact, magnitude = seam.partials_exact(residual, self.gate.hc_fn, self.order)
        error = magnitude * self.terms["pmix_sum"]
        error[..., -1] = magnitude[..., -1] * self.terms["pmix_squares"]
        return Value(exact, error)

    def _logits(self, partial: Value) -> Value:
        """Gate logits [S, mix] from the slices' partials."""
        t, c = self.terms, self.sizes.streams
        total = partial.exact.sum(0)
        z, v = seam.logits_exact(total, self.gate, self.sizes)
        rstd = (total[:, -1:] / (c * self.sizes.hidden) + self.sizes.eps).rsqrt()
        mix_error = t["gate_sum"] * partial.exact[..., :-1].abs().sum(0) + partial.error[..., :-1].sum(0)
        # A relative error of the sum of squares is at most halved by the square root.
        squares = total[:, -1:].clamp_min(1e-300)
        rstd_error = t["gate_rstd"] + 0.5 * partial.error[..., -1:].sum(0) / squares
        v_error = rstd * mix_error + (rstd_error + t["u"]) * v.abs()
        scale = self.gate.hc_scale.to(F64).abs().repeat_interleave(torch.tensor([c, c, c * c]))
        return Value(z, scale * v_error + t["u"] * z.abs())

    def _sigmoid(self, z: Value) -> Value:
        t = self.terms
        argument = z.exact.abs() / LN2
        exponent = LN2 * (z.error / LN2 + t["sigmoid_argument"] * argument) + t["trans"]
        s = torch.sigmoid(z.exact)
        return Value(s, s * (1 - s) * exponent + 2 * t["u"] * s + TINY)

    def gates(self, partial: Value) -> dict[str, Value]:
        """post_out, comb_out and pre_out from partials (points of a kernel, or `partials` end to end)."""
        t, c, margin = self.terms, self.sizes.streams, self.terms["second_order"]
        z = self._logits(partial)
        pre, post = (self._sigmoid(Value(z.exact[:, a:b], z.error[:, a:b])) for a, b in ((0, c), (c, 2 * c)))
        pre_exact = pre.exact + self.sizes.hc_eps
        pre_error = pre.error + t["u"] * pre_exact + t["u"] * self.sizes.hc_eps
        logits = Value(*(torch.unflatten(v[:, 2 * c :], -1, (c, c)) for v in (z.exact, z.error)))
        comb = self._sinkhorn(logits)
        factor = self.sizes.post_multiplier
        return {
            "pre_out": Value(pre_exact, margin * pre_error),
            "post_out": Value(factor * post.exact, margin * factor * post.error),
            "comb_out": Value(comb.exact, margin * comb.error),
        }

    def _sinkhorn(self, logits: Value) -> Value:
        """First-order forward error in logarithms, with the exact Jacobian of the steps that follow."""
        t, c = self.terms, self.sizes.streams
        steps = seam.sinkhorn_steps(logits.exact, self.sizes.sinkhorn, self.sizes.hc_eps)
        rows = logits.exact.shape[0]
        later = torch.eye(c * c, dtype=F64).reshape(1, c * c, c, c).repeat(rows, 1, 1, 1)
        total = torch.zeros(rows, c * c, dtype=F64)
        for i in range(len(steps) - 1, 0, -1):
            total += later.abs().sum((-1, -2)) * t["sinkhorn_step"]
            axis = -2 if i % 2 == 1 else -1
            later = later - steps[i][:, None] * later.sum(axis, keepdim=True)
        total += later.abs().sum((-1, -2)) * t["softmax_scale"]
        p = torch.softmax(logits.exact, -1)
        weighted = later * (p / (p + self.sizes.hc_eps))[:, None]
        later = weighted - p[:, None] * weighted.sum(-1, keepdim=True)
        drop = (logits.exact.amax(-1, keepdim=True) - logits.exact) / LN2
        entry = logits.error + LN2 * t["softmax_entry"] * drop + t["trans"]
        total += (later.abs() * entry[:, None]).sum((-1, -2))
        exact = steps[-1]
        return Value(exact, exact * total.reshape(rows, c, c) + TINY)

    # -------------------------------------------------------------- norms, quantisers

    def norm(self, x: Interval, weight: Tensor, rstd_term: str) -> Interval:
        """bf16 values that a norm may give."""
        t, eps = self.terms, self.sizes.eps
        low = (x.smallest.square().mean(-1, keepdim=True) + eps).rsqrt()
        high = (x.largest.square().mean(-1, keepdim=True) + eps).rsqrt()
        rstd = Interval(high, low).widened(t[rstd_term] * t["second_order"])
        y = x.times(rstd).times(Interval.point(weight))
        return y.widened(t["norm_products"] * t["second_order"]).bf16()

    def codes(self, y: Interval, group: int, rule: CodeRule = MXFP8) -> tuple[Tensor, Tensor]:
        """Smallest and largest scale code of groups, int32 [..., n / group]."""
        low, high = (torch.unflatten(v, -1, (-1, group)).amax(-1) for v in (y.smallest, y.largest))
        return rule(low, self.flavour), rule(high, self.flavour)

    def quantised(self, y: Interval, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Bytes of both ends of y under given codes, uint8."""
        return quantise_with(y.lo, codes, self.flavour), quantise_with(y.hi, codes, self.flavour)

    def operand(self, y: Interval, group: int, rule: CodeRule = MXFP8) -> Operand:
        """Dequantised values over every code that y allows, for end-to-end intervals."""
        low, high = self.codes(y, group, rule)
        step = pow2(high.to(torch.int64) - 127 + self.flavour.smallest_exponent).repeat_interleave(group, -1)
        ends: list[tuple[Tensor, Tensor]] = []
        for extra in range(int((high - low).max()) + 1):
            codes = torch.minimum(low + extra, high)
            scale = pow2(codes.to(torch.int64) - 127).repeat_interleave(group, -1)
            lo, hi = (decode(b, self.flavour) * scale for b in self.quantised(y, codes))
            ends.append((lo, hi))
        values = Interval(
            torch.stack([lo for lo, _ in ends]).amin(0), torch.stack([hi for _, hi in ends]).amax(0)
        )
        return Operand(values, torch.maximum(values.largest, step) * (values.largest != 0))

    # -------------------------------------------------------------- GEMV

    def gemv(self, x: Operand, w: Tensor, magnitudes: Tensor, factor: float) -> Interval:
        """x @ w.T with the roundings of a sum, plus the width of x."""
        error = (x.magnitude.to(F32) @ magnitudes.T).to(F64) * (factor * self.terms["second_order"])
        if not x.values.known:
            half = (x.values.hi - x.values.lo) / 2
            error = error + products(half, w.abs())
        return Interval.around(products(x.values.middle, w), error)


@dataclass(frozen=True)
class K1Bounds(Bounds):
    """Bounds of one K1 case's stages; `terms` are the evaluated terms of the numerics spec."""

    case: K1Case
    weights: K1Weights
    sizes: K1Sizes
    order: SumOrder
    terms: dict[str, float]

    @property
    def flavour(self) -> Fp8:
        return FLAVOURS[self.case.fp8]

    @property
    def gate(self) -> seam.GateWeights:
        return self.weights

    # -------------------------------------------------------------- GEMVs

    def wqkv(self, x: Operand) -> Interval:
        """Partials of the K halves, [halves, S, q_rank + kv_dim]."""
        parts, width = [], self.sizes.hidden // self.order.k_halves
        for half in range(self.order.k_halves):
            at = slice(half * width, (half + 1) * width)
            operand = Operand(x.values[:, at], x.magnitude[:, at])
            w, magnitudes = self.weights.wqkv_values[:, at], self.weights.wqkv_magnitudes[:, at]
            parts.append(self.gemv(operand, w, magnitudes, self.terms["wqkv_sum"]))
        return Interval(torch.stack([p.lo for p in parts]), torch.stack([p.hi for p in parts]))

    def qkv(self, parts: Interval) -> Interval:
        """bf16 rows that the norms read: one float32 addition in half order, one rounding."""
        return parts.map(lambda p: _added(p)).bf16()

    def wqb(self, x: Operand) -> Interval:
        """bf16 rows of wq_b before the rotation, [S, H, head_dim]."""
        y = self.gemv(x, self.weights.wqb_values, self.weights.wqb_magnitudes, self.terms["wqb_sum"]).bf16()
        return y.map(lambda v: torch.unflatten(v, -1, (self.sizes.heads, self.sizes.head_dim)))

    # -------------------------------------------------------------- rotation

    @cached_property
    def _cos_sin(self) -> tuple[Tensor, Tensor]:
        return front.cos_sin_of(self.case, self.sizes)

    def rotated(self, tail: Interval) -> Interval:
        """bf16 results of rotating [S, ..., rope] values, in float32 order at the corners."""
        return rotated(tail, *self._cos_sin).bf16()


def rotated(tail: Interval, cos: Tensor, sin: Tensor) -> Interval:
    """float32 results of rotating [S, ..., rope] values by float32 [S, rope / 2], at the corners."""
    cos, sin = (v.reshape(v.shape[0], *[1] * (tail.lo.dim() - 2), -1) for v in (cos, sin))
    even, odd = tail[..., 0::2], tail[..., 1::2]
    ec, es, oc, os = (_product(v, f) for v, f in ((even, cos), (even, sin), (odd, cos), (odd, sin)))
    first = Interval(f32(ec.lo - os.hi), f32(ec.hi - os.lo))
    second = Interval(f32(es.lo + oc.lo), f32(es.hi + oc.hi))
    lo, hi = (torch.stack([a, b], -1).flatten(-2) for a, b in ((first.lo, second.lo), (first.hi, second.hi)))
    return Interval(lo, hi)


def _added(parts: Tensor) -> Tensor:
    """float32 sum over the leading axis in order."""
    total = parts[0].to(F32)
    for part in parts[1:]:
        total = total + part.to(F32)
    return total.to(F64)


def _product(value: Interval, factor: Tensor) -> Interval:
    """float32 product of bf16 values and a known float32 factor."""
    a, b = (value.lo.to(F32) * factor).to(F64), (value.hi.to(F32) * factor).to(F64)
    return Interval(torch.minimum(a, b), torch.maximum(a, b))
