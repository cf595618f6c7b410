"""A GEMV over all rows of a step: as many passes as the LDS needs, on weights that are in registers already.

A pass brings its rows to LDS, asks for the next pass's, multiplies and lets the caller take the sums: two
barriers. More passes than one are a run-time loop, so the code does not grow with the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flydsl.expr as fx
from flydsl.expr import const_expr
from flydsl.expr.typing import Int32

from . import lowlevel as ll
from . import rows
from .context import Context


def first_rows(c: Context, s: rows.Slice) -> list[Any]:
    """The first pass's rows, asked for; they are published."""
    width = c.build.pass_width
    return rows.load_rows(c, s, Int32(0), width, rows.nothing(c, s, width))


@ll.device
def all_passes(
    c: Context,
    s: rows.Slice,
    regs: list[Any],
    before: Callable[[Any], Any],
    multiply: Callable[[Any], None],
    take: Callable[[Any, Any, Any], None],
) -> None:
    """Every pass, from row ``first`` on: ``before(first)``, ``multiply(live rows)``, ``take(first, live,
    early)``.

    ``regs``: what ``first_rows`` gave; ``early``: what ``before`` returned.
    """
    width, count = c.build.pass_width, c.build.shape.rows
    if const_expr(count <= width):
        _pass(c, s, Int32(0), regs, before, multiply, take)
    else:
        for p in range(0, (count + width - 1) // width, 1, unroll=1):  # type: ignore[call-overload]
            regs = _pass(c, s, Int32(p) * width, regs, before, multiply, take)


@ll.device
def _pass(
    c: Context,
    s: rows.Slice,
    first: Any,
    regs: list[Any],
    before: Callable[[Any], Any],
    multiply: Callable[[Any], None],
    take: Callable[[Any, Any, Any], None],
) -> list[Any]:
    width, count = c.build.pass_width, c.build.shape.rows
    early = before(first)
    live_rows = fx.min(Int32(width), count - first)
    rows.store_rows(c, s, first, width, regs)
    if const_expr(count > width):
        regs = rows.load_rows(c, s, first + width, width, regs)
    fx.barrier()
    multiply(live_rows)
    fx.barrier()
    take(first, live_rows, early)
    return regs
