"""The attention back: sparse flash-decoding in chunks, combine with sinks, and the output projections.

Exact forms are float64; promised forms are float32 in the stated order (attention sheet 4.1 .. 4.6, 2.5).
Scores are in base 2: q . k times `qk_scale`, which holds log2(e). Keys of a row are the entries of its key
table; an entry of -1 is no key, bit 31 marks the compressed cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from . import f32
from .formats import F32, F64, bf16
from .front import f32_grid
from .layer_sizes import LayerOrder, LayerSizes
from .records import RecordCache
from .rope import rotate

BF16 = torch.bfloat16
NEG = float(torch.finfo(F32).min)  # the score of no key
KEY_MASK = 0x7FFFFFFF


@dataclass(frozen=True)
class Keys:
    """Keys of one row's chunk: float64 values [n, head_dim] (0 where there is none), and which exist."""

    values: Tensor
    valid: Tensor  # bool [n]


@dataclass(frozen=True)
class Split:
    """Chunk partials of S rows, N chunks, H heads; a chunk behind a row's last key is dead and holds 0."""

    top: Tensor  # [S, N, H] largest score (m)
    total: Tensor  # [S, N, H] sum of exp2(score - m) (l)
    part: Tensor  # [S, N, H, head_dim] weighted sum of values


def qk_scale(sizes: LayerSizes) -> Tensor:
    """float32 scalar: head_dim ** -0.5 * log2(e)."""
    return torch.tensor(sizes.head_dim**-0.5 * f32.LOG2E, dtype=F32)


def live_chunks(klen: Tensor, order: LayerOrder, sizes: LayerSizes) -> Tensor:
    """bool [S, N]: chunks with a key-table entry below the row's length."""
    return torch.arange(order.chunks(sizes))[None] * order.chunk < klen[:, None]


def read_keys(entries: Tensor, swa: RecordCache, comp: RecordCache | None, sizes: LayerSizes) -> Keys:
    """Keys of key-table entries, int32 [n]."""
    wide = entries.to(torch.int64)
    none, compressed = wide == -1, wide < -1
    values = torch.zeros(len(wide), sizes.head_dim, dtype=F64)
    window = ~none & ~compressed
    values[window] = swa.read(wide[window], sizes)
    if comp is not None and bool(compressed.any()):
        values[compressed] = comp.read(wide[compressed] & KEY_MASK, sizes)
    return Keys(values, ~none)


# ------------------------------------------------------------------ split


def scores_exact(keys: Keys, q: Tensor, sizes: LayerSizes) -> Tensor:
    """float64 [n, H]; -inf where there is no key."""
    s = keys.values @ q.to(F64).T * float(qk_scale(sizes))
    return torch.where(keys.valid[:, None], s, -torch.inf)


def split_exact(keys: Keys, q: Tensor, sizes: LayerSizes) -> tuple[Tensor, Tensor, Tensor]:
    """(m, l, o) of one chunk in float64; weights are bf16 where values are summed, o is not rounded yet."""
    s = scores_exact(keys, q, sizes)
    m = s.amax(0).clamp_min(NEG)
    p = torch.where(keys.valid[:, None], torch.exp2(s - m), 0.0)
    return m, p.sum(0), bf16(p).T @ keys.values


