"""Scratch and peer regions of K2 and the FFN launch as tensors with names, and back (see regions.py).

Layouts: attention sheet 5.7 and 7, FFN structure 2.1 and 4. The two peer regions of the half that a launch
used are named `attn` (partials of wo_b) and `ffn` (partials of down). Orders of bytes inside X8R and MID and
of the codes in MIDS are fields of `LayerOrder`; here everything comes out in natural column order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from .attention_back import Split, live_chunks
from .experts import Picks
from .ffn import FfnOutputs, RankFfn
from .formats import F32, FLAVOURS
from .k2 import K2Outputs, RankBack
from .launch import Launch
from .layer_sizes import LayerOrder, LayerSizes
from .quant import Blocks
from .regions import pairs_of, words_of

BF16 = torch.bfloat16
EVEN_ODD = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])  # column at each place of an 8-byte chunk
BACK_REGIONS = ("part", "pstat", "srdy", "xo", "xos", "crdy", "x8b", "x8bs", "ardy", "attn")
FFN_REGIONS = (
    "attn", "lin", "pmix", "normed", "xrdy_moe", "x8r", "x8rs", "x8", "x8s", "x8rdy", "logit", "route",
    "smid", "smq", "smc", "mid", "mids", "ugf", "ffn",
)  # fmt: skip


@dataclass(frozen=True)
class Pairs:
    """Mailbox pairs: values and tags, both of the region's logical shape."""

    value: Tensor
    tags: Tensor


@dataclass(frozen=True)
class BackIntermediates:
    """What K2's attention back left on one rank; S rows, N chunks, H heads."""

    split: Split
    srdy: Tensor  # int32 [S, N, 2]
    xo: Blocks  # [S, H * head_dim]
    crdy: Tensor  # int32 [S, H / 8, 2]
    x8b: Blocks  # [S, o_rows]
    ardy: Tensor  # int32 [tasks, 2]
    attn: Pairs  # bf16 [tp, S, D], tags [tp, S, D / 2]


@dataclass(frozen=True)
class FfnIntermediates:
    """What the FFN half left on one rank; S rows, E experts, K picks, I shared columns."""

    attn: Pairs  # bf16 [tp, S, D]
    lin: Pairs  # bf16 [S, D]
    pmix: Pairs  # f32 [slices, S, mix + 1]
    normed: Tensor  # bf16 [S, D]
    xrdy: Tensor  # int32 [S, 2]
    x8r: Blocks  # [S, D]
    x8: Blocks  # [S, D]
    x8rdy: Tensor  # int32 [S, 2]
    logit: Pairs  # f32 [parts, S, E]
    ids: Tensor  # int32 [copies, S, K]
    weights: Tensor  # f32 [copies, S, K]
    route_tags: Tensor  # int32 [copies, S, 2 K]
    smid: Pairs  # f32 [S, I]
    sm: Blocks  # [S, I]
    smq_tags: Tensor  # int32 [S, I / 4]
    smc_tags: Tensor  # int32 [S, I / 32]
    mid: Blocks  # [n, inter]
    ugf: Tensor  # int32 [tasks, 2]
    ffn: Pairs  # bf16 [tp, S, D]


# ------------------------------------------------------------------ byte orders


def _chunked(data: Tensor, places: Tensor) -> Tensor:
    return torch.unflatten(data, -1, (-1, 8))[..., places].flatten(-2)


def mid_places(columns: int) -> Tensor:
    """Place of every column in a lane-grouped MID row (FFN math 4.4)."""
    c = torch.arange(columns)
    inner = torch.argsort(EVEN_ODD)[c % 8]
    return c // 128 * 128 + 32 * (c % 32 // 8) + 8 * (c % 128 // 32) + inner


