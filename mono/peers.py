"""Peer buffers: pairs that every rank of a group sends to every rank, its own included, at system scope.

A buffer has two halves and the epoch's parity picks one: a rank may be one launch pair ahead of a peer that
still reads, never two, since each sum waits for every rank's push of its own pair. All addresses are read at
the start of the launch, so no push waits for one.
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
    """This launch's halves: the rank's own, and every rank's in rank order; ``rank``: this one."""

    own: mailbox.Box
    all: tuple[mailbox.Box, ...]
    rank: Any


def join(c: Context, peer: Peer, sym: Any, peers: Any, rank: Any) -> Context:
    """The context of a launch with peers; ``sym`` is the rank's own buffer, ``peers`` the table of all."""
    epoch = fx.Uint32(c.tag - c.build.tag_offset) // c.build.tag_scale
    half = fx.Int64((fx.Int32(epoch) & 1) * peer.half)

    def box(base: Any) -> mailbox.Box:
        return mailbox.Box(ll.buffer(base + half, peer.half), ll.SYSTEM)

    bases = [ll.global_load(peers, 8 * r, Int64, size=8, constant=True) for r in range(peer.ranks)]
    return replace(c, peers=Peers(box(sym), tuple(box(b) for b in bases), rank))


def _row_bytes(c: Context) -> int:
    """Bytes of a row's pairs: a pair holds two bf16 columns."""
    return c.build.shape.hidden * 4


def push(c: Context, region: int, token: Any, column: Any, word: Any) -> None:
    """Columns ``column`` and the next of this rank's partial, to every rank's ``region``."""
    uniform = region + c.peers.rank * (c.build.shape.rows * _row_bytes(c))
    for box in c.peers.all:
        mailbox.put(c, uniform, token * _row_bytes(c) + column * 4, word, box)


def rank_sum(c: Context, site: Site, region: int, token: Any, column: Any) -> Any:
    """bf16(((P0 + P1) + P2) + ...) of two columns of every rank's partial, once all have arrived."""
    rank_bytes = c.build.shape.rows * _row_bytes(c)
    at = token * _row_bytes(c) + column * 4
    spots = [(region + r * rank_bytes, at, 1) for r in range(len(c.peers.all))]
    words = mailbox.poll(c, site, spots, c.peers.own)
    low, high = fmt.unpack(words[:1])
    for word in words[1:]:
        more = fmt.unpack([word])
        low, high = low + more[0], high + more[1]
    return fmt.bf16_pair(c.build.how, low, high)
