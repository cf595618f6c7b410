"""Peer buffers: pairs that every rank of a group sends to every rank, its own included, at system scope.

Behind the mark of a fault a buffer has two halves, and the epoch's parity picks one: a rank may be one launch
pair ahead of a peer that still reads, never two, since each sum waits for every rank's push of its own pair.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import flydsl.expr as fx
from flydsl.expr.typing import Int64

from . import formats as fmt
from . import lowlevel as ll
from . import mailbox
from .build import Site
from .context import Context


@dataclass(frozen=True)
class Peers:
    """The peer arguments of a launch: the rank's own buffer, the table of every rank's, and which rank this
    is."""

    sym: Any
    table: Any
    rank: Any


def join(c: Context, sym: Any, peers: Any, rank: Any) -> Context:
    """The context of a launch with peers."""
    return replace(c, peers=Peers(sym, peers, rank))


def _box(c: Context, base: Any) -> mailbox.Box:
    """This epoch's half of the buffer at ``base``, and the bytes of a mark in front of it."""
    peer = c.build.ffn.peer
    epoch = fx.Uint32(c.tag - c.build.tag_offset) // c.build.tag_scale
    half = fx.Int64((fx.Int32(epoch) & 1) * peer.half)
    return mailbox.Box(ll.buffer(base + half, peer.mark + peer.half), ll.SYSTEM)


def own_box(c: Context) -> mailbox.Box:
    """This rank's own buffer."""
    return _box(c, ll.fresh(c.peers.sym))


@dataclass(frozen=True)
class Outbox:
    """Every rank's buffer in rank order, and where this rank's rows begin in a region of any of them."""

    boxes: list[mailbox.Box]
    first: Any


def outbox(c: Context) -> Outbox:
    """Where a stage pushes to. The addresses are loaded here: some time before the first push. Two stages
    that push share no value: it would be kept in a register all the way between them (a spill in builds of
    17 to 24 rows)."""
    table, rank = ll.fresh(c.peers.table), ll.fresh(c.peers.rank)
    ranks = range(c.build.ffn.peer.ranks)
    boxes = [_box(c, ll.global_load(table, 8 * r, Int64, size=8, constant=True)) for r in ranks]
    return Outbox(boxes, rank * (c.build.shape.rows * _row_bytes(c)))


def _row_bytes(c: Context) -> int:
    """Bytes of a row's pairs: a pair holds two bf16 columns."""
    return c.build.shape.hidden * 4


def push(c: Context, out: Outbox, region: int, token: Any, column: Any, word: Any) -> None:
    """Columns ``column`` and the next of this rank's partial (four of two words), to ``region`` of every
    box."""
    for box in out.boxes:
        mailbox.put(c, region + out.first, token * _row_bytes(c) + column * 4, word, box)


def rank_sum(c: Context, box: mailbox.Box, site: Site, region: int, token: Any, column: Any) -> Any:
    """bf16(((P0 + P1) + P2) + ...) of two columns of every rank's partial, once all are in ``box``."""
    rank_bytes = c.build.shape.rows * _row_bytes(c)
    at = token * _row_bytes(c) + column * 4
    spots = [(region + r * rank_bytes, at, 1) for r in range(c.build.ffn.peer.ranks)]
    words = mailbox.poll(c, site, spots, box)
    low, high = fmt.unpack(words[:1])
    for word in words[1:]:
        more = fmt.unpack([word])
        low, high = low + more[0], high + more[1]
    return fmt.bf16_pair(c.build.how, low, high)
