"""Where a lane is, what its workgroup shares, and the two debug aids (stage marks, timeline).

Invariants: ``wave`` and ``workgroup`` live in scalar registers, so branches on them are scalar branches;
the tag of a launch is 2 * epoch + 1, read once by every workgroup at its start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flydsl.expr as fx
from flydsl.expr.typing import Int32

from . import lowlevel as ll
from .build import Build

WAVE = 64
TIMELINE_POINTS = 6  # i64 slots of a workgroup in a timeline record


@dataclass(frozen=True)
class Context:
    """A lane's place and its workgroup's means."""

    build: Build
    tid: Any
    lane: Any
    wave: Any
    workgroup: Any
    lds: Any
    scratch: Any  # descriptor of the scratch argument
    epoch: Any  # address of the epoch buffer
    tag: Any


def enter(build: Build, scratch: Any, epoch: Any) -> Context:
    """The first statement of a kernel."""
    tid = Int32(fx.thread_idx.x)
    tag = ll.global_load(epoch, constant=True) * 2 + 1
    return Context(build, tid, tid & (WAVE - 1), ll.uniform(tid >> 6), Int32(fx.block_idx.x),
                   ll.lds_block(build.lds.total), ll.buffer(scratch), epoch, tag)


def stage(name: str) -> None:
    """Mark the code from here on as stage ``name``: a local symbol of the code object, no instruction.

    The symbol is ``flymono.stage.<name>.<n>``; a stage's code runs to the next such symbol (or the end
    of the kernel). Only code that the compiler keeps in order (memory, barriers, waits) is bounded exactly.
    """
    ll.assembly(f"flymono.stage.{name}.${{:uid}}:")


@ll.device
def stamp(c: Context, timeline: Any, point: int) -> None:
    """Timeline builds: thread 0 stores the clock at ``point`` of the workgroup's record."""
    if c.tid == 0:
        record = c.workgroup * (TIMELINE_POINTS * 8)
        ll.global_store(timeline, (record, point * 8), ll.clock(), size=8)
