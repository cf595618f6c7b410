"""split: attention of one row over a chunk of its keys, all heads of the rank (attention.md 4.1).

Keys are loaded once, a 16-key tile a wave. Scores take them from registers, values from a raw copy in LDS:

- scores: wave w holds key tile w mod key_tiles; C of its MFMAs has keys 4 g + i in lane group g, head
  lane mod 16. Where there are more waves than key tiles, the others bring the queries to LDS meanwhile.
- values: wave w owns 64 dims of every head over all keys of the chunk; the last wave's are the rotated
  dims, which records hold as bf16.

What leaves is not normalised: (largest score, sum) and the weighted values of each head.
"""

from __future__ import annotations

from typing import Any

import flydsl.expr as fx
from flydsl.expr import const_expr, range_constexpr
from flydsl.expr.typing import Float32, Int32

from . import formats as fmt
from . import lanes, mailbox, records
from . import lowlevel as ll
from .build import Site, Tasks
from .context import WAVE, Context, each, renew
from .split_values import weigh

HEAD_TILE = 16
NEG = -3.4028234663852886e38  # the score of no key
FLOOR = NEG * (1 - 2.0**-10)  # scores are exponentiated against at least this: no key then weighs 0
PAD = 16  # bytes behind a head's queries in LDS: 16 heads start in different banks


def busy_waves(c: Context) -> int:
    """Waves that hold keys."""
    s = c.build.back.split
    return s.key_tiles * s.head_groups


def wave_heads(c: Context) -> int:
    """Head tiles of a wave's scores."""
    return heads(c) // HEAD_TILE // c.build.back.split.head_groups


def heads(c: Context) -> int:
    return c.build.shape.q_rows // c.build.shape.head_dim


def key_count(c: Context, klen: Any, row: Any, at: int = 0) -> Any:
    """klen[at + row], uniform; at device scope where this launch writes it."""
    if c.build.back.made_here:
        return ll.uniform(ll.buffer_load(ll.buffer(klen), (row + at) * 4, cache=ll.SC1))
    return ll.global_load(klen, (row + at) * 4, constant=True)


def _entry(c: Context, kt: Any, row: Any, key: Any) -> Any:
    spot = row * c.build.shape.keys * 4 + key * 4
    if c.build.back.made_here:
        return ll.buffer_load(ll.buffer(kt), spot, cache=ll.SC1)
    return ll.global_load(kt, spot)


def split(
    c: Context,
    tasks: Tasks,
    site: Site | None,
    q: Any,
    caches: records.Caches,
    kt: Any,
    klen: Any,
    qk_scale: Any,
) -> None:
    """A chunk of a row's keys a task: PART, PSTAT and its flag; nothing for a chunk behind the last key.

    ``site``: where the row's key table is awaited, if this launch makes it. ``qk_scale``: bits of the fp32
    factor that turns q . k into a base-2 score.
    """
    a = {"site": site, "q": q, "caches": caches, "kt": kt, "klen": klen, "scale": qk_scale}
    c = renew(c)
    each(c, tasks, lambda task: _task(c, task, a))


