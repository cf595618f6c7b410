"""Planted bugs of the query and kv norms, the record, the key table and the rotation."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from .. import f32, front
from ..case import K1Case
from ..formats import F32, F64
from ..k1 import K1
from ..quant import Blocks, code_of, group_max, mxfp8, quantise_with
from .registry import has_keys, has_topk, planted, stores_norms

BF16 = torch.bfloat16


@planted("qkv.qx8", "the norms read the sum of the halves before its bf16 rounding", has_keys)
class QkvRoundingMissing(K1):
    def qkv(self, parts: Tensor) -> Tensor:
        return f32.ordered_sum(parts, 0)


@planted("qkv.qr", "the norms read the sum of the halves before its bf16 rounding", stores_norms)
class StoredQkvRoundingMissing(QkvRoundingMissing):
    pass


@planted("qkv.qx8", "the query norm divides by the kv width", has_keys)
class QueryNormWidth(K1):
    def lora_norm(self, value: Tensor, weight: Tensor, vector: int) -> Tensor:
        right = super().lora_norm(value, weight, vector)
        wrong = (right.to(F32) * (self.sizes.kv_dim / self.sizes.q_rank) ** 0.5).to(BF16)
        return wrong if value.shape[-1] == self.sizes.q_rank else right


@planted("qkv.qx8s", "a group's code is stored in its neighbour's place")
class QueryNeighboursCode(K1):
    def qx8(self, qn: Tensor) -> Blocks:
        right = super().qx8(qn)
        return replace(right, codes=right.codes.roll(1, -1))


def _turned_record(k1: K1, kn: Tensor, tail: Tensor) -> tuple[Tensor, Tensor]:
    """A record whose rotated part is `tail`."""
    data, scales = K1.record(k1, kn)
    octets = tail.to(BF16).contiguous().view(torch.uint8)
    return torch.cat([data[:, : k1.sizes.nope], octets], -1), scales


@planted("qkv.record_rope", "halves of the rotated dims are paired instead of neighbours")
class RecordRopePairing(K1):
    def record(self, kn: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = front.cos_sin_of(self.case, self.sizes)
        first, second = kn[:, self.sizes.nope :].to(F32).chunk(2, -1)
        tail = torch.cat([first * cos - second * sin, first * sin + second * cos], -1)
        return _turned_record(self, kn, tail)


@planted("qkv.record_rope", "the record is rotated by the next position")
class RecordPositionNext(K1):
    def record(self, kn: Tensor) -> tuple[Tensor, Tensor]:
        case = replace(self.case, pos=(self.case.pos + 1).clamp_max(len(self.case.cos_sin) - 1))
        return K1(case, self.weights, self.sizes, self.order).record(kn)


@planted("qkv.record_rope", "the norm's result is rotated before its bf16 rounding")
class RecordNormRoundingMissing(K1):
    def lora_norm(self, value: Tensor, weight: Tensor, vector: int) -> Tensor:
        right = super().lora_norm(value, weight, vector)
        if value.shape[-1] == self.sizes.q_rank:
            return right
        rstd = front.lora_norm_rstd(value, self.sizes.eps, self.order, vector)
        return (value.to(F32) * rstd[:, None]) * weight.to(F32)

    def record(self, kn: Tensor) -> tuple[Tensor, Tensor]:
        turned = front.rotate_tail(kn, *front.cos_sin_of(self.case, self.sizes), self.sizes.nope)
        return _turned_record(self, kn.to(BF16), turned[:, self.sizes.nope :])


@planted("qkv.record_nope", "the four bytes of a word are stored in reverse")
class RecordBytesReversed(K1):
    def record(self, kn: Tensor) -> tuple[Tensor, Tensor]:
        data, scales = super().record(kn)
        nope = data[:, : self.sizes.nope].reshape(len(data), -1, 4).flip(-1).flatten(1)
        return torch.cat([nope, data[:, self.sizes.nope :]], -1), scales


@planted("qkv.record_nope", "the record is quantised before the norm's bf16 rounding")
class RecordQuantisedEarly(RecordNormRoundingMissing):
    def record(self, kn: Tensor) -> tuple[Tensor, Tensor]:
        data, scales = K1.record(self, kn.to(BF16))
        codes = scales[:, : self.sizes.nope // self.sizes.record_group].to(torch.int32)
        early = quantise_with(kn[:, : self.sizes.nope].to(F64), codes, self.flavour)
        return torch.cat([early, data[:, self.sizes.nope :]], -1), scales


@planted("qkv.record_codes", "no floor of 1e-4 under a group's maximum", lambda case: _zero_row(case))
class RecordFloorMissing(K1):
    def record(self, kn: Tensor) -> tuple[Tensor, Tensor]:
        turned = self.turned(kn)
        nope = mxfp8(turned[:, : self.sizes.nope], self.sizes.record_group, self.flavour)
        return front.record_bytes(nope, turned[:, self.sizes.nope :], self.sizes)


def _zero_row(case: K1Case) -> bool:
    """Whether a live row's input is all zero."""
    empty = (case.res_in == 0).flatten(1).all(-1) & case.live
    return bool(empty.any())


