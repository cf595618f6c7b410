"""Router: logits of every expert, 16 gate rows x one K part x one group of rows a task, as fp32 part sums.

Two calls: the gate rows go out early, the product follows once the normed rows exist. Both operands go
straight to registers: a lane's 16 bytes are eight columns of a row, of the weights as of the activations. A
wave takes the steps w, w + 8, ... of 32 columns of its part; the waves' sums meet in LDS in wave order (FFN
math 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flydsl.expr as fx
from flydsl.expr import const_expr
from flydsl.expr.typing import Float32, Int32

from . import gemv, mailbox
from . import lowlevel as ll
from .build import Gemv, Site, Tasks
from .context import Context, place, renew

STEP = 32  # columns
TOKENS = 16  # columns of an MFMA


@dataclass(frozen=True)
class Part:
    """A workgroup's share: gate rows of ``tile``, K part ``part``, rows from ``first`` on; ``live``: it has
    one."""

    how: Gemv
    live: Any
    tile: Any
    part: Any
    first: Any
    weights: list[Any]


def _steps(c: Context, how: Gemv) -> int:
    """Steps of a wave."""
    steps, rest = divmod(how.k, STEP * c.build.waves)
    if rest:
        raise ValueError(f"router: a K part of {how.k} columns is no whole number of steps for every wave")
    return steps


def _offsets(c: Context, how: Gemv, part: Any) -> tuple[Any, Any]:
    """(a lane's byte in a row of 16, the wave's first byte) of a bf16 matrix of whole rows."""
    lane = (c.lane & 15) * (how.k * how.parts * 2) + (c.lane >> 4) * 16
    return lane, part * (how.k * 2) + c.wave * (STEP * 2)


def router_weights(c: Context, tasks: Tasks, how: Gemv, gate_w: Any) -> Part:
    """Issue the loads of the workgroup's gate rows; a workgroup without a task loads nothing."""
    if tasks.count > tasks.span:
        raise ValueError(f"router: {tasks.count} tasks on {tasks.span} workgroups; one each is built")
    mix = c.build.ffn.mix
    task = place(c, tasks)
    live = fx.Uint32(task) < fx.Uint32(tasks.count)
    task = live.select(task, Int32(0))
    group = Int32(fx.Uint32(task) // (how.tiles * how.parts))
    inside = task - group * (how.tiles * how.parts)
    part = Int32(fx.Uint32(inside) % how.parts)
    tile = Int32(fx.Uint32(inside) // how.parts)
    lane, first = _offsets(c, how, part)
    buf = ll.buffer(gate_w, live.select(Int32(how.rows * how.k * how.parts * 2), Int32(0)))
    base = tile * (gemv.TILE_ROWS * how.k * how.parts * 2) + first
    weights = [
        ll.buffer_load(buf, lane + i * (STEP * 2 * c.build.waves), base, count=4, cache=ll.NT)
        for i in range(_steps(c, how))
    ]
    return Part(how, live, tile, part, group * mix.router_rows, weights)


def router_product(c: Context, site: Site, part: Part) -> None:
    """Wait for the group's normed rows, then LOGIT pairs of all of them."""
    _run(renew(c), site, part)


@ll.device
def _run(c: Context, site: Site, part: Part) -> None:
    rows, group = c.build.shape.rows, c.build.ffn.mix.router_rows
    if part.live:
        count = fx.min(Int32(group), rows - part.first)
        mailbox.await_flags(c, site, c.build.ffn.scratch.xrdy + part.first * 8, count, 8)
        if const_expr(group <= TOKENS):
            _tokens(c, part, part.first, count)
        else:
            for t in range(0, (group + TOKENS - 1) // TOKENS, 1, unroll=1):  # type: ignore[call-overload]
                done = Int32(t) * TOKENS
                _tokens(c, part, part.first + done, count - done)


@ll.device
def _tokens(c: Context, part: Part, first: Any, count: Any) -> None:
    """Sixteen rows: ``count`` of them are live, at least one."""
    f, how, red = c.build.ffn, part.how, c.build.ffn.lds.red
    row_bytes = how.k * how.parts * 2
    _, wave = _offsets(c, how, part.part)
    token = first + fx.min(c.lane & 15, count - 1)
    lane = token * row_bytes + (c.lane >> 4) * 16
    at = wave + f.scratch.normed
    stride = STEP * 2 * c.build.waves
    x = [ll.buffer_load(c.scratch, lane + i * stride, at, count=4) for i in range(len(part.weights))]
    acc = fx.Vector.filled(4, 0.0, Float32)
    for w, v in zip(part.weights, x, strict=True):
        acc = ll.mfma_bf16(c.build.how.bf16_k, w, v, acc)
    ll.lds_store(c.lds, (c.wave * 1024 + c.lane * 16, red), acc)
    fx.barrier()
    r, t = c.tid & 15, c.tid >> 4
    if t < fx.min(count, Int32(TOKENS)):
        total = gemv.sum_waves(c, red, (r >> 2) * 256 + t * 16 + (r & 3) * 4)
        region = f.scratch.logit + part.tile * (gemv.TILE_ROWS * how.parts * 8) + part.part * 8
        row = first * (f.mix.experts * how.parts * 8)
        at_lane = t * (f.mix.experts * how.parts * 8) + r * (how.parts * 8)
        mailbox.put(c, region + row, at_lane, total.bitcast(Int32))
    fx.barrier()