@ll.device
def _task(c: Context, task: Any, a: dict[str, Any]) -> None:
    s, back = c.build.back.split, c.build.back
    row = Int32(fx.Uint32(task) // s.chunks)
    first = (task - row * s.chunks) * s.chunk
    if const_expr(a["site"] is not None):
        mailbox.await_flags(c, a["site"], back.krdy + row * 8, 1, 8)
    if first < key_count(c, a["klen"], row):
        valid, kept = _load(c, row, first, a)
        fx.barrier()
        scores = _scores(c, kept, valid, a["scale"].bitcast(Float32))
        fx.barrier()
        _weights(c, scores)
        fx.barrier()
        _statistics(c, task)
        weigh(c, task)
        mailbox.publish(c, back.srdy + task * 8, 1)


# ------------------------------------------------------------------ keys and queries to LDS


@ll.device
def _load(c: Context, row: Any, first: Any, a: dict[str, Any]) -> tuple[Any, list[Any]]:
    """The wave's keys into registers and LDS, the row's queries into LDS."""
    s, busy, waves = c.build.back.split, busy_waves(c), c.build.waves
    kept = [ll.undef(Int32, 4) for _ in range(records.pieces(c))] + [ll.undef(Int32, 2)]
    valid = Int32(0)
    if const_expr(busy == waves):
        q = _query_loads(c, row, c.tid, waves, a["q"])
        valid, kept = _keys(c, row, first, a)
        _query_stores(c, c.tid, waves, q)
    else:
        if c.wave < busy:
            valid, kept = _keys(c, row, first, a)
        else:
            spare = c.tid - busy * WAVE
            _query_stores(c, spare, waves - busy, _query_loads(c, row, spare, waves - busy, a["q"]))
    if const_expr(s.head_groups == 1):
        if c.wave < busy:
            _raw(c, kept)
    else:
        if c.wave < s.key_tiles:
            _raw(c, kept)
    return valid, kept


def _keys(c: Context, row: Any, first: Any, a: dict[str, Any]) -> tuple[Any, list[Any]]:
    """(bit k: key k of the wave's tile exists, the lane's key as pieces and codes)."""
    key = first + _tile(c) * 16 + (c.lane & 15)
    entry = _entry(c, a["kt"], row, key)
    loaded, scales = records.load(c, entry, a["caches"])
    return Int32(ll.ballot(entry != -1)), [*loaded, scales]


def _tile(c: Context) -> Any:
    return c.wave & (c.build.back.split.key_tiles - 1)


def _query_loads(c: Context, row: Any, thread: Any, waves: int, q: Any) -> list[Any]:
    """The row's queries, 16 bytes a thread and load, a head a wave and load."""
    base = q + fx.Int64(row) * (c.build.shape.q_rows * 2)
    step = waves * WAVE * 16
    return [ll.global_load(base, (thread * 16, step * i), count=4) for i in range(_query_rounds(c, waves))]


def _query_rounds(c: Context, waves: int) -> int:
    return heads(c) * c.build.shape.head_dim * 2 // (waves * WAVE * 16)


def _query_row(c: Context) -> int:
    return c.build.shape.head_dim * 2 + PAD


def _query_stores(c: Context, thread: Any, waves: int, loaded: list[Any]) -> None:
    spot = (thread >> 6) * _query_row(c) + (thread & 63) * 16
    for i, v in enumerate(loaded):
        ll.lds_store(c.lds, (spot, c.build.back.split.q + i * waves * _query_row(c)), v)


def _raw(c: Context, kept: list[Any]) -> None:
    """The lane's share of its key's record; rows of 584 bytes are aligned to 8."""
    shape, s = c.build.shape, c.build.back.split
    row = (_tile(c) * 16 + (c.lane & 15)) * (shape.record_data + shape.record_scales)
    spot = row + (c.lane >> 4) * 16
    for p in range(records.pieces(c)):
        ll.lds_store(c.lds, (spot, s.raw + records.PIECE * p), kept[p], align=8)
    ll.lds_store(c.lds, (row, s.raw + shape.record_data), kept[-1])


# ------------------------------------------------------------------ scores


@ll.device
def _scores(c: Context, kept: list[Any], valid: Any, scale: Any) -> list[Any]:
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
            ll.lds_store(c.lds, _statistic(c, _head(c, h), 0) + _tile(c) * 4, top)
        out += four
    return out


def _head(c: Context, h: int) -> Any:
    """The lane's head in the wave's head tile ``h``."""
    s, first = c.build.back.split, h * HEAD_TILE
    if s.head_groups > 1:
        group = Int32(fx.Uint32(c.wave) // s.key_tiles)
        return group * (wave_heads(c) * HEAD_TILE) + (c.lane & 15) + first
    return (c.lane & 15) + first


def _statistic(c: Context, head: Any, kind: int) -> Any:
    """Where a head's maxima (kind 0) or sums (1) of all key tiles lie."""
    s = c.build.back.split
    return s.st + kind * (heads(c) * s.key_tiles * 4) + head * (s.key_tiles * 4)


def _products(c: Context, kept: list[Any]) -> list[Any]:
    """q . k in 32-dim steps: of each 64 dims the first, then the second half of a lane's 16; then RoPE's."""
    how, shape, s = c.build.how, c.build.shape, c.build.back.split
    sums = [fx.Vector.filled(4, 0.0, Float32) for _ in range(wave_heads(c))]
    group = c.lane >> 4
    rows = [_head(c, h) * _query_row(c) for h in range(wave_heads(c))]

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
def _weights(c: Context, scores: list[Any]) -> None:
    """exp2(score - the chunk's maximum): bf16 to LDS for the values, fp32 sums of each key tile."""
    if const_expr(busy_waves(c) == c.build.waves):
        _tile_weights(c, scores)
    else:
        if c.wave < busy_waves(c):
            _tile_weights(c, scores)


def _over_tiles(c: Context, head: Any, kind: int, op: Any) -> Any:
    """``op`` over a head's key tiles in ascending order."""
    spot, n = _statistic(c, head, kind), c.build.back.split.key_tiles
    got = [ll.lds_load(c.lds, (spot, 16 * k), count=4) for k in range(n // 4)]
    parts = [v[k] for v in got for k in range(4)]
    total = parts[0]
    for v in parts[1:]:
        total = op(total, v)
    return total


@ll.device
def _tile_weights(c: Context, scores: list[Any]) -> None:
    s = c.build.back.split
    for h in range_constexpr(wave_heads(c)):
        head = _head(c, h)
        top = ll.max_plain(_over_tiles(c, head, 0, ll.max_plain), Float32(FLOOR))
        p = [ll.exp2(v - top) for v in scores[4 * h : 4 * h + 4]]
        total = lanes.across(c, (p[0] + p[2]) + (p[1] + p[3]), 32, lanes.add)
        total = lanes.across(c, total, 16, lanes.add)
        words = [fmt.bf16_pair(c.build.how, p[k], p[k + 1]) for k in (0, 2)]
        spot = head * (s.chunk * 2 + 8) + _tile(c) * 32 + (c.lane >> 4) * 8
        ll.lds_store(c.lds, (spot, s.p), fx.Vector.from_elements(words, Int32))
        if c.lane < HEAD_TILE:
            ll.lds_store(c.lds, _statistic(c, head, 1) + _tile(c) * 4, total)


@ll.device
def _statistics(c: Context, task: Any) -> None:
    """(largest score, sum) of each head to PSTAT."""
    n = heads(c)
    if c.tid < n:
        top = _over_tiles(c, c.tid, 0, ll.max_plain)
        total = _over_tiles(c, c.tid, 1, lanes.add)
        both = fx.Vector.from_elements([top, total], Float32)
        mailbox.store(c, c.build.back.pstat + task * (n * 8), c.tid * 8, both)