def mids_places(groups: int, order: LayerOrder, sizes: LayerSizes) -> Tensor:
    """Place of every group's code in a MIDS row."""
    g = torch.arange(groups)
    return g % 4 * (sizes.inter_padded // 128) + g // 4 if order.mids_by_step else g


def _places(order: LayerOrder, sizes: LayerSizes) -> Tensor:
    return mid_places(sizes.inter) if order.mid_order == "lane_grouped" else torch.arange(sizes.inter)


def up_tasks(ids: Tensor, order: LayerOrder, sizes: LayerSizes) -> int:
    """Up/gate tasks of a step: units times parts of an expert's columns."""
    return Picks(ids).units(order.pick_tile) * ceil(sizes.inter / sizes.group / order.up_groups)


# ------------------------------------------------------------------ unpack


def _pairs(region: Tensor, dtype: torch.dtype, *shape: int) -> Pairs:
    words = words_of(region, *shape, 2)
    value = words[..., 0].contiguous().view(dtype)
    return Pairs(value, words[..., 1])


def _octets(region: Tensor, rows: int, width: int) -> Tensor:
    return words_of(region, rows, width // 4).view(torch.uint8).reshape(rows, width)


def _missing(regions: Mapping[str, Tensor], names: Sequence[str]) -> None:
    missing = [name for name in names if name not in regions]
    if missing:
        raise KeyError(f"scratch regions missing: {', '.join(missing)}")


def unpack_back(
    regions: Mapping[str, Tensor], sizes: LayerSizes, order: LayerOrder, rows: int, fp8: str
) -> BackIntermediates:
    """Regions of the attention back. KeyError with the names that are missing, ValueError if one is short."""
    _missing(regions, BACK_REGIONS)
    heads, chunks, flavour = sizes.heads, order.chunks(sizes), FLAVOURS[fp8]
    stat = words_of(regions["pstat"], rows, chunks, heads, 2).view(F32)
    part = words_of(regions["part"], rows, chunks, heads, sizes.head_dim // 2).view(BF16)
    wide, narrow = heads * sizes.head_dim, sizes.o_rows
    xo, xos = _octets(regions["xo"], rows, wide), words_of(regions["xos"], rows, wide // sizes.group)
    x8b, x8bs = _octets(regions["x8b"], rows, narrow), words_of(regions["x8bs"], rows, narrow // sizes.group)
    return BackIntermediates(
        split=Split(stat[..., 0], stat[..., 1], part), srdy=words_of(regions["srdy"], rows, chunks, 2),
        xo=Blocks(xo, xos, flavour), crdy=words_of(regions["crdy"], rows, -(-heads // 8), 2),
        x8b=Blocks(x8b, x8bs, flavour), ardy=words_of(regions["ardy"], narrow // sizes.group, 2),
        attn=_pairs(regions["attn"], BF16, sizes.tp, rows, sizes.hidden // 2),
    )  # fmt: skip


def unpack_ffn(
    regions: Mapping[str, Tensor], sizes: LayerSizes, order: LayerOrder, rows: int, fp8: str
) -> FfnIntermediates:
    """Regions of the FFN half. KeyError with the names that are missing, ValueError if one is short."""
    _missing(regions, FFN_REGIONS)
    d, k, group, flavour = sizes.hidden, sizes.picks, sizes.group, FLAVOURS[fp8]
    x8r = _octets(regions["x8r"], rows, d)
    x8r = _chunked(x8r, torch.argsort(EVEN_ODD)) if order.x8r_order == "even_odd" else x8r
    logit = _pairs(regions["logit"], F32, rows, sizes.experts, order.router_parts)
    route = words_of(regions["route"], order.route_copies, rows, 2 * k, 2)
    ids, width = route[..., :k, 0].contiguous(), sizes.shared_inter
    smq = words_of(regions["smq"], rows, width // 4, 2)
    smc = words_of(regions["smc"], rows, width // group, 2)
    sm = Blocks(smq[..., 0].contiguous().view(torch.uint8), smc[..., 0], flavour)
    (wide, words), picks = order.mid_rows(sizes), rows * k
    mid = _octets(regions["mid"], picks, wide)[:, _places(order, sizes)]
    mids = words_of(regions["mids"], picks, words)[:, mids_places(sizes.inter // group, order, sizes)]
    return FfnIntermediates(
        attn=_pairs(regions["attn"], BF16, sizes.tp, rows, d // 2),
        lin=_pairs(regions["lin"], BF16, rows, d // 2),
        pmix=_pairs(regions["pmix"], F32, order.slices(sizes), rows, sizes.mix + 1),
        normed=words_of(regions["normed"], rows, d // 2).view(BF16),
        xrdy=words_of(regions["xrdy_moe"], rows, 2),
        x8r=Blocks(x8r, words_of(regions["x8rs"], rows, d // group), flavour),
        x8=Blocks(_octets(regions["x8"], rows, d), words_of(regions["x8s"], rows, d // group), flavour),
        x8rdy=words_of(regions["x8rdy"], rows, 2),
        logit=Pairs(logit.value.permute(2, 0, 1), logit.tags.permute(2, 0, 1)), ids=ids,
        weights=route[..., k:, 0].contiguous().view(F32), route_tags=route[..., 1],
        smid=_pairs(regions["smid"], F32, rows, width), sm=sm, smq_tags=smq[..., 1], smc_tags=smc[..., 1],
        mid=Blocks(mid, mids, flavour), ugf=words_of(regions["ugf"], up_tasks(ids[0], order, sizes), 2),
        ffn=_pairs(regions["ffn"], BF16, sizes.tp, rows, d // 2),
    )  # fmt: skip


# ------------------------------------------------------------------ pack


def _flags(count: int, tag: int) -> Tensor:
    return pairs_of(torch.ones(count, dtype=torch.int32), tag)


def _data(value: Tensor) -> Tensor:
    return value.contiguous().view(torch.uint8).flatten().clone()


def pack_back(back: RankBack, attn: Tensor, live: Tensor, sizes: LayerSizes, tag: int) -> dict[str, Tensor]:
    """Regions (flat uint8) that the attention back leaves; `live` bool [S, N] are the units that ran."""
    rows = len(live)
    stat = torch.stack([back.split.top.to(F32), back.split.total.to(F32)], -1)
    flags = torch.stack([live.to(torch.int32), live.to(torch.int32) * tag], -1)
    return {
        "part": _data(back.split.part.to(BF16)),
        "pstat": _data(stat),
        "srdy": _data(flags),
        "xo": _data(back.xo.data),
        "xos": _data(back.xo.codes),
        "crdy": _flags(rows * -(-sizes.heads // 8), tag),
        "x8b": _data(back.x8b.data),
        "x8bs": _data(back.x8b.codes),
        "ardy": _flags(sizes.o_rows // sizes.group, tag),
        "attn": pairs_of(attn, tag),
    }


def _packed_mid(mid: Blocks, order: LayerOrder, sizes: LayerSizes) -> tuple[Tensor, Tensor]:
    """MID and MIDS rows; places behind the real columns keep 0."""
    wide, words = order.mid_rows(sizes)
    data = torch.zeros(len(mid.data), wide, dtype=torch.uint8)
    codes = torch.zeros(len(mid.data), words, dtype=torch.int32)
    data[:, _places(order, sizes)] = mid.data
    codes[:, mids_places(mid.codes.shape[1], order, sizes)] = mid.codes.to(torch.int32)
    return data, codes


def pack_ffn(
    out: FfnOutputs, rank: RankFfn, order: LayerOrder, sizes: LayerSizes, tag: int
) -> dict[str, Tensor]:
    """Regions (flat uint8) that the FFN half leaves on a rank."""
    rows, routing = out.lin.shape[0], out.routing
    x8r = _chunked(out.x8r.data, EVEN_ODD) if order.x8r_order == "even_odd" else out.x8r.data
    ids, weights = routing.ids.to(torch.int32), routing.weights.to(F32)
    route = torch.cat([ids, weights.contiguous().view(torch.int32)], -1)[None].repeat(
        order.route_copies, 1, 1
    )
    mid, mids = _packed_mid(rank.mid, order, sizes)
    smq = rank.sm.data.contiguous().view(torch.int32)
    return {
        "attn": pairs_of(out.attn, tag),
        "lin": pairs_of(out.lin, tag),
        "pmix": pairs_of(out.pmix.to(F32), tag),
        "normed": _data(out.normed),
        "xrdy_moe": _flags(rows, tag),
        "x8r": _data(x8r),
        "x8rs": _data(out.x8r.codes),
        "x8": _data(out.x8.data),
        "x8s": _data(out.x8.codes),
        "x8rdy": _flags(rows, tag),
        "logit": pairs_of(out.logit.to(F32).permute(1, 2, 0), tag),
        "route": pairs_of(route, tag),
        "smid": pairs_of(rank.smid.to(F32), tag),
        "smq": pairs_of(smq, tag),
        "smc": pairs_of(rank.sm.codes.to(torch.int32), tag),
        "mid": _data(mid),
        "mids": _data(mids),
        "ugf": _flags(up_tasks(ids, order, sizes), tag),
        "ffn": pairs_of(torch.stack([r.partial for r in out.ranks]), tag),
    }


# ------------------------------------------------------------------ whole launches


def ffn_launches(out: FfnOutputs, order: LayerOrder, sizes: LayerSizes, tag: int) -> list[Launch]:
    """What an FFN launch with these results leaves behind on every rank."""
    return [Launch(out.tensors(), pack_ffn(out, rank, order, sizes, tag), tag) for rank in out.ranks]


def k2_launches(
    out: K2Outputs, order: LayerOrder, sizes: LayerSizes, tag: int, keys_inside: bool = False
) -> list[Launch]:
    """What a K2 launch with these results leaves behind on every rank."""
    rows = out.ffn.lin.shape[0]
    live, outputs = live_chunks(out.klen[:rows], order, sizes), out.tensors(keys_inside)
    return [
        Launch(
            outputs,
            pack_back(own, out.ffn.attn, live, sizes, tag) | pack_ffn(out.ffn, rank, order, sizes, tag),
            tag,
        )
        for own, rank in zip(out.back, out.ffn.ranks, strict=True)
    ]
