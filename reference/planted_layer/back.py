"""Planted bugs of the attention back."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from .. import attention_back as attention
from ..attention_back import Keys, Split
from ..formats import F32, F64, FNUZ
from ..front import gemv_part, key_table
from ..k2 import K2
from ..quant import Blocks, code_of, group_max, quantise_with
from ..records import RecordCache
from .registry import Bench, compressed, is_k2, keys_inside, planted

BF16 = torch.bfloat16


@planted("k2.kt.klen", "positions are counted as compressed rows without the ratio",
         lambda bench: keys_inside(bench) and bench.k2 is not None and bench.k2.ratio > 1)  # fmt: skip
class RatioIgnored(K2):
    def keys(self) -> tuple[Tensor, Tensor]:
        return key_table(replace(self.k2case, ratio=1), self.sizes)


@planted("k2.kt.kt", "window slots are written one place early", keys_inside)
class WindowShifted(K2):
    def keys(self) -> tuple[Tensor, Tensor]:
        return key_table(replace(self.k2case, swa_idx=self.k2case.swa_idx.roll(-1, 1)), self.sizes)


@planted("k2.split.top", "the window is off by one: every unit reads the entries one place later", is_k2)
class WindowOffByOne(K2):
    def read(self, kt: Tensor, row: int, chunk: int) -> Keys:
        return super().read(kt.roll(-1, 1), row, chunk)


@planted("k2.split.top", "compressed records are read as FNUZ", compressed)
class CompressedReadAsFnuz(K2):
    def read(self, kt: Tensor, row: int, chunk: int) -> Keys:
        case, at = self.k2case, chunk * self.order.chunk
        wrong = RecordCache(case.comp, case.comp_stride, case.comp_block, FNUZ)
        keys = attention.read_keys(kt[row, at : at + self.order.chunk], case.window_cache, wrong, self.sizes)
        return Keys(keys.values.nan_to_num(nan=0.0), keys.valid)


def _has_holes(bench: Bench) -> bool:
    """A top-k list with a hole, so that an entry of -1 lies among live keys."""
    case = bench.k2
    if case is None:
        return False
    at = torch.arange(case.kt.shape[1])
    return bool(((case.kt == -1) & (at < case.klen[: case.rows, None])).any())


@planted("k2.split.total", "entries of -1 count as keys of score 0", _has_holes)
class HolesCounted(K2):
    def unit(self, keys: Keys, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        m, total, o = super().unit(keys, q)
        holes = (~keys.valid).sum() * (m > attention.NEG)
        return m, total + holes * torch.exp2(-m.clamp(-100, 100)), o


@planted("k2.split.top", "scores are in natural-log units", is_k2)
class ScaleWithoutLog2e(K2):
    def unit(self, keys: Keys, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return super().unit(keys, (q.to(F64) / 1.4426950408889634).to(BF16))


@planted("k2.split.part", "values are scaled by the code of the neighbouring group", is_k2)
class ValueScaleNext(K2):
    def unit(self, keys: Keys, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        m, total, o = super().unit(keys, q)
        head = torch.arange(q.shape[0])[:, None]
        wrong = o.clone()
        group = self.sizes.record_group
        wrong[head, torch.arange(group)] = o[head, torch.arange(group)] * 2
        return m, total, wrong


@planted("k2.split.part", "partials are cut to bf16 instead of rounded", is_k2)
class PartialsTruncated(K2):
    def unit(self, keys: Keys, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        m, total, _ = super().unit(keys, q)
        s = attention.scores_exact(keys, q, self.sizes)
        p = torch.where(keys.valid[:, None], torch.exp2(s - m), 0.0).to(BF16).to(F64)
        o = (p.T @ keys.values).to(F32)
        return m, total, (o.view(torch.int32) & -65536).view(F32).to(BF16)


@planted("k2.combine.xo", "the sink is added to the numerator", is_k2)
class SinkInNumerator(K2):
    def combined(self, rank: int, parts: Split, klen: Tensor) -> Tensor:
        right = super().combined(rank, parts, klen)
        live = attention.live_chunks(klen[: self.k2case.rows], self.order, self.sizes)
        sink = self.back_weights[rank].sink.to(F64) * 1.4426950408889634
        m = torch.where(live[..., None], parts.top.to(F64), -torch.inf)
        top = torch.maximum(m.amax(1), sink)
        share = torch.exp2(sink - top)
        total = share + (torch.exp2(m - top[:, None]) * parts.total.to(F64)).sum(1)
        return (right.to(F64) + (share / total)[..., None]).to(BF16)


@planted("k2.combine.xo", "the denominator lacks the sink", is_k2)
class SinkMissing(K2):
    def combined(self, rank: int, parts: Split, klen: Tensor) -> Tensor:
        live = attention.live_chunks(klen[: self.k2case.rows], self.order, self.sizes)
        none = torch.full_like(self.back_weights[rank].sink, -1e30)
        o = attention.combine(parts, none, live)
        return torch.where(live.any(1)[:, None, None], o, torch.zeros_like(o))


@planted("k2.combine.xo", "the last live chunk is left out", is_k2)
class ChunkLost(K2):
    def combined(self, rank: int, parts: Split, klen: Tensor) -> Tensor:
        shorter = (klen - self.order.chunk).clamp_min(1) * (klen > 0)
        return super().combined(rank, parts, shorter)


@planted("k2.combine.xo", "the output is rotated forward instead of back", is_k2)
class RotatedForward(K2):
    def rotated_back(self, o: Tensor) -> Tensor:
        half = self.sizes.rope // 2
        table = self.k2case.cos_sin[self.k2case.pos]
        return attention.rotate_back(o.to(F32), table[:, :half], -table[:, half:], self.sizes.nope)


@planted("k2.combine.xo", "the output is rounded to bf16 behind the rotation too", is_k2)
class RoundedAfterRotation(K2):
    def rotated_back(self, o: Tensor) -> Tensor:
        return super().rotated_back(o).to(BF16).to(F32)


@planted("k2.combine.xos", "codes are one too high", is_k2)
class OutputCodeHigh(K2):
    def xo(self, y: Tensor) -> Blocks:
        flat, group = y.flatten(1), self.sizes.group
        codes = (code_of(group_max(flat, group), self.flavour) + 1).clamp_max(254)
        return Blocks(quantise_with(flat, codes, self.flavour), codes, self.flavour)


@planted("k2.wo_a.x8b", "a weight block is scaled by its neighbour's code", is_k2)
class WoaScaleNext(K2):
    def z(self, rank: int, xo: Blocks) -> Tensor:
        own = self.back_weights[rank]
        shifted = replace(own, woa_s=own.woa_s.roll(1, 1))
        y = attention.grouped(xo.values(), shifted.values("woa"), self.sizes, self.order)
        return y.to(BF16)


@planted("k2.wo_a.x8b", "the second group reads the first group's heads",
         lambda bench: is_k2(bench) and bench.sizes.groups > 1)  # fmt: skip
class GroupsMixedUp(K2):
    def z(self, rank: int, xo: Blocks) -> Tensor:
        size = self.sizes
        first = xo.values()[:, : size.group_k].repeat(1, size.groups)
        return attention.grouped(first, self.back_weights[rank].values("woa"), size, self.order).to(BF16)


@planted("k2.wo_a.x8bs", "codes cover 64 rows", is_k2)
class WoaGroupsOf64(K2):
    def x8b(self, z: Tensor) -> Blocks:
        group = self.sizes.group
        wide = code_of(group_max(z, 2 * group), self.flavour).repeat_interleave(2, -1)
        return Blocks(quantise_with(z, wide, self.flavour), wide, self.flavour)


@planted("k2.wo_b.attn", "the last K step is lost", is_k2)
class WobStepLost(K2):
    def part(self, rank: int, x8b: Blocks) -> Tensor:
        x, w = x8b.values(), self.back_weights[rank].values("wob").clone()
        w[:, -32:] = 0.0
        return gemv_part(x, w, self.order).to(BF16)
