"""The attention front: norms, block-scaled GEMVs, RoPE, the KV record and the key table.

Exact forms are float64; promised forms are float32 in the stated order (attention sheet 2.5, 2.6 and 3.4 to
3.9).
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from . import f32
from .case import K1Case
from .formats import F32, F64
from .quant import Blocks
from .rope import rotate
from .sizes import K1Sizes, SumOrder

BF16 = torch.bfloat16
COMPRESSED_MARK = -(1 << 31)  # bit 31 of a key entry, as int32


# ------------------------------------------------------------------ norms


def _thread_sums(value: Tensor, order: SumOrder, vector: int) -> Tensor:
    """Squares summed a thread: thread i owns `vector` columns at i * vector of every chunk, in order."""
    threads = order.lanes * order.norm_waves
    pad = -value.shape[-1] % (threads * vector)
    squares = torch.nn.functional.pad(value * value, (0, pad))
    chunks = torch.unflatten(squares, -1, (-1, threads, vector))
    return f32.ordered_sum(chunks.transpose(-3, -2).flatten(-2), -1)


def sum_of_squares(value: Tensor, order: SumOrder, vector: int, offsets: tuple[int, ...]) -> Tensor:
    """Float32 sum of squares of rows: threads, a butterfly over lanes, then waves pairwise."""
    threads = _thread_sums(value.to(F32), order, vector)
    waves = torch.unflatten(threads, -1, (order.norm_waves, order.lanes))
    return f32.pairwise_sum(f32.butterfly(waves, offsets))


def layer_norm_rstd(lin: Tensor, eps: float, order: SumOrder) -> Tensor:
    """rsq(fma(ss, 1/D, eps)): the seam's form of the norm."""
    ss = sum_of_squares(lin, order, order.norm_vector, (1, 2, 4, 8, 16, 32))
    inverse = torch.tensor(1 / lin.shape[-1], dtype=F32)
    return f32.rsq(f32.fma(ss, inverse, torch.tensor(eps, dtype=F32)))


def lora_norm_rstd(value: Tensor, eps: float, order: SumOrder, vector: int) -> Tensor:
    """rsq(ss / n + eps) with a true quotient: the front's form of the norm."""
    ss = sum_of_squares(value, order, vector, (32, 16, 8, 4, 2, 1))
    return f32.rsq(ss / value.shape[-1] + torch.tensor(eps, dtype=F32))


def scaled(value: Tensor, rstd: Tensor, weight: Tensor) -> Tensor:
    """bf16((x * rstd) * w)."""
    return ((value.to(F32) * rstd[:, None]) * weight.to(F32)).to(BF16)


