"""Hand-offs between workgroups of one launch, at device scope in the scratch argument, or of all ranks, at
system scope in their peer buffers (`Box` says which).

- A *pair* is 8 bytes, (word, tag), written by one store. A reader looks again until the tag is this
  launch's; nothing is ever cleared, since a pair of an earlier launch has an earlier tag.
- *Published data* is plain words behind a flag pair: stores, then every wave waits for its stores, a
  barrier, then one thread stores the flag. Readers see the flag, pass a barrier and load plainly.
- Every wait is bounded by the launch argument ``bound``; what it leaves when it gives up is in `faults`.
- A site whose ``hold`` is not 1 is a hand-off that can be taken out; only tests build one. 0: it looks once
  and takes what it finds. Another number stands in the code as a literal, once a wait: changed to 0 there,
  the wait is no longer one, so that one code object serves to take out each hand-off alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import flydsl.expr as fx
from flydsl.expr import const_expr
from flydsl.expr.typing import Int32, Int64

from . import faults
from . import lowlevel as ll
from .build import Site
from .context import WAVE, Context, stage


@dataclass(frozen=True)
class Box:
    """Where pairs lie: a buffer, and the cache bits of the scope in which they are seen."""

    buffer: Any
    cache: int


def _box(c: Context, box: Box | None) -> Box:
    return Box(c.scratch, ll.SC1) if box is None else box


def put(c: Context, region: Any, offset: Any, word: Any, box: Box | None = None) -> None:
    """The pair (word, tag) at ``region`` (uniform) + ``offset`` (a lane's); of two words two adjacent
    ones."""
    to, words = _box(c, box), word if isinstance(word, (list, tuple)) else [word]
    value = fx.Vector.from_elements([v for w in words for v in (w, c.tag)], Int32)
    ll.buffer_store(to.buffer, offset, region, value, cache=to.cache)


def store(c: Context, region: Any, offset: Any, value: Any) -> None:
    """Published data: plain words at device scope."""
    ll.buffer_store(c.scratch, offset, region, value, cache=ll.SC1)


def _spread(tags: Sequence[Any]) -> tuple[Any, Any]:
    low = high = tags[0]
    for tag in tags[1:]:
        low, high = fx.min(low, tag), fx.max(high, tag)
    return low, high


def _wait(
    c: Context,
    site: Site,
    widths: Sequence[int],
    load: Any,
    tags_of: Any,
    tag: Any = None,
    ranks: bool = False,
) -> list[Any]:
    """Look at one batch until all its tags are ``tag`` (this launch's): the smallest and the largest both
    are. ``ranks``: the n-th tag is that of rank n."""
    wanted = c.tag if tag is None else tag

    def missing(got: Sequence[Any]) -> Any:
        low, high = _spread(tags_of(got))
        return low != wanted if low is high else (low != wanted) | (high != wanted)

    def look(ticks: Any, got: Sequence[Any]) -> None:
        tags = tags_of(got)
        awaited = Int32(0)
        for rank, found in enumerate(tags if ranks else ()):
            awaited = awaited | (found != wanted).select(Int32(1 << rank), Int32(0))
        _look(c, site, ticks, missing(got), _spread(tags)[0], awaited)

    stage(site.stage)  # a wait of one wave may be laid out away from its stage
    held = _held(site)
    every = c.build.faults.look
    return ll.spin(widths, load, lambda got: held(ll.any_lane(missing(got))), every, look)


@ll.device
def _look(c: Context, site: Site, ticks: Any, missing: Any, oldest: Any, awaited: Any) -> None:
    mark = faults.seen(c)
    late = Int32((ll.late_argument(c.build.faults.bound) - ticks) >> Int64(32)) >> 31
    if (mark | late) != 0:
        marked = (mark != 0).select(Int32(faults.MARKED), Int32(0))
        where = (c.workgroup << 8) | (c.wave << 20) | (awaited << 24) | marked | site.number
        ll.leave_to(faults.GIVE_UP, c.tag, [where, oldest], ll.ballot(missing))


def _held(site: Site) -> Callable[[Any], Any]:
    """What a wait makes of "something is missing": nothing else, where its site cannot be taken out."""
    if site.hold == 1:
        return lambda stale: stale
    switch = ll.opaque(site.hold)
    return lambda stale: stale & (switch != 0)


def poll(c: Context, site: Site, spots: Sequence[tuple[Any, Any, int]], box: Box | None = None) -> list[Any]:
    """The words of the pairs at ``spots`` = (region, offset, 1 or 2 adjacent pairs), in order."""
    source = _box(c, box)

    def load() -> list[Any]:
        return [
            ll.buffer_load(source.buffer, offset, region, count=2 * n, cache=source.cache)
            for region, offset, n in spots
        ]

    def tags_of(got: Sequence[Any]) -> list[Any]:
        return [v[2 * k + 1] for v, (_, _, n) in zip(got, spots, strict=True) for k in range(n)]

    got = _wait(c, site, [2 * n for _, _, n in spots], load, tags_of, ranks=box is not None)
    return [v[2 * k] for v, (_, _, n) in zip(got, spots, strict=True) for k in range(n)]


def see_flags(c: Context, site: Site, region: Any, offsets: Sequence[Any]) -> None:
    """Until the flags at the wave's ``offsets`` are up; other waves are not held."""

    def load() -> list[Any]:
        return [ll.buffer_load(c.scratch, o + 4, region, cache=ll.SC1) for o in offsets]

    _wait(c, site, [1] * len(offsets), load, lambda got: got)


def _spots(c: Context, count: Any, stride: int, loads: int) -> list[Any]:
    return [fx.min(c.lane + WAVE * k, count - 1) * stride for k in range(loads)]


@ll.device
def await_flags(c: Context, site: Site, region: Any, count: Any, stride: int) -> None:
    """Until ``count`` flags, ``stride`` bytes apart, are up; then the workgroup goes on.

    A traced ``count`` (uniform) is at most 64 and may be 0.
    """
    if const_expr(isinstance(count, int)):
        if c.wave == 0:
            see_flags(c, site, region, _spots(c, Int32(count), stride, -(-count // WAVE)))
    else:
        if (c.wave == 0) & (count > 0):
            see_flags(c, site, region, _spots(c, count, stride, 1))
    fx.barrier()


def await_words(c: Context, site: Site, offset: Any, value: Any) -> None:
    """Until the lanes' words of the epoch buffer at ``offset`` are ``value``."""
    buf = ll.buffer(c.epoch)
    _wait(c, site, [1], lambda: [ll.buffer_load(buf, offset, cache=ll.SC1)], lambda got: got, value)


@ll.device
def publish(c: Context, region: Any, flags: int) -> None:
    """This workgroup's stores made visible, then ``flags`` (1 or 2) adjacent flag pairs at ``region``."""
    ll.wait_stores()
    fx.barrier()
    if c.tid == 0:
        words = [Int32(1), c.tag] * flags
        ll.buffer_store(c.scratch, 0, region, fx.Vector.from_elements(words, Int32), cache=ll.SC1)
