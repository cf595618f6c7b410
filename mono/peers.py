"""Peer buffers: pairs that every rank of a group sends to every rank, its own included, at system scope.

A buffer has two halves and the epoch's parity picks one: a rank may be one launch pair ahead of a peer that
still reads, never two, since each sum waits for every rank's push of its own pair. Scalar registers are
scarce in a whole layer, so addresses are not kept from stage to stage: a stage that pushes reads the table
when it begins (`near`), long before it has something to push.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import flydsl.expr as fx
from flydsl.expr.typing import Int64

from . import formats as fmt
from . import lowlevel as ll
from . import mailbox
from .build import Peer, Site
from .context import Context


@dataclass(frozen=True)
class Peers:
    """The rank's own buffer, the table of every rank's in rank order, this rank, and the boxes once open."""

    how: Peer
    sym: Any
    table: Any
    rank: Any
    all: tuple[mailbox.Box, ...] = ()


def join(c: Context, peer: Peer, sym: Any, peers: Any, rank: Any) -> Context:
    """The context of a launch with peers; ``sym`` is the rank's own buffer, ``peers`` the table of all."""
    return replace(c, peers=Peers(peer, sym, peers, rank))


def near(c: Context) -> Context:
    """The context of a stage that pushes: every rank's buffer is asked for here."""
    table = ll.fresh_address(c.peers.table)
    return replace(c, peers=replace(c.peers, all=_every(c, table)))


def _every(c: Context, table: Any) -> tuple[mailbox.Box, ...]:
    ranks = range(c.peers.how.ranks)
    return tuple(_box(c, ll.global_load(table, 8 * r, Int64, size=8, constant=True)) for r in ranks)


def _box(c: Context, base: Any) -> mailbox.Box:
    """This launch's half of a buffer."""
    epoch = fx.Uint32(c.tag - c.build.tag_offset) // c.build.tag_scale
    half = fx.Int64((fx.Int32(epoch) & 1) * c.peers.how.half)
    return mailbox.Box(ll.buffer(base + half, c.peers.how.half), ll.SYSTEM)


def _row_bytes(c: Context) -> int:
    """Bytes of a row's pairs: a pair holds two bf16 columns."""
    return c.build.shape.hidden * 4


def push(c: Context, region: int, token: Any, column: Any, word: Any) -> None:
    """Columns ``column`` and the next of this rank's partial (four of two words), to every rank's region."""
    uniform = region + c.peers.rank * (c.build.shape.rows * _row_bytes(c))
    for box in c.peers.all or _every(c, c.peers.table):
        mailbox.put(c, uniform, token * _row_bytes(c) + column * 4, word, box)


def rank_sum(c: Context, site: Site, region: int, token: Any, column: Any) -> Any:
    """bf16(((P0 + P1) + P2) + ...) of two columns of every rank's partial, once all have arrived."""
    rank_bytes = c.build.shape.rows * _row_bytes(c)
    at = token * _row_bytes(c) + column * 4
    spots = [(region + r * rank_bytes, at, 1) for r in range(c.peers.how.ranks)]
    words = mailbox.poll(c, site, spots, _box(c, c.peers.sym))
    low, high = fmt.unpack(words[:1])
    for word in words[1:]:
        more = fmt.unpack([word])
        low, high = low + more[0], high + more[1]
    return fmt.bf16_pair(c.build.how, low, high)
