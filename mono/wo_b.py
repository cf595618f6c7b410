"""wo_b: this rank's partial of the attention output, pushed to every rank (attention.md 4.6).

A workgroup has one or two tasks of 16 hidden rows, a grid apart; both use one read of the activations. The
bf16 partial of a token goes out in quads of rows, two pairs a store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flydsl.expr as fx
from flydsl.expr.typing import Int32

from . import formats as fmt
from . import gemv, mailbox, passes, peers, rows
from . import lowlevel as ll
from .build import Gemv, Site, Tasks
from .context import Context, place


@dataclass(frozen=True)
class Products:
    """A workgroup's tasks: numbers, conditions (None where every workgroup has it), weights."""

    how: Gemv
    apart: int  # task numbers between two of a workgroup
    numbers: list[Any]
    lives: list[Any]
    weights: list[Any]


def _steps(how: Gemv) -> gemv.Steps:
    return gemv.Steps(Int32(0), how.steps)


def wo_b_weights(c: Context, tasks: Tasks, how: Gemv, data: Any, codes: Any) -> Products:
    """Issue the weight loads of the workgroup's tasks."""
    if tasks.span != c.build.workgroups or how.per_workgroup not in (1, 2):
        raise ValueError(
            f"wo_b: {how.per_workgroup} tasks on {tasks.span} workgroups; one or two on all are built"
        )
    matrix = gemv.Matrix(data, codes, how.rows, how.k)
    own = place(c, tasks)
    numbers, lives, weights = [], [], []
    for k in range(how.per_workgroup):
        number = own + k * tasks.span
        live = None if tasks.count >= (k + 1) * tasks.span else number < tasks.count
        numbers.append(number)
        lives.append(live)
        tile = number if live is None else fx.min(number, Int32(tasks.count - 1))
        weights.append(gemv.load_weights(c, matrix, tile, _steps(how), live))
    return Products(how, tasks.span, numbers, lives, weights)


def _slice(c: Context, how: Gemv) -> rows.Slice:
    back, k = c.build.back, how.k
    return rows.Slice(k, k, Int32(back.x8b), Int32(back.x8bs), back.xl, back.xsl)


@ll.device
def _out(c: Context, tasks: Products, out: peers.Outbox, region: int, first: Any, live_rows: Any) -> None:
    """Thread (token, task, quad): four rows of a token, two pairs to every rank."""
    n, hidden = len(tasks.numbers), c.build.shape.hidden
    quad, k, t = c.tid & 3, (c.tid >> 2) & (n - 1), c.tid >> (1 + n.bit_length())
    number = tasks.numbers[0] + k * tasks.apart
    if (t < live_rows) & (number < hidden // gemv.TILE_ROWS):
        spot = k * gemv.SUM_BYTES + quad * 256 + t * 16
        y = gemv.sum_waves(c, c.build.back.red, spot, 4)
        words = [fmt.bf16_pair(c.build.how, y[i], y[i + 1]) for i in (0, 2)]
        peers.push(c, out, region, first + t, number * gemv.TILE_ROWS + quad * 4, words)


@ll.device
def wo_b_product(c: Context, site: Site, tasks: Products, a_tasks: int, region: int) -> None:
    """Wait for all ``a_tasks`` tasks of wo_a, then all passes: pairs in every rank's ``region``."""
    out = peers.outbox(c)
    mailbox.await_flags(c, site, Int32(c.build.back.ardy), a_tasks, 8)
    s = _slice(c, tasks.how)
    passes.all_passes(
        c,
        s,
        passes.first_rows(c, s),
        lambda first: None,
        lambda live: gemv.multiply(
            c, s, _steps(tasks.how), live, tasks.weights, c.build.back.red, tasks.lives
        ),
        lambda first, live, early: _out(c, tasks, out, region, first, live),
    )
    fx.barrier()  # the FFN half lays its own members over the LDS
