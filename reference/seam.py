"""The seam: fold of the previous sublayer, collapse to the layer input, and the gates.

Two forms of each step: `*_exact` in float64, and the promised float32 order (attention sheet 3.1 .. 3.3). The
promised fold and collapse are promises of bits; gates pass through rsq, rcp and exp2 and are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from . import f32
from .formats import F32, F64, bf16
from .sizes import K1Sizes, SumOrder

BF16 = torch.bfloat16


class GateWeights(Protocol):
    """Gate projection of one seam: the attention's (K1Weights) or the FFN's."""

    @property
    def hc_fn(self) -> Tensor: ...
    @property
    def hc_scale(self) -> Tensor: ...
    @property
    def hc_base(self) -> Tensor: ...


@dataclass(frozen=True)
class Gates:
    """post [S, C], comb [S, C, C] ([source][target]) and pre [S, C] of this seam."""

    post: Tensor
    comb: Tensor
    pre: Tensor


def fold(residual: Tensor, pend: Tensor, post: Tensor, comb: Tensor) -> Tensor:
    """New residual streams, bf16 [S, C, D]: every stream but the last is mul and add, the last one an fma."""
    r, x = residual.to(F32), pend.to(F32)
    value = post[:, :, None] * x[:, None] + comb[:, 0, :, None] * r[:, None, 0]
    streams = residual.shape[1]
    for i in range(1, streams - 1):
        value = value + comb[:, i, :, None] * r[:, None, i]
    last = streams - 1
    folded: Tensor = f32.fma(comb[:, last, :, None], r[:, None, last], value).to(BF16)
    return folded


def fold_exact(residual: Tensor, pend: Tensor, post: Tensor, comb: Tensor) -> Tensor:
    """The fold in float64 before its bf16 rounding, [S, C, D]."""
    mixed = torch.einsum("tio,tic->toc", comb.to(F64), residual.to(F64))
    return post.to(F64)[:, :, None] * pend.to(F64)[:, None] + mixed


def collapse(residual: Tensor, pre: Tensor) -> Tensor:
    """Layer input, bf16 [S, D]: streams in order, each product rounded, then added."""
    total = torch.zeros_like(residual[:, 0], dtype=F32)
    for h in range(residual.shape[1]):
        total = total + pre[:, h, None] * residual[:, h].to(F32)
    return total.to(BF16)


def collapse_exact(residual: Tensor, pre: Tensor) -> Tensor:
    """The collapse in float64 before its bf16 rounding, [S, D]."""
    return torch.einsum("th,thc->tc", pre.to(F64), residual.to(F64))


def split_fn(fn: Tensor) -> Tensor:
    """Gate weights as kernels see them: the exact float32 sum of a high and a low bf16 part."""
    high = fn.to(BF16).to(F32)
    return high + (fn - high).to(BF16).to(F32)


def _sliced(value: Tensor, order: SumOrder, streams: int) -> Tensor:
    """[..., C * D] as [..., slices, C * columns]: a slice takes its columns of every stream."""
    cut: Tensor = torch.unflatten(value, -1, (streams, -1, order.slice_columns))
    return cut.transpose(-3, -2).flatten(-2)


def partials(residual: Tensor, fn: Tensor, order: SumOrder) -> Tensor:
    """A slice's share of the projections and of the sum of squares, float32 [slices, S, mix + 1].

    The matrix instruction is taken as a chain of fused multiply-adds over k from a zero accumulator (its
    published float32 behaviour); waves are added in order.
    """
    streams = residual.shape[1]
    r = _sliced(residual.to(F32).flatten(1), order, streams)
    weights = _sliced(split_fn(fn), order, streams)
    r_wave, w_wave = (torch.unflatten(v, -1, (order.waves, -1)) for v in (r, weights))
    total = torch.zeros(r.shape[0], weights.shape[0], r.shape[1], order.waves, dtype=F32)
    for k in range(r_wave.shape[-1]):
        total = f32.fma_near(r_wave[:, None, ..., k], w_wave[None, ..., k], total)
    mix = f32.ordered_sum(total, -1)
    squares = r * r
    lane = torch.unflatten(squares, -1, (order.lanes, -1))
    sq = f32.butterfly(f32.ordered_sum(lane, -1), (32, 16, 8, 4, 2, 1))
    return torch.cat([mix, sq[:, None]], 1).permute(2, 0, 1).contiguous()


def partials_exact(residual: Tensor, fn: Tensor, order: SumOrder) -> tuple[Tensor, Tensor]:
    """The same in float64, and the sum of magnitudes that error bounds are relative to."""
    streams = residual.shape[1]
    r = _sliced(residual.to(F64).flatten(1), order, streams).permute(1, 0, 2)
    weights = _sliced(split_fn(fn).to(F64), order, streams).permute(1, 2, 0)
    sq = (r * r).sum(-1, keepdim=True)
    return torch.cat([r @ weights, sq], -1), torch.cat([r.abs() @ weights.abs(), sq], -1)


def _sum_partials(partial: Tensor, order: SumOrder) -> Tensor:
    """Slices in groups, group sums in order: float32 [S, mix + 1]."""
    groups = torch.unflatten(partial, 0, (-1, order.gate_group))
    return f32.ordered_sum(f32.ordered_sum(groups, 1), 0)


def _sigmoid(z: Tensor) -> Tensor:
    return 1 / (1 + f32.exp2(z * -f32.LOG2E))


def sinkhorn(logits: Tensor, rounds: int, eps: float) -> Tensor:
    """Float32 Sinkhorn of [S, C, C]: softmax over targets plus eps, then columns; then rows and columns."""
    tiny = torch.tensor(eps, dtype=F32)
    e = f32.exp2((logits - logits.amax(-1, keepdim=True)) * f32.LOG2E)
    m = f32.fma(e, f32.rcp(f32.pairwise_sum(e))[..., None], tiny)
    m = m * f32.rcp(f32.pairwise_sum(m, -2) + tiny)[:, None]
    for _ in range(rounds - 1):
        m = m * f32.rcp(f32.pairwise_sum(m) + tiny)[..., None]
        m = m * f32.rcp(f32.pairwise_sum(m, -2) + tiny)[:, None]
    return m


def gates(partial: Tensor, weights: GateWeights, sizes: K1Sizes, order: SumOrder) -> Gates:
    """Gates from the slices' partials (float32, the promised order)."""
    total = _sum_partials(partial, order)
    count, c = sizes.streams * sizes.hidden, sizes.streams
    mean = f32.fma(total[:, -1], torch.tensor(1 / count, dtype=F32), torch.tensor(sizes.eps, dtype=F32))
    v = total[:, :-1] * f32.rsq(mean)[:, None]
    scale = weights.hc_scale.repeat_interleave(torch.tensor([c, c, c * c]))
    z = f32.fma(v, scale, weights.hc_base)
    pre = _sigmoid(z[:, :c]) + torch.tensor(sizes.hc_eps, dtype=F32)
    post = _sigmoid(z[:, c : 2 * c]) * sizes.post_multiplier
    logits = torch.unflatten(z[:, 2 * c :], -1, (c, c))
    return Gates(post, sinkhorn(logits, sizes.sinkhorn, sizes.hc_eps), pre)


