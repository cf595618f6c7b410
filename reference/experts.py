"""Routed experts: who is picked by whom, gate and up, the clamped SwiGLU, requantisation, and down.

A *pick* is one (token, place in its list); picks of a step are numbered in slot order: experts ascending,
then tokens ascending. Everything of a pick lies in rows of that order. (FFN math 3.3, 4.3 .. 4.5.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from . import f32
from .formats import F32, F64, bf16
from .front import f32_grid
from .layer_sizes import LayerOrder, LayerSizes

BF16 = torch.bfloat16


@dataclass(frozen=True)
class Picks:
    """The picks of a step from its expert lists, int32 [S, K]."""

    ids: Tensor

    @cached_property
    def order(self) -> Tensor:
        """int64 [n]: pick t * K + k of every row, experts then tokens ascending."""
        token = torch.arange(self.ids.numel()) // self.ids.shape[1]
        key = self.ids.flatten().to(torch.int64) * self.ids.shape[0] + token
        return torch.argsort(key, stable=True)

    @cached_property
    def row(self) -> Tensor:
        """int64 [S, K]: row of every pick."""
        return torch.argsort(self.order).reshape(self.ids.shape)

    @cached_property
    def token(self) -> Tensor:
        """int64 [n]: token of every row."""
        return self.order // self.ids.shape[1]

    @cached_property
    def expert(self) -> Tensor:
        """int64 [n]: expert of every row, ascending."""
        return self.ids.flatten().to(torch.int64)[self.order]

    def slots(self) -> Iterator[tuple[int, slice]]:
        """(expert, its rows) in ascending order."""
        experts, counts = torch.unique_consecutive(self.expert, return_counts=True)
        at = 0
        for expert, count in zip(experts.tolist(), counts.tolist(), strict=True):
            yield expert, slice(at, at + count)
            at += count

    def units(self, tile: int) -> int:
        """Up/gate units: an expert each where the step fits a tile, else tiles of at most `tile` picks."""
        if self.ids.shape[0] <= tile:
            return sum(1 for _ in self.slots())
        return sum(-(-(rows.stop - rows.start) // tile) for _, rows in self.slots())


# ------------------------------------------------------------------ gate and up


def up_gemv(x: Tensor, w: Tensor, order: LayerOrder) -> Tensor:
    """Float32 [n, N] of x [n, D] and w [N, D]: K slices, each a chain, then added pairwise."""
    steps = torch.arange(x.shape[1] // order.k_step)
    if order.gemv == "scaled_mfma":
        slices = [steps[_interleaved(steps, s, order.up_slices)] for s in range(order.up_slices)]
    else:
        slices = list(steps.chunk(order.up_slices))
    sums = [_chain(x, w, own, order) for own in slices]
    while len(sums) > 1:
        sums = [a + b for a, b in zip(sums[0::2], sums[1::2], strict=True)]
    return sums[0]


def _interleaved(steps: Tensor, index: int, slices: int) -> Tensor:
    """Steps of a slice: blocks of 8 steps in turn, the last block shared; or 2 of each 8 with four slices."""
    if slices == 4:
        return steps // 2 % 4 == index
    whole = len(steps) // (8 * slices) * (8 * slices)
    rest = -(-(len(steps) - whole) // slices)
    return torch.where(steps < whole, steps // 8 % slices == index, (steps - whole) // max(rest, 1) == index)


def _chain(x: Tensor, w: Tensor, steps: Tensor, order: LayerOrder) -> Tensor:
    """Float32 sum over K steps in order in one accumulator."""
    blocks = order.gemv != "scaled_mfma"
    width = order.k_step // 4 if blocks else order.k_step
    acc = torch.zeros(x.shape[0], w.shape[0], dtype=F32)
    for step in steps.tolist():
        for at in range(step * order.k_step, min((step + 1) * order.k_step, x.shape[1]), width):
            dot = x[:, at : at + width] @ w[:, at : at + width].T.to(F64)
            acc = (acc.to(F64) + (f32_grid(dot) if blocks else dot)).to(F32)
    return acc


def activation_exact(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    """float64 silu(min(gate, limit)) * clamp(up), before its bf16 rounding."""
    g, u = gate.clamp_max(limit), up.clamp(-limit, limit)
    return torch.nn.functional.silu(g) * u


def activation(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    """bf16 of the same in float32: the gate's sigmoid by rcp and exp2."""
    g, u = gate.clamp_max(limit), up.clamp(-limit, limit)
    sigmoid = f32.rcp(1 + f32.exp2(g * -f32.LOG2E))
    return ((g * sigmoid) * u).to(BF16)


# ------------------------------------------------------------------ down


def down_gemv(h: Tensor, w: Tensor, order: LayerOrder) -> Tensor:
    """Float32 [n, D] of h [n, I] and w [D, I]: steps alternate over the chains, whose sums are added."""
    steps = torch.arange(-(-h.shape[1] // order.k_step))
    sums = [_chain(h, w, steps[c :: order.down_chains], order) for c in range(order.down_chains)]
    return f32.ordered_sum(torch.stack(sums), 0)


def combine_exact(v: Tensor, routing_weights: Tensor, shared: Tensor) -> Tensor:
    """bf16 [S, D] from float64 v [S, K, D]: the promised bf16 roundings on float64 sums."""
    acc = torch.zeros_like(v[:, 0])
    for k in range(v.shape[1]):
        acc = bf16(acc + bf16(v[:, k] * routing_weights[:, k, None].to(F64)))
    return bf16(acc + shared.to(F64)).to(BF16)


def combine(v: Tensor, routing_weights: Tensor, shared: Tensor) -> Tensor:
    """bf16 [S, D] from float32 v [S, K, D] in selection order, then the shared expert."""
    acc = torch.zeros_like(v[:, 0])
    for k in range(v.shape[1]):
        term = (v[:, k] * routing_weights[:, k, None]).to(BF16).to(F32)
        acc = (acc + term).to(BF16).to(F32)
    return (acc + shared.to(F32)).to(BF16)


def of_tokens(value: Tensor, picks: Picks, sizes: LayerSizes) -> Tensor:
    """Rows of picks [n, D] as [S, K, D] in selection order."""
    return value[picks.row.flatten()].reshape(-1, sizes.picks, value.shape[-1])
