"""combine: the chunks of a row merged with the sink, rotated back and quantised (attention.md 4.3, 4.4).

A wave is a head, a lane eight of its dims. The chunks' statistics are one load: lane i of every 16 holds
chunk i, so the maximum is four DPP moves and each chunk's weight is computed once and read as a scalar. A
chunk behind the row's last key was never written; its loads go past a descriptor that ends with the live
chunks and read zeros without traffic.
"""

from __future__ import annotations

import math
from typing import Any

import flydsl.expr as fx
from flydsl.expr import const_expr, range_constexpr
from flydsl.expr.typing import Float32, Int32

from . import formats as fmt
from . import lanes, mailbox
from . import lowlevel as ll
from .build import Site, Tasks
from .context import Context, each, renew
from .split import key_count
from .split_map import heads
from .split_scores import NEG

LOG2E = 1.0 / math.log(2.0)
DIMS = 8  # of a lane
MOST_CHUNKS = 16  # a row of lanes


def combine(
    c: Context, tasks: Tasks, ready: Site | None, site: Site, klen: Any, sink: Any, pos: Any, cos_sin: Any
) -> None:
    """Eight heads of a row a task: XO, XOS and its flag. A row without keys becomes exact zeros.

    ``ready``: where the row's key table is awaited, if this launch makes it.
    """
    chunks = c.build.back.split.chunks
    if chunks > MOST_CHUNKS or c.build.shape.head_dim != 64 * DIMS:
        raise ValueError(
            f"combine: {chunks} chunks of {c.build.shape.head_dim} dims; at most 16 of 512 are built"
        )
    a = {"ready": ready, "site": site, "klen": klen, "sink": sink, "pos": pos, "cos_sin": cos_sin}
    c = renew(c)
    each(c, tasks, lambda task: _task(c, task, a))


@ll.device
def _task(c: Context, task: Any, a: dict[str, Any]) -> None:
    back, waves, s = c.build.back, c.build.waves, c.build.back.split
    row = Int32(fx.Uint32(task) // (heads(c) // waves))
    head = (task - row * (heads(c) // waves)) * waves + c.wave
    if const_expr(a["ready"] is not None):
        mailbox.await_flags(c, a["ready"], back.krdy + row * 8, 1, 8)
    live = Int32(fx.Uint32(key_count(c, a["klen"], row) + (s.chunk - 1)) // s.chunk)
    sink = ll.global_load(a["sink"], head * 4, Float32, constant=True) * Float32(LOG2E)
    angle = _angle(c, row, a)
    mailbox.await_flags(c, a["site"], back.srdy + row * (s.chunks * 8), live, 8)
    words = _merged(c, row, head, live, sink)
    y = _turned_back(c, fmt.unpack(words), angle)
    _quantised(c, row, head, y)
    mailbox.publish(c, back.crdy + task * 8, 1)


@ll.device
def _angle(c: Context, row: Any, a: dict[str, Any]) -> list[Any]:
    """Cosines and sines of the lane's four pairs, in the lanes of rotated dims."""
    shape = c.build.shape
    angle = [ll.undef(Float32, 4) for _ in range(2)]
    if c.lane >= shape.nope // DIMS:
        table = a["cos_sin"] + fx.Int64(ll.global_load(a["pos"], row * 8, constant=True)) * (shape.rope * 4)
        at = c.lane * (DIMS * 2) - shape.nope * 2
        angle[0] = ll.global_load(table, at, Float32, 4)
        angle[1] = ll.global_load(table, at + shape.rope * 2, Float32, 4)
    return angle


# ------------------------------------------------------------------ chunks


def _statistics(c: Context, row: Any, head: Any, live: Any) -> tuple[Any, Any]:
    """(largest score, sum) of chunk lane mod 16; of a chunk that is not live (NEG, 0)."""
    s, per_chunk = c.build.back.split, heads(c) * 8
    chunk = c.lane & (MOST_CHUNKS - 1)
    region = c.build.back.pstat + row * (s.chunks * per_chunk) + head * 8
    at = fx.min(chunk, Int32(s.chunks - 1)) * per_chunk
    got = ll.buffer_load(c.scratch, at, region, Float32, 2)
    alive = chunk < live
    return alive.select(got[0], Float32(NEG)), alive.select(got[1], Float32(0.0))


def _partials(c: Context, row: Any, head: Any, live: Any) -> list[Any]:
    """Four words of every chunk's partial, zeros of those that are not live."""
    shape, s = c.build.shape, c.build.back.split
    per_chunk = shape.q_rows * 2
    first = c.scratch_base + fx.Int64(row * (s.chunks * per_chunk) + c.build.back.part)
    held = ll.buffer(first, live * per_chunk)
    at = head * (shape.head_dim * 2) + c.lane * (DIMS * 2)
    return [ll.buffer_load(held, at + k * per_chunk, count=4) for k in range(s.chunks)]


def _merged(c: Context, row: Any, head: Any, live: Any, sink: Any) -> list[Any]:
    """bf16 of the softmax-weighted values, four words of two dims; the sink counts in the denominator."""
    n = c.build.back.split.chunks
    top, total = _statistics(c, row, head, live)
    parts = _partials(c, row, head, live)
    most = ll.max_plain(lanes.row_max_plain(top), sink)
    weight = ll.exp2(top - most)
    share = total * weight
    whole = ll.exp2(sink - most)
    sums = [fx.Vector.filled(2, 0.0, Float32) for _ in range(4)]
    for k in range(n):
        whole = whole + ll.read_lane(share, k)
        w = ll.read_lane(weight, k)
        by = fx.Vector.from_elements([w, w], Float32)
        for i in range(4):
            two = fx.Vector.from_elements([fmt.bf16_low(parts[k][i]), fmt.bf16_high(parts[k][i])], Float32)
            sums[i] = sums[i] + two * by
    inverse = Float32(1.0) / whole
    return [fmt.bf16_pair(c.build.how, v[0] * inverse, v[1] * inverse) for v in sums]


# ------------------------------------------------------------------ rotation and MXFP8


@ll.device
def _turned_back(c: Context, o: list[Any], angle: list[Any]) -> list[Any]:
    """The inverse rotation of the last dims, fp32 and not rounded."""
    y = list(o)
    if c.lane >= c.build.shape.nope // DIMS:
        cosine, sine = angle
        for i in range_constexpr(4):
            even, odd = o[2 * i], o[2 * i + 1]
            y[2 * i] = even * cosine[i] + odd * sine[i]
            y[2 * i + 1] = odd * cosine[i] - even * sine[i]
    return y


@ll.device
def _quantised(c: Context, row: Any, head: Any, y: list[Any]) -> None:
    how, shape, back = c.build.how, c.build.shape, c.build.back
    code = fmt.scale_code(how, lanes.quad_max(fmt.amax32(how, y)), fmt.MX_FLOOR, bits=32)
    packed = fmt.pack8(y, fmt.multiplier(code))
    mailbox.store(c, back.xo + row * shape.q_rows + head * shape.head_dim, c.lane * DIMS, packed)
    if (c.lane & 3) == 0:
        codes = back.xos + row * (shape.q_rows // 8) + head * (shape.head_dim // 8)
        mailbox.store(c, codes, c.lane, code)
