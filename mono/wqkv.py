"""wqkv: the fused wq_a / wkv projection, 112 row tiles x 2 K halves, as fp32 partial sums.

Three calls, so that a generated kernel can put other work between them: the weights go out before the
seam's norm, the first activation rows before the weights of wq_b, the product last. Memory answers in
order, so what is needed first is asked for first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flydsl.expr as fx
from flydsl.expr.typing import Int32

from . import gemv, mailbox, passes, rows
from . import lowlevel as ll
from .build import Gemv, Site, Tasks
from .context import Context


@dataclass(frozen=True)
class Part:
    """A workgroup's share: tile ``tile`` of K half ``half``; ``live``: it has one."""

    how: Gemv
    live: Any
    tile: Any
    half: Any
    steps: gemv.Steps
    weights: list[Any]


def wqkv_weights(c: Context, tasks: Tasks, how: Gemv, data: Any, codes: Any) -> Part:
    """Issue the weight loads of the workgroup's part; a workgroup without one loads nothing."""
    if tasks.count > tasks.span or how.parts != 2:
        raise ValueError(
            f"wqkv: {tasks.count} tasks on {tasks.span} workgroups and {how.parts} K parts; "
            "built are one task a workgroup and two parts"
        )
    part = c.workgroup - tasks.first
    live = fx.Uint32(part) < fx.Uint32(tasks.count)
    inside = live.select(part, Int32(0))
    half = (inside >= how.tiles).select(Int32(1), Int32(0))
    tile = inside - half * how.tiles
    steps = gemv.Steps(half * how.steps, how.steps)
    matrix = gemv.Matrix(data, codes, how.rows, how.k * how.parts)
    return Part(how, live, tile, half, steps, gemv.load_weights(c, matrix, tile, steps, live))


def _slice(c: Context, part: Part) -> rows.Slice:
    front, scratch, k = c.build.front, c.build.scratch, part.how.k
    return rows.Slice(
        k,
        k * part.how.parts,
        scratch.x8 + part.half * k,
        scratch.x8s + part.half * (k // 8),
        front.xl,
        front.xsl,
    )


@ll.device
def wqkv_rows(c: Context, site: Site, part: Part) -> list[Any]:
    """Wait until every row is published, then issue the loads of the first pass's rows."""
    width = c.build.pass_width
    s = _slice(c, part)
    regs = rows.nothing(c, s, width)
    if part.live:
        mailbox.await_flags(c, site, c.build.scratch.xrdy + part.half * 8, c.build.shape.rows, 16)
        regs = rows.load_rows(c, s, Int32(0), width, regs)
    return regs


@ll.device
def _sums(c: Context, part: Part, first: Any, live_rows: Any) -> None:
    shape = c.build.shape
    r, t = c.tid & 15, c.tid >> 4
    if t < live_rows:
        spot = (r >> 2) * 256 + t * 16 + (r & 3) * 4
        total = gemv.sum_waves(c, c.build.front.red, spot)
        region = c.build.scratch.qkvp + part.half * (shape.rows * shape.qkv_rows * 8) + part.tile * 128
        mailbox.put(
            c, region + first * (shape.qkv_rows * 8), t * (shape.qkv_rows * 8) + r * 8, total.bitcast(Int32)
        )


@ll.device
def wqkv_product(c: Context, part: Part, regs: list[Any]) -> None:
    """All passes of the part; QKVP pairs to the scratch."""
    if part.live:
        passes.all_passes(
            c,
            _slice(c, part),
            regs,
            lambda first: None,
            lambda live: gemv.multiply(
                c, _slice(c, part), part.steps, live, [part.weights], c.build.front.red
            ),
            lambda first, live, early: _sums(c, part, first, live),
        )
