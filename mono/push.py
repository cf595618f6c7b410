"""Push: pairs into every rank's peer buffer, own rank included, at system scope.

A region of a peer buffer holds [source rank][row][hidden / 2] pairs of (two bf16, tag). A rank writes its own
source's part in all of them and only ever reads its own buffer, so a hand-off between GPUs is one store, seen
when its tag is this launch's. Halves of the buffer take turns by epoch: a rank may be a launch ahead of a
peer that still reads, never two, since each sum waits for every rank's push.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flydsl.expr as fx
from flydsl.expr.typing import Int32

from . import lowlevel as ll
from .context import Context, parity


@dataclass(frozen=True)
class Peers:
    """This rank's part of one region, on every rank: descriptors, and the uniform offset of row 0."""

    buffers: list[Any]
    start: Any


def peers_of(c: Context, table: Any, rank: Any, region: int) -> Peers:
    """``table``: address of the int64 addresses of all ranks' buffers; ``region``: offset in a half."""
    peer, shape = c.build.peer, c.build.shape
    start = parity(c) * peer.half + region + rank * (shape.rows * shape.hidden * 4)
    return Peers([ll.buffer(ll.global_load(table, 8 * r, fx.Int64, size=8, constant=True)) for r in range(peer.ranks)], start)


def push(c: Context, to: Peers, uniform: Any, offset: Any, words: Sequence[Any]) -> None:
    """``words`` (1 or 2), each with the tag, at ``uniform`` + ``offset`` (bytes) behind row 0 of every rank."""
    pairs = fx.Vector.from_elements([v for w in words for v in (w, c.tag)], Int32)
    for buffer in to.buffers:
        ll.buffer_store(buffer, offset, to.start + uniform, pairs, cache=ll.SYSTEM)
