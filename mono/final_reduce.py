"""Reduce: the ranks' FFN partials summed, which ends the in-kernel all-reduce; every rank gets the same bits.

A task owns 32 columns of every row, sixteen lanes a row, two columns each.
"""

from __future__ import annotations

from typing import Any

from flydsl.expr import range_constexpr

from . import lowlevel as ll
from . import peers
from .build import Site, Tasks
from .context import Context, each, renew
from .push import COLUMNS, PASS


def final_reduce(c: Context, tasks: Tasks, site: Site, out: Any) -> None:
    """``out``, bf16 [rows][hidden], from the FFN pairs of all ranks."""
    c = renew(c)
    each(c, tasks, lambda task: _columns(c, site, task, out))


@ll.device
def _columns(c: Context, site: Site, task: Any, out: Any) -> None:
    rows = c.build.shape.rows
    column = task * COLUMNS + (c.tid & 15) * 2
    box = peers.own_box(c)
    for first in range_constexpr(0, rows, PASS):
        token = (c.tid >> 4) + first
        if token < rows:
            word = peers.rank_sum(c, box, site, c.build.ffn.peer.ffn, token, column)
            ll.global_store(out, token * (c.build.shape.hidden * 2) + column * 2, word)
