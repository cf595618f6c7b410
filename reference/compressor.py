"""The compressor: what writes the compressed cache between K1 and K2 of a kv source layer.

It is another implementation's kernel; here it gives tests caches with real contents (attention sheet 3.11).
Latents are RMS-normed rows of a projection of the layer input; with ratio 2 a pair of tokens is pooled by a
softmax over its two rows, per dimension, when its odd token arrives. Records are OCP on every arch, rotated
at the position of the group's first token, with the source layer's table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .draws import Draws
from .formats import F32, F64, bf16
from .records import RecordCache
from .rope import rotate
from .sizes import K1Sizes
from .weights import random_norm

BF16 = torch.bfloat16


@dataclass(frozen=True)
class CompressorWeights:
    """bf16; ratio 1 has no gate."""

    wkv: Tensor  # [head_dim, D]
    wgate: Tensor | None  # [head_dim, D]
    norm: Tensor  # [head_dim]

    def scores(self, normed: Tensor) -> Tensor:
        """float32 [S, head_dim] or [S, 2 head_dim]: latents, then pooling scores."""
        w = self.wkv if self.wgate is None else torch.cat([self.wkv, self.wgate])
        return (normed.to(F64) @ w.to(F64).T).to(F32)


def random_compressor(draws: Draws, sizes: K1Sizes, ratio: int) -> CompressorWeights:
    """Weights that keep a unit layer input at unit size."""

    def linear() -> Tensor:
        return (draws.normal(sizes.head_dim, sizes.hidden) * sizes.hidden**-0.5).to(BF16)

    return CompressorWeights(linear(), linear() if ratio > 1 else None, random_norm(draws, sizes.head_dim))


def latents(kv_score: Tensor, norm: Tensor, ratio: int, eps: float) -> Tensor:
    """bf16 [n, head_dim] of groups: kv_score [n, ratio, head_dim (* 2 if ratio > 1)]."""
    value = kv_score.to(F64)
    if ratio > 1:
        kv, score = value.chunk(2, -1)
        pooled = (kv * torch.softmax(score, 1)).sum(1)
    else:
        pooled = value[:, 0]
    rstd = (pooled.square().mean(-1, keepdim=True) + eps).rsqrt()
    return bf16(pooled * rstd * norm.to(F64)).to(BF16)


def rotated(rows: Tensor, positions: Tensor, table: Tensor, sizes: K1Sizes) -> Tensor:
    """bf16 [n, head_dim] with the last dims rotated to int64 positions [n], in float32."""
    half, value = sizes.rope // 2, rows.to(F32)
    cos_sin = table[positions]
    tail = rotate(value[:, sizes.nope :], cos_sin[:, :half], cos_sin[:, half:])
    return torch.cat([value[:, : sizes.nope], tail], -1).to(BF16)


@dataclass(frozen=True)
class Arrivals:
    """Compressed rows that a step completes: token rows of every group, position of its first token, slot.

    A token row of -1 is one of an earlier step, whose projection the ring cache holds.
    """

    tokens: tuple[tuple[int, ...], ...]
    first: tuple[int, ...]
    slots: tuple[int, ...]


def insert(
    cache: RecordCache, scores: Tensor, earlier: Sequence[Tensor], arrivals: Arrivals, norm: Tensor,
    table: Tensor, sizes: K1Sizes,
) -> None:  # fmt: skip
    """Write the records of `arrivals`; `earlier` has a projection for each token row -1, in order."""
    if not arrivals.slots:
        return
    ring = iter(earlier)
    groups = [torch.stack([scores[t] if t >= 0 else next(ring) for t in own]) for own in arrivals.tokens]
    rows = latents(torch.stack(groups), norm, len(arrivals.tokens[0]), sizes.eps)
    turned = rotated(rows, torch.tensor(arrivals.first), table, sizes)
    cache.write(torch.tensor(arrivals.slots), turned, sizes)