@planted("qkv.record_codes", "record groups of 32 instead of 64")
class RecordGroupHalf(K1):
    def record(self, kn: Tensor) -> tuple[Tensor, Tensor]:
        data, scales = super().record(kn)
        nope = kn[:, : self.sizes.nope].to(F64)
        group = self.sizes.record_group
        half = code_of(group_max(nope, group // 2)[:, 0::2], self.flavour, 1e-4)
        quantised = Blocks(quantise_with(nope, half, self.flavour), half, self.flavour)
        data = torch.cat([quantised.data, data[:, self.sizes.nope :]], -1)
        return data, torch.cat([half.to(torch.uint8), scales[:, half.shape[-1] :]], -1)


@planted("qkv.swa_rest", "the padding byte of a scale word is not zero")
class RecordPaddingSet(K1):
    def record(self, kn: Tensor) -> tuple[Tensor, Tensor]:
        data, scales = super().record(kn)
        scales[:, -1] = 127
        return data, scales


@planted("qkv.swa_rest", "a padded row writes a record", lambda case: not bool(case.live.all()))
class PaddedRowWritten(K1):
    def cache(self, data: Tensor, scales: Tensor) -> Tensor:
        used = set(self.case.slot.tolist()) | set(self.case.swa_idx.flatten().tolist())
        states = len(self.case.swa) // self.case.swa_stride * self.case.swa_block
        free = next(s for s in range(states) if s not in used)
        slot = torch.where(self.case.live, self.case.slot, free)
        return front.write_records(replace(self.case, slot=slot), self.sizes, data, scales)


@planted("kt.klen", "positions are counted as compressed rows without the ratio",
         lambda case: has_topk(case) and case.ratio > 1)  # fmt: skip
class RatioIgnored(K1):
    def keys(self) -> tuple[Tensor, Tensor]:
        return front.key_table(replace(self.case, ratio=1), self.sizes)


@planted(
    "kt.kt", "the block table of the next request is read", lambda case: has_topk(case) and case.rows > 5
)
class NeighboursBlockTable(K1):
    def keys(self) -> tuple[Tensor, Tensor]:
        return front.key_table(replace(self.case, comp_bt=self.case.comp_bt.roll(1, 0)), self.sizes)


@planted("kt.kt", "compressed entries are not marked in bit 31", has_topk)
class CompressedUnmarked(K1):
    def keys(self) -> tuple[Tensor, Tensor]:
        kt, klen = super().keys()
        return torch.where(kt == -1, kt, kt & 0x7FFFFFFF), klen


@planted("kt.klen", "a padded row keeps its keys", lambda case: has_keys(case) and not bool(case.live.all()))
class PaddedRowHasKeys(K1):
    def keys(self) -> tuple[Tensor, Tensor]:
        case = replace(self.case, slot=self.case.slot.clamp_min(0), swa_lens=self.case.swa_lens.clamp_min(1))
        return front.key_table(case, self.sizes)


@planted("wq_b.q_rope", "halves of the rotated dims are paired instead of neighbours")
class QueryRopePairing(K1):
    def turned(self, value: Tensor) -> Tensor:
        right = super().turned(value)
        if value.dim() == 2:
            return right
        cos, sin = (v[:, None] for v in front.cos_sin_of(self.case, self.sizes))
        first, second = value[..., self.sizes.nope :].to(F32).chunk(2, -1)
        tail = torch.cat([first * cos - second * sin, first * sin + second * cos], -1).to(BF16)
        return torch.cat([right[..., : self.sizes.nope], tail], -1)


@planted("wq_b.q_rope", "the query is rotated backwards")
class QueryRotatedBack(K1):
    def turned(self, value: Tensor) -> Tensor:
        if value.dim() == 2:
            return super().turned(value)
        half = self.sizes.rope // 2
        table = self.case.cos_sin * torch.cat([torch.ones(half), -torch.ones(half)])
        back = K1(replace(self.case, cos_sin=table), self.weights, self.sizes, self.order)
        return K1.turned(back, value)


@planted("wq_b.q_rope", "the query is rotated before its bf16 rounding")
class QueryRoundingMissing(K1):
    def turned(self, value: Tensor) -> Tensor:
        right = super().turned(value)
        if value.dim() == 2:
            return right
        u = front.gemv_part(self._qx8.values(), self.weights.wqb_values, self.order)
        heads = torch.unflatten(u, -1, (self.sizes.heads, self.sizes.head_dim))
        cos, sin = (v[:, None] for v in front.cos_sin_of(self.case, self.sizes))
        tail = front.rotate_tail(heads, cos, sin, self.sizes.nope)[..., self.sizes.nope :]
        return torch.cat([right[..., : self.sizes.nope], tail.to(BF16)], -1)

    def wqb(self, qx8: Blocks) -> Tensor:
        self._qx8 = qx8
        return super().wqb(qx8)
