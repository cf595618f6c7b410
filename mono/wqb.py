"""wq_b: the query projection of the rank's heads, RoPE on each head's last dims, bf16 out.

A workgroup's tasks lie 256 tasks (4096 rows, eight heads) apart, so all of them are the same 16 dims of a
head: a workgroup rotates either all its rows or none, and one (cos, sin) a thread serves every task.
"""

from __future__ import annotations

from typing import Any

import flydsl.expr as fx
from flydsl.expr.typing import Float32, Int32

from . import formats as fmt
from . import gemv, mailbox, passes, rows
from . import lowlevel as ll
from .build import Gemv, Site
from .context import Context


def _steps(how: Gemv) -> gemv.Steps:
    return gemv.Steps(Int32(0), how.steps)


def wqb_weights(c: Context, how: Gemv, data: Any, codes: Any) -> list[Any]:
    """Issue the weight loads of the tasks of the workgroup: its number + k times the span; past it, none."""
    if how.per_workgroup * how.span != how.tiles or how.per_workgroup & (how.per_workgroup - 1):
        raise ValueError(f"wq_b: {how.tiles} tiles on {how.span} workgroups; a power of two each is built")
    matrix = gemv.Matrix(data, codes, how.rows, how.k)
    live, at = _live(c, how), c.workgroup
    at = at if live is None else live.select(at, Int32(0))
    return [
        gemv.load_weights(c, matrix, at + how.span * k, _steps(how), live) for k in range(how.per_workgroup)
    ]


def _live(c: Context, how: Gemv) -> Any:
    """Whether the workgroup has tasks; None where every one has."""
    return None if how.span == c.build.workgroups else fx.Uint32(c.workgroup) < fx.Uint32(how.span)


def _held(c: Context, how: Gemv, live_rows: Any) -> Any:
    """Rows whose sums the workgroup holds: none of them without a task."""
    live = _live(c, how)
    return live_rows if live is None else live.select(live_rows, Int32(0))


def _slice(c: Context) -> rows.Slice:
    k, front, scratch = c.build.shape.q_rank, c.build.front, c.build.scratch
    return rows.Slice(k, k, Int32(scratch.qx8), Int32(scratch.qx8s), front.qxl, front.qxsl)


def _dims_at(c: Context) -> Any:
    """First dim (inside its head) of the workgroup's rows."""
    return (c.workgroup * gemv.TILE_ROWS) & (c.build.shape.head_dim - 1)


def _spread(c: Context, tasks: int) -> tuple[Any, Any, Any]:
    """(row pair, task, token) of a thread in the epilogue."""
    pair = c.tid & 7
    return pair, (c.tid >> 3) & (tasks - 1), c.tid >> (2 + tasks.bit_length())


@ll.device
def _angle(c: Context, how: Gemv, first: Any, pos: Any, cos_sin: Any) -> Any:
    """(cos, sin) of the thread's pair and token; 1, 0 in workgroups that do not rotate."""
    shape = c.build.shape
    cosine, sine = Float32(1.0), Float32(0.0)
    if _dims_at(c) >= shape.nope:
        pair, _, t = _spread(c, how.per_workgroup)
        token = fx.min(first + t, Int32(shape.rows - 1))
        at = ll.global_load(pos, token * 8) * (shape.rope * 4) + pair * 4
        row = cos_sin + fx.Int64((_dims_at(c) - shape.nope) * 2)
        cosine = ll.global_load(row, at, Float32)
        sine = ll.global_load(row, at + shape.rope * 2, Float32)
    return cosine, sine


@ll.device
def _heads(c: Context, gemv_how: Gemv, first: Any, live_rows: Any, angle: Any, q: Any) -> None:
    shape, how = c.build.shape, c.build.how
    pair, task, t = _spread(c, gemv_how.per_workgroup)
    if t < live_rows:
        spot = task * gemv.SUM_BYTES + (pair >> 1) * 256 + t * 16 + (pair & 1) * 8
        total = gemv.sum_waves(c, c.build.front.red, spot, 2)
        word = fmt.bf16_pair(how, total[0], total[1])
        if _dims_at(c) >= shape.nope:
            even, odd = fmt.unpack([word])
            word = fmt.bf16_pair(how, even * angle[0] - odd * angle[1], even * angle[1] + odd * angle[0])
        row = q + fx.Int64(first * (shape.q_rows * 2) + c.workgroup * (gemv.TILE_ROWS * 2))
        task_bytes = gemv_how.span * gemv.TILE_ROWS * 2
        ll.global_store(row, t * (shape.q_rows * 2) + task * task_bytes + pair * 4, word)


@ll.device
def wqb_product(
    c: Context, how: Gemv, site: Site, weights: list[Any], cos_sin: Any, pos: Any, q: Any
) -> None:
    """Wait for every q row, then all passes: q of the rank's heads, bf16 [row][head][dim]."""
    s, several = _slice(c), c.build.shape.rows > c.build.pass_width
    angle = _angle(c, how, Int32(0), pos, cos_sin)
    mailbox.await_flags(c, site, Int32(c.build.scratch.qrdy), c.build.shape.rows, 8)
    passes.all_passes(
        c,
        s,
        passes.first_rows(c, s),
        lambda first: _angle(c, how, first, pos, cos_sin) if several else angle,
        lambda live: gemv.multiply(c, s, _steps(how), live, weights, c.build.front.red),
        lambda first, live, turned: _heads(c, how, first, _held(c, how, live), turned, q),
    )
