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
from flydsl.expr import const_expr
from flydsl.expr.typing import Float32, Int32

from . import lowlevel as ll
from . import mailbox, records, split_scores
from .build import Site, Tasks
from .context import WAVE, Context, each, renew
from .split_map import busy_waves, heads, query_row, record_row, tile
from .split_values import weigh


def key_count(c: Context, klen: Any, row: Any) -> Any:
    """Keys of a row, uniform; at device scope where this launch writes them."""
    if c.build.back.made_here:
        return ll.uniform(ll.buffer_load(ll.buffer(klen), row * 4, cache=ll.SC1))
    return ll.global_load(klen, row * 4, constant=True)


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
        scores = split_scores.scores(c, kept, valid, a["scale"].bitcast(Float32))
        fx.barrier()
        split_scores.weights(c, scores)
        fx.barrier()
        split_scores.statistics(c, task)
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
    key = first + tile(c) * 16 + (c.lane & 15)
    entry = _entry(c, a["kt"], row, key)
    loaded, scales = records.load(c, entry, a["caches"])
    return Int32(ll.ballot(entry != -1)), [*loaded, scales]


def _query_loads(c: Context, row: Any, thread: Any, waves: int, q: Any) -> list[Any]:
    """The row's queries, 16 bytes a thread and load, a head a wave and load."""
    base = q + fx.Int64(row) * (c.build.shape.q_rows * 2)
    step = waves * WAVE * 16
    return [ll.global_load(base, (thread * 16, step * i), count=4) for i in range(_query_rounds(c, waves))]


def _query_rounds(c: Context, waves: int) -> int:
    return heads(c) * c.build.shape.head_dim * 2 // (waves * WAVE * 16)


def _query_stores(c: Context, thread: Any, waves: int, loaded: list[Any]) -> None:
    spot = (thread >> 6) * query_row(c) + (thread & 63) * 16
    for i, v in enumerate(loaded):
        ll.lds_store(c.lds, (spot, c.build.back.split.q + i * waves * query_row(c)), v)


def _raw(c: Context, kept: list[Any]) -> None:
    """The lane's share of its key's record; rows of 584 bytes are aligned to 8."""
    s = c.build.back.split
    row = (tile(c) * 16 + (c.lane & 15)) * record_row(c)
    spot = row + (c.lane >> 4) * 16
    for p in range(records.pieces(c)):
        ll.lds_store(c.lds, (spot, s.raw + records.PIECE * p), kept[p], align=8)
    ll.lds_store(c.lds, (row, s.raw + c.build.shape.record_data), kept[-1])
