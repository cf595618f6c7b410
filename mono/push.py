"""Push: this rank's attention partial to every rank, bit for bit (the first stage of the FFN launch).

A task owns 32 columns, like the slice that sums them: sixteen lanes hold a row, two columns each.
"""

from __future__ import annotations

from typing import Any

from flydsl.expr import range_constexpr

from . import lowlevel as ll
from . import peers
from .build import Tasks
from .context import Context, each, renew

COLUMNS = 32
PASS = 32  # rows that the 512 lanes hold at once


def push_partial(c: Context, tasks: Tasks, part: Any) -> None:
    """ATTN pairs of ``part``, bf16 [rows][hidden], in every rank's peer buffer."""
    c = renew(c)
    each(c, tasks, lambda task: _columns(c, task, part))


@ll.device
def _columns(c: Context, task: Any, part: Any) -> None:
    rows = c.build.shape.rows
    column = task * COLUMNS + (c.tid & 15) * 2
    out = peers.outbox(c)
    for first in range_constexpr(0, rows, PASS):
        token = (c.tid >> 4) + first
        if token < rows:
            word = ll.global_load(part, token * (c.build.shape.hidden * 2) + column * 2)
            peers.push(c, out, c.build.ffn.peer.attn, token, column, word)