def sinkhorn_steps(logits: Tensor, rounds: int, eps: float) -> list[Tensor]:
    """Float64 Sinkhorn, every intermediate matrix: softmax plus eps, column, then (row, column) rounds."""
    m = torch.softmax(logits, -1) + eps
    steps = [m]
    for turn in range(2 * rounds - 1):
        m = m / (m.sum(-2 if turn % 2 == 0 else -1, keepdim=True) + eps)
        steps.append(m)
    return steps


def logits_exact(total: Tensor, weights: GateWeights, sizes: K1Sizes) -> tuple[Tensor, Tensor]:
    """(z, v) in float64 from summed projections [S, mix + 1]: gate logits, and projections after the norm."""
    c = sizes.streams
    rstd = (total[:, -1:] / (c * sizes.hidden) + sizes.eps).rsqrt()
    v = total[:, :-1] * rstd
    scale = weights.hc_scale.to(F64).repeat_interleave(torch.tensor([c, c, c * c]))
    return v * scale + weights.hc_base.to(F64), v


def gates_exact(total: Tensor, weights: GateWeights, sizes: K1Sizes) -> Gates:
    """Gates in float64 from summed projections [S, mix + 1]."""
    c = sizes.streams
    z, _ = logits_exact(total, weights, sizes)
    pre = torch.sigmoid(z[:, :c]) + sizes.hc_eps
    post = torch.sigmoid(z[:, c : 2 * c]) * sizes.post_multiplier
    logits = torch.unflatten(z[:, 2 * c :], -1, (c, c))
    comb = sinkhorn_steps(logits, sizes.sinkhorn, sizes.hc_eps)[-1]
    return Gates(post, comb, pre)


def residual_of(
    residual: Tensor, pend: Tensor, post: Tensor, comb: Tensor, fold_on: bool, exact: bool
) -> Tensor:
    """New residual of either form and either build, bf16 [S, C, D]."""
    if not fold_on:
        return residual.clone()
    return (
        bf16(fold_exact(residual, pend, post, comb)).to(BF16) if exact else fold(residual, pend, post, comb)
    )
