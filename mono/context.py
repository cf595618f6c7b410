"""Where a lane is, what its workgroup shares, how it finds its tasks, and two aids (stage marks, timeline).

Invariants: ``wave`` and ``workgroup`` live in scalar registers, so branches on them are scalar branches;
the tag of a launch is read once, at the start, from the epoch word, which nobody writes before every
workgroup has said that it has read it. A launch without hand-offs has no tag, and what it leaves out of its
context is None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import flydsl.expr as fx
from flydsl.expr import const_expr
from flydsl.expr.typing import Int32

from . import lowlevel as ll
from .build import Build, Tasks

WAVE = 64


@dataclass(frozen=True)
class Context:
    """A lane's place and its workgroup's means."""

    build: Build
    tid: Any
    lane: Any
    wave: Any
    workgroup: Any
    lds: Any = None
    scratch: Any = None  # descriptor of the scratch argument
    scratch_base: Any = None  # its address
    epoch: Any = None  # address of the epoch buffer
    tag: Any = None
    stopped: Any = None  # not 0: a wait of an earlier launch has given up
    peers: Any = None  # peers.Peers of a launch that pushes to other ranks


def enter_alone(build: Build) -> Context:
    """The first statement of a kernel whose workgroups share nothing: no LDS, no hand-off, no epoch."""
    tid = Int32(fx.thread_idx.x)
    return Context(build, tid, tid & (WAVE - 1), ll.uniform(tid >> 6), Int32(fx.block_idx.x))


def enter(build: Build, scratch: Any, epoch: Any) -> Context:
    """The first statement of a kernel whose workgroups hand on to one another; `faults.turn_back` follows."""
    words = ll.global_load(epoch, count=2, constant=True)
    return replace(
        enter_alone(build),
        lds=ll.lds_block(build.lds_bytes),
        scratch=ll.buffer(scratch),
        scratch_base=scratch,
        epoch=epoch,
        tag=words[0] * build.tag_scale + build.tag_offset,
        stopped=words[1],
    )


def renew(c: Context) -> Context:
    """The context for another stage: nothing computed from wave and workgroup before is kept for it."""
    return replace(c, wave=ll.fresh(c.wave), workgroup=ll.fresh(c.workgroup))


def place(c: Context, tasks: Tasks) -> Any:
    """The workgroup's place in a stage, from 0: its number from the stage's first on, around the grid."""
    if not tasks.first:
        return c.workgroup
    own = c.workgroup - tasks.first
    return (own < 0).select(own + c.build.workgroups, own)


def _near(c: Context, tasks: Tasks) -> Any:
    """The same, but negative (which is as far off) in front of a stage that does not reach around the
    grid."""
    if tasks.first + min(tasks.count, tasks.span) > c.build.workgroups:
        return place(c, tasks)
    return c.workgroup - tasks.first if tasks.first else c.workgroup


@ll.device
def each(c: Context, tasks: Tasks, body: Callable[[Any], None]) -> None:
    """``body(task)`` for the workgroup's tasks of a stage."""
    own = _near(c, tasks)
    if const_expr(tasks.count <= tasks.span):
        if fx.Uint32(own) < fx.Uint32(tasks.count):
            body(own)
    else:
        if fx.Uint32(own) < fx.Uint32(tasks.span):
            for task in range(own, tasks.count, tasks.span, unroll=1):  # type: ignore[call-overload]
                body(Int32(task))


def stage(name: str) -> None:
    """Mark the code from here on as stage ``name``: a local symbol of the code object, no instruction.

    The symbol is ``flymono.stage.<name>.<n>``; a stage's code is what lies between such a symbol and the next
    one by address. The compiler keeps memory accesses, waits and barriers behind their mark, so what a stage
    moves is counted exactly; a little address arithmetic may be counted for a neighbour.
    """
    ll.assembly(f"flymono.stage.{name}.${{:uid}}:")


def stamp(c: Context, timeline: Any, point: str) -> None:
    """Timeline builds: the clock at ``point`` of the workgroup's record; nothing in others."""
    if c.build.timeline:
        _store_clock(c, timeline, c.build.timeline.index(point))


@ll.device
def _store_clock(c: Context, timeline: Any, point: int) -> None:
    """By thread 0."""
    if c.tid == 0:
        record = c.workgroup * (len(c.build.timeline) * 8)
        ll.global_store(timeline, (record, point * 8), ll.clock(), size=8)