def norm_exact(value: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm of rows in float64, before its bf16 rounding."""
    x = value.to(F64)
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight.to(F64)


# ------------------------------------------------------------------ GEMV


def _k_blocks(x: Tensor, w: Tensor, width: int) -> Tensor:
    """Exact dot products of K blocks of `width`, float64 [K / width, S, N]."""
    xs = torch.unflatten(x, -1, (-1, width)).transpose(0, 1)
    ws = torch.unflatten(w, -1, (-1, width)).permute(1, 2, 0)
    return torch.bmm(xs, ws)


def gemv_part(x: Tensor, w: Tensor, order: SumOrder) -> Tensor:
    """Float32 [S, N] over one K range: waves take steps round robin, and are summed in order.

    A step is one exact dot product rounded into the accumulator (scaled MFMA), or four of a block each,
    rounded, then added (fp8 MFMA and fma). How an MFMA rounds inside is not public, so these are not bits.
    """
    split = order.gemv != "scaled_mfma"
    width = order.k_step // 4 if split else order.k_step
    total = torch.zeros(x.shape[0], w.shape[0], dtype=F32)
    for wave in range(order.waves):
        acc = torch.zeros_like(total)
        for at in range(wave * order.k_step, x.shape[1], order.waves * order.k_step):
            step = slice(at, at + order.k_step)
            for block in _k_blocks(x[:, step], w[:, step], width):
                acc = (acc.to(F64) + (f32_grid(block) if split else block)).to(F32)
        total = total + acc
    return total


def f32_grid(value: Tensor) -> Tensor:
    """Round to float32, kept float64 (a block's dot before its power-of-two factor, which changes no bit)."""
    return value.to(F32).to(F64)


def wqkv_parts(x: Tensor, w: Tensor, order: SumOrder) -> Tensor:
    """Float32 [halves, S, N]: the K halves of the fused wq_a / wkv."""
    halves = zip(x.chunk(order.k_halves, -1), w.chunk(order.k_halves, -1), strict=True)
    return torch.stack([gemv_part(xs, ws, order) for xs, ws in halves])


# ------------------------------------------------------------------ RoPE, record


def cos_sin_of(case: K1Case, sizes: K1Sizes) -> tuple[Tensor, Tensor]:
    """cos and sin of every row's position, float32 [S, rope / 2] each."""
    row = case.cos_sin[case.pos]
    half = sizes.rope // 2
    return row[:, :half], row[:, half:]


def rotate_tail(value: Tensor, cos: Tensor, sin: Tensor, nope: int) -> Tensor:
    """Rotate the dims from `nope` on of [..., head_dim], in the dtype of the operands."""
    return torch.cat([value[..., :nope], rotate(value[..., nope:], cos, sin)], -1)


def record_address(case: K1Case, sizes: K1Sizes, row: int) -> tuple[int, int]:
    """Byte offsets in the cache of a live row's values and of its scale word."""
    block, off = divmod(int(case.slot[row]), case.swa_block)
    base = block * case.swa_stride
    scales = base + case.swa_block * sizes.record_data_bytes + off * sizes.record_scale_bytes
    return base + off * sizes.record_data_bytes, scales


def record_bytes(nope: Blocks, rope: Tensor, sizes: K1Sizes) -> tuple[Tensor, Tensor]:
    """Values uint8 [S, 576] and scale words uint8 [S, 8] of records; padding codes are 0."""
    data = torch.cat([nope.data, rope.to(BF16).contiguous().view(torch.uint8)], -1)
    pad = sizes.record_scale_bytes - nope.codes.shape[-1]
    return data, torch.nn.functional.pad(nope.codes.to(torch.uint8), (0, pad))


def write_records(case: K1Case, sizes: K1Sizes, data: Tensor, scales: Tensor) -> Tensor:
    """The cache after the launch: records of live rows written, every other byte as before."""
    cache = case.swa.clone()
    for row in torch.nonzero(case.live).flatten().tolist():
        at, scale_at = record_address(case, sizes, row)
        cache[at : at + sizes.record_data_bytes] = data[row]
        cache[scale_at : scale_at + sizes.record_scale_bytes] = scales[row]
    return cache


# ------------------------------------------------------------------ key table


class KeySource(Protocol):
    """What a key table is made from, under the launch arguments' names."""

    @property
    def rows(self) -> int: ...
    @property
    def ratio(self) -> int: ...
    @property
    def window(self) -> int: ...
    @property
    def comp_block(self) -> int: ...
    @property
    def live(self) -> Tensor: ...
    @property
    def pos(self) -> Tensor: ...
    @property
    def swa_idx(self) -> Tensor: ...
    @property
    def swa_lens(self) -> Tensor: ...
    @property
    def topk(self) -> Tensor: ...
    @property
    def comp_bt(self) -> Tensor: ...
    @property
    def t2r(self) -> Tensor: ...


def key_table(case: KeySource, sizes: K1Sizes) -> tuple[Tensor, Tensor]:
    """kt int32 [S, keys] and klen int32 [2 S] (length, then the number of top-k entries)."""
    table = torch.full((case.rows, sizes.keys), -1, dtype=torch.int32)
    length = torch.zeros(2, case.rows, dtype=torch.int32)
    for row in torch.nonzero(case.live).flatten().tolist():
        ntopk = min((int(case.pos[row]) + 1) // case.ratio, sizes.topk) if case.ratio else 0
        total = ntopk + int(case.swa_lens[row])
        table[row, :ntopk] = _compressed_keys(case, row, ntopk)
        at = torch.arange(total - ntopk).clamp_max(case.window - 1)
        table[row, ntopk:total] = case.swa_idx[row, at]
        length[0, row], length[1, row] = total, ntopk
    return table, length.flatten()


def _compressed_keys(case: KeySource, row: int, ntopk: int) -> Tensor:
    """Entries of the selected compressed rows, marked in bit 31; -1 stays -1."""
    if not ntopk:
        return torch.zeros(0, dtype=torch.int32)
    local = case.topk[row, :ntopk].to(torch.int64)
    known = local.clamp_min(0)
    block = case.comp_bt[int(case.t2r[row])].to(torch.int64)[known // case.comp_block]
    entry = (block * case.comp_block + known % case.comp_block) | COMPRESSED_MARK
    return torch.where(local >= 0, entry, -1).to(torch.int32)
