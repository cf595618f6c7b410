"""The scores of split: q . k of the wave's key tile, and the softmax numerators over the chunk.

C of a score MFMA has keys 4 g + i in lane group g and head lane mod 16. Tile maxima and sums meet in LDS, so
that every tile's numerators are taken against the chunk's maximum. No key scores NEG; numerators are taken
against at least FLOOR, so that it weighs exactly 0, in a chunk without any key too. A NaN may lose a maximum:
its numerator is NaN and with it the sum.
"""

from __future__ import annotations

from typing import Any

import flydsl.expr as fx
from flydsl.expr import const_expr, range_constexpr
from flydsl.expr.typing import Float32, Int32

from . import formats as fmt
from . import lanes, mailbox, records
from . import lowlevel as ll
from .context import Context
from .split_map import (
    HEAD_TILE,
    busy_waves,
    head_of,
    heads,
    query_row,
    statistic,
    tile,
    wave_heads,
    weight_row,
)

NEG = -3.4028234663852886e38  # the score of no key
FLOOR = NEG * (1 - 2.0**-10)


@ll.device
def scores(c: Context, kept: list[Any], valid: Any, scale: Any) -> list[Any]:
    """Scores of keys 4 g + i and head lane mod 16, four a head tile; the tile's maxima to LDS."""
    out = [ll.undef(Float32) for _ in range(4 * wave_heads(c))]
    if const_expr(busy_waves(c) == c.build.waves):
        out = _tile_scores(c, kept, valid, scale)
    else:
        if c.wave < busy_waves(c):
            out = _tile_scores(c, kept, valid, scale)
    return out


@ll.device
def _tile_scores(c: Context, kept: list[Any], valid: Any, scale: Any) -> list[Any]:
    sums = _products(c, kept)
    bits = valid >> ((c.lane >> 4) * 4)
    out: list[Any] = []
    for h in range_constexpr(wave_heads(c)):
        four = [((bits & (1 << i)) != 0).select(sums[h][i] * scale, Float32(NEG)) for i in range(4)]
        top = ll.max_plain(ll.max_plain(four[0], four[1]), ll.max_plain(four[2], four[3]))
        top = lanes.across(c, lanes.across(c, top, 32, ll.max_plain), 16, ll.max_plain)
        if c.lane < HEAD_TILE:
            ll.lds_store(c.lds, statistic(c, head_of(c, h), 0) + tile(c) * 4, top)
        out += four
    return out


def _products(c: Context, kept: list[Any]) -> list[Any]:
    """q . k in 32-dim steps: of each 64 dims the first, then the second half of a lane's 16; then RoPE's."""
    how, shape, s = c.build.how, c.build.shape, c.build.back.split
    sums = [fx.Vector.filled(4, 0.0, Float32) for _ in range(wave_heads(c))]
    group = c.lane >> 4
    rows = [head_of(c, h) * query_row(c) for h in range(wave_heads(c))]

    def step(keys: Any, lane: Any, offset: int) -> None:
        for h, row in enumerate(rows):
            query = ll.lds_load(c.lds, (row + lane, s.q + offset), Int32, 4)
            sums[h] = ll.mfma_bf16(how.bf16_k, keys, query, sums[h])

    blocks = shape.nope // records.PIECE
    for b in range(blocks):
        by = records.scale(kept[-1], b)
        for half in range(2):
            words = [kept[b][2 * half + k] for k in range(2)]
            keys = [records.two_dims(how, w, by, high) for w in words for high in (False, True)]
            step(fx.Vector.from_elements(keys, Int32), group * 32, 2 * records.PIECE * b + 16 * half)
    for b in range(blocks, records.pieces(c)):
        at = shape.nope * 2 + (b - blocks) * records.PIECE
        step(kept[b], group * 16, at)
    return sums


# ------------------------------------------------------------------ softmax numerators


@ll.device
def weights(c: Context, kept: list[Any]) -> None:
    """exp2(score - the chunk's maximum): bf16 to LDS for the values, fp32 sums of each key tile."""
    if const_expr(busy_waves(c) == c.build.waves):
        _tile_weights(c, kept)
    else:
        if c.wave < busy_waves(c):
            _tile_weights(c, kept)


def _over_tiles(c: Context, head: Any, kind: int, op: Any) -> Any:
    """``op`` over a head's key tiles in ascending order."""
    spot, n = statistic(c, head, kind), c.build.back.split.key_tiles
    got = [ll.lds_load(c.lds, (spot, 16 * k), count=4) for k in range(n // 4)]
    parts = [v[k] for v in got for k in range(4)]
    total = parts[0]
    for v in parts[1:]:
        total = op(total, v)
    return total


@ll.device
def _tile_weights(c: Context, kept: list[Any]) -> None:
    s = c.build.back.split
    for h in range_constexpr(wave_heads(c)):
        head = head_of(c, h)
        top = ll.max_plain(_over_tiles(c, head, 0, ll.max_plain), Float32(FLOOR))
        p = [ll.exp2(v - top) for v in kept[4 * h : 4 * h + 4]]
        total = lanes.across(c, (p[0] + p[2]) + (p[1] + p[3]), 32, lanes.add)
        total = lanes.across(c, total, 16, lanes.add)
        words = [fmt.bf16_pair(c.build.how, p[k], p[k + 1]) for k in (0, 2)]
        spot = head * weight_row(c) + tile(c) * 32 + (c.lane >> 4) * 8
        ll.lds_store(c.lds, (spot, s.p), fx.Vector.from_elements(words, Int32))
        if c.lane < HEAD_TILE:
            ll.lds_store(c.lds, statistic(c, head, 1) + tile(c) * 4, total)


@ll.device
def statistics(c: Context, task: Any) -> None:
    """(largest score, sum) of each head to PSTAT."""
    n = heads(c)
    if c.tid < n:
        top = _over_tiles(c, c.tid, 0, ll.max_plain)
        total = _over_tiles(c, c.tid, 1, lanes.add)
        both = fx.Vector.from_elements([top, total], Float32)
        mailbox.store(c, c.build.back.pstat + task * (n * 8), c.tid * 8, both)
