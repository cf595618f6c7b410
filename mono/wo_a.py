"""wo_a: the grouped half of the output projection, its rows quantised for wo_b (attention.md 4.5).

A task is 32 rows of one group: two 16-row tiles, four waves each, every wave a run of K steps. The 32 rows
are one MXFP8 group of the next product, so eight lanes that hold four rows each finish it without LDS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flydsl.expr as fx
from flydsl.expr.typing import Int32

from . import formats as fmt
from . import gemv, lanes, mailbox, passes, rows
from . import lowlevel as ll
from .build import Gemv, Site, Tasks
from .context import Context, place
from .split_map import heads

TASK_ROWS = 32
TILES = TASK_ROWS // gemv.TILE_ROWS


@dataclass(frozen=True)
class Task:
    """A workgroup's task, its group of heads, its weights; ``live``: it has one."""

    how: Gemv
    live: Any
    number: Any
    group: Any
    steps: gemv.Steps
    weights: list[Any]


def wo_a_weights(c: Context, tasks: Tasks, how: Gemv, data: Any, codes: Any) -> Task:
    """Issue the weight loads of the workgroup's task; a workgroup without one loads nothing."""
    if tasks.count > tasks.span:
        raise ValueError(f"wo_a: {tasks.count} tasks on {tasks.span} workgroups; one a workgroup is built")
    own = place(c, tasks)
    live = fx.Uint32(own) < fx.Uint32(tasks.count)
    number = live.select(own, Int32(0))
    sharers = c.build.waves // TILES
    steps = gemv.Steps(Int32(0), how.steps, sharers)
    tile = number * TILES + (c.wave >> (sharers.bit_length() - 1))
    matrix = gemv.Matrix(data, codes, how.rows, how.k)
    group = Int32(fx.Uint32(number) // (c.build.back.o_rank // TASK_ROWS))
    return Task(how, live, number, group, steps, gemv.load_weights(c, matrix, tile, steps, live))


def _slice(c: Context, task: Task) -> rows.Slice:
    back, k = c.build.back, task.how.k
    data, codes = back.xo + task.group * k, back.xos + task.group * (k // 8)
    return rows.Slice(k, c.build.shape.q_rows, data, codes, back.xl, back.xsl)


@ll.device
def _out(c: Context, task: Task, first: Any, live_rows: Any) -> None:
    """Lane 8 t + q of the workgroup: rows 4 q .. + 3 of token t, bf16, then MXFP8 over the eight lanes."""
    how, back = c.build.how, c.build.back
    q, t = c.tid & 7, c.tid >> 3
    if t < live_rows:
        spot = (q >> 2) * (gemv.SUM_BYTES // TILES) + (q & 3) * 256 + t * 16
        y = gemv.sum_waves(c, back.red, spot, 4, c.build.waves // TILES)
        words = [fmt.bf16_pair(how, y[k], y[k + 1]) for k in (0, 2)]
        values = fmt.unpack(words)
        code = fmt.scale_code(how, lanes.eight_max(fmt.amax16(how, words, values)), fmt.MX_FLOOR)
        packed = fmt.pack4(values, fmt.multiplier(code))
        row = first * back.o_rows + task.number * TASK_ROWS
        mailbox.store(c, back.x8b + row, t * back.o_rows + q * 4, packed)
        if q == 0:
            row = first * (back.o_rows // 8) + task.number * 4
            mailbox.store(c, back.x8bs + row, t * (back.o_rows // 8), code)


@ll.device
def wo_a_product(c: Context, site: Site, task: Task) -> None:
    """Wait for every row of the group's heads, then all passes: X8B, X8BS and the task's flag."""
    back = c.build.back
    if task.live:
        per_row = heads(c) // c.build.waves * 8  # bytes of a row's flags: one for a group's eight heads
        mailbox.await_flags(c, site, back.crdy + task.group * 8, c.build.shape.rows, per_row)
        s = _slice(c, task)
        passes.all_passes(
            c,
            s,
            passes.first_rows(c, s),
            lambda first: None,
            lambda live: gemv.multiply(c, s, task.steps, live, [task.weights], back.red),
            lambda first, live, early: _out(c, task, first, live),
        )
        mailbox.publish(c, back.ardy + task.number * 8, 1)