def _score_dims(sizes: LayerSizes, order: LayerOrder) -> Tensor:
    """Order in which the score MFMAs take dims: halves of 16-dim groups of each 64, then the rotated dims.

    A step is 32 dims, eight of each of four lane groups. Where the MFMA has 16 columns it takes the first
    four of every lane's eight, then the others (attention sheet 5.5).
    """
    nope = torch.arange(sizes.nope).reshape(-1, 4, 2, 8).transpose(1, 2).flatten()
    dims = torch.cat([nope, torch.arange(sizes.nope, sizes.head_dim)])
    of_a_lane = order.bf16_k // 4
    return dims.reshape(-1, 4, 8 // of_a_lane, of_a_lane).transpose(1, 2).flatten()


def split(keys: Keys, q: Tensor, sizes: LayerSizes, order: LayerOrder) -> tuple[Tensor, Tensor, Tensor]:
    """(m, l, o) of one chunk in float32; o is bf16."""
    dims = _score_dims(sizes, order)
    k, query = keys.values[:, dims], q.to(F64)[:, dims]
    acc = torch.zeros(len(k), q.shape[0], dtype=F32)
    for at in range(0, sizes.head_dim, order.bf16_k):
        step = slice(at, at + order.bf16_k)
        acc = (acc.to(F64) + k[:, step] @ query[:, step].T).to(F32)
    valid = keys.valid[:, None]
    s = torch.where(valid, acc * qk_scale(sizes), NEG)
    m = s.amax(0)
    p = torch.where(valid, f32.exp2(s - m), 0.0)
    weights, o = p.to(BF16).to(F64), torch.zeros(q.shape[0], sizes.head_dim, dtype=F32)
    for at in range(0, len(k), order.value_k):
        step = slice(at, at + order.value_k)
        o = (o.to(F64) + weights[step].T @ keys.values[step]).to(F32)
    return m, _key_sum(p, order.key_tile), o.to(BF16)


def _key_sum(p: Tensor, tile: int) -> Tensor:
    """Sum over keys [n, H]: a lane's four keys pairwise, lanes 32 and 16 apart, then tiles in order."""
    tiles = torch.nn.functional.pad(p, (0, 0, 0, -len(p) % tile)).reshape(-1, 4, 4, p.shape[1])
    q0, q1, q2, q3 = tiles.unbind(2)
    lane = (q0 + q2) + (q1 + q3)
    return f32.ordered_sum((lane[:, 0] + lane[:, 2]) + (lane[:, 1] + lane[:, 3]), 0)


# ------------------------------------------------------------------ combine


def combine_exact(parts: Split, sink: Tensor, live: Tensor) -> Tensor:
    """float64 [S, H, head_dim]: the softmax over all chunks with the sink in the denominator, unrounded."""
    m = torch.where(live[..., None], parts.top.to(F64), -torch.inf)
    bias = sink.to(F64) * f32.LOG2E
    top = torch.maximum(m.amax(1), bias)
    w = torch.exp2(m - top[:, None])
    total = torch.exp2(bias - top) + (w * parts.total.to(F64)).sum(1)
    value = torch.where(live[..., None, None], parts.part.to(F64), 0.0)
    return torch.einsum("tch,tchd->thd", w, value) / total[..., None]


def combine(parts: Split, sink: Tensor, live: Tensor) -> Tensor:
    """bf16 [S, H, head_dim] in the promised order: dead chunks count as (NEG, 0, 0)."""
    alive = live[..., None]
    m, sums = torch.where(alive, parts.top, NEG), torch.where(alive, parts.total, 0.0)
    value = torch.where(alive[..., None], parts.part.to(F32), 0.0)
    bias = sink * f32.LOG2E
    top = torch.maximum(m.amax(1), bias)
    total, acc = f32.exp2(bias - top), torch.zeros_like(value[:, 0])
    for c in range(m.shape[1]):
        w = f32.exp2(m[:, c] - top)
        total = total + sums[:, c] * w
        acc = acc + value[:, c] * w[..., None]
    return (acc * (1 / total)[..., None]).to(BF16)


def rotate_back(o: Tensor, cos: Tensor, sin: Tensor, nope: int) -> Tensor:
    """Inverse rotation of the last dims of [S, H, head_dim], in the dtype of the operands (not rounded)."""
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([o[..., :nope], rotate(o[..., nope:], cos, -sin)], -1)


# ------------------------------------------------------------------ output projections


def gemv_contiguous(x: Tensor, w: Tensor, order: LayerOrder, waves: int) -> Tensor:
    """Float32 [S, N]: `waves` contiguous shares of the K steps, added in wave order."""
    split_blocks = order.gemv != "scaled_mfma"
    width = order.k_step // 4 if split_blocks else order.k_step
    share = -(-x.shape[1] // order.k_step // waves) * order.k_step
    total = torch.zeros(x.shape[0], w.shape[0], dtype=F32)
    for wave in range(waves):
        acc = torch.zeros_like(total)
        for at in range(wave * share, min((wave + 1) * share, x.shape[1]), width):
            block = x[:, at : at + width] @ w[:, at : at + width].T
            acc = (acc.to(F64) + (f32_grid(block) if split_blocks else block)).to(F32)
        total = total + acc
    return total


def grouped(x: Tensor, w: Tensor, sizes: LayerSizes, order: LayerOrder | None) -> Tensor:
    """wo_a: [S, o_rows] from [S, groups * group_k]; float64 where `order` is None, else promised float32."""
    out = []
    for g in range(sizes.groups):
        xs = x[:, g * sizes.group_k : (g + 1) * sizes.group_k]
        ws = w[g * sizes.o_rank : (g + 1) * sizes.o_rank]
        out.append(xs @ ws.T if order is None else gemv_contiguous(xs, ws, order, order.woa_waves))
    return torch.cat(out, -1)


def rank_sum(parts: Tensor) -> Tensor:
    """bf16 [S, D] of bf16 partials [tp, S, D]: float32 sums in rank order, rounded once; promised bits."""
    return f32.ordered_sum(parts.to(F32), 0).to(BF16)


def rank_sum_exact(parts: Tensor) -> Tensor:
    """The same sum with one rounding in all."""
    return bf16(parts.to(F64).sum(0)).to(BF16)
