"""Waits that give up: what they leave behind, and launches that turn back because of it.

- A wait that has lasted longer than the launch argument ``bound`` writes the head of the rank's fault words and,
  in a launch with peers, the same 16 bytes as a mark into every rank's peer buffer. Other waits look at the mark
  (K1's, which know no peers, at the epoch buffer's stop word) every ``look`` polls and end when they see it. Each
  wait that ends writes its site's record; then the wave is over.
- The rest of the launch may go on with what it finds until it waits itself. What it then stores is wrong, and
  nobody believes it: stop word and marks were there before (each store is acknowledged before the next), so
  whoever looks at fault words and mark after a launch sees them if that launch had wrong data.
- A launch that finds stop word or mark set turns back with every workgroup before it has touched anything. One
  with peers passes on what it found: a fault of K1, which has no peers, gets to the other ranks that way.
"""

from __future__ import annotations

from typing import Any

import flydsl.expr as fx
from flydsl.expr import const_expr
from flydsl.expr.typing import Int32, Int64

from . import lowlevel as ll
from .build import Site
from .context import Context

BLOCK = 16  # bytes of a head, a mark and a record
OWN, FROM = 1, 2  # state of a head: of a launch without a rank, or this plus the rank that gave up


def _stop(c: Context) -> None:
    ll.buffer_store(ll.buffer(c.epoch), Int32(0), 4 * c.build.faults.stop, Int32(1), cache=ll.SC1)


def _send(c: Context, head: Any) -> None:
    """The mark of every rank's peer buffer."""
    for rank in range(c.build.ffn.peer.ranks):
        at = ll.global_load(c.peers.table, 8 * rank, Int64, size=8, constant=True)
        ll.store_system(at, head)


@ll.device
def turn_back(c: Context) -> None:
    """Behind the first statement of a kernel: nothing, unless a wait has given up before."""
    found = c.stopped
    if const_expr(c.peers is not None):
        found = found | ll.global_load(c.peers.sym, constant=True)
    if found != 0:
        if const_expr(c.peers is not None):
            if c.tid == 0:
                _pass_on(c)
        ll.end_program()


@ll.device
def _pass_on(c: Context) -> None:
    """What was found, to every rank and to the own fault words."""
    mark, head = ll.load_system(c.peers.sym), ll.load_system(c.fault)
    marked, own = mark[0] != 0, head[0] != 0
    state = (head[0] & -(1 << c.build.faults.shift)) | (c.peers.rank + FROM)
    words = [marked.select(mark[0], state), *[marked.select(mark[k], head[k]) for k in range(1, 4)]]
    found = fx.Vector.from_elements(words, Int32)
    if marked:
        ll.store_system(c.fault + c.build.faults.mark, found)
        _stop(c)
    if marked | own:
        _send(c, found)


def seen(c: Context) -> Any:
    """The mark as four words, the first of them 0 if there is none: what a wait looks at."""
    if c.peers is not None:
        return ll.load_system(c.peers.sym)
    word = ll.buffer_load(ll.buffer(c.epoch), Int32(0), 4 * c.build.faults.stop, cache=ll.SC1)
    return fx.Vector.from_elements([word] * 4, Int32)


@ll.device
def give_up(c: Context, site: Site, mark: Any, missing: Any, oldest: Any, awaited: Any) -> None:
    """The record of a wait that ends. ``missing``, ``oldest`` tag and mask of ``awaited`` ranks are a lane's: the
    first lane that misses something speaks for the wave."""
    marked = ll.uniform(mark[0]) != 0
    if c.lane == ll.lowest_bit(ll.ballot(missing)):
        where = (c.workgroup << 8) | (c.wave << 20) | (awaited << 24) | site.number
        told = marked.select(Int32(1), Int32(0))
        record = fx.Vector.from_elements([where, oldest, c.tag, told], Int32)
        ll.store_system(c.fault + BLOCK * site.number, record)
        if marked:
            if const_expr(c.peers is not None):
                ll.store_system(c.fault + c.build.faults.mark, mark)
        else:
            own = OWN if c.peers is None else c.peers.rank + FROM
            state = Int32(own) | (c.build.faults.code << c.build.faults.shift)
            head = fx.Vector.from_elements([state, where, oldest, c.tag], Int32)
            ll.store_system(c.fault, head)
            _stop(c)
            ll.wait_stores()
            if const_expr(c.peers is not None):
                _send(c, head)
        _stop(c)
        ll.wait_stores()
