"""The end of an epoch: counters half a ring ahead cleared, the epoch word advanced.

Every workgroup marks that all its waves have read the epoch; workgroup 0 waits for all marks before it stores
the next one. Other workgroups may still be running then, with the tag they have read. A counter of this epoch
is used again a whole ring later and cleared half a ring before that, so no launch sees it change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import flydsl.expr as fx
from flydsl.expr.typing import Int32

from . import lowlevel as ll
from . import mailbox
from .build import Site, Tasks
from .context import Context, renew


def epoch_of(c: Context) -> Any:
    """The launch's epoch, modulo 2^31."""
    return Int32(fx.Uint32(c.tag - c.build.tag_offset) // c.build.tag_scale)


def hold_tag(c: Context) -> Context:
    """The tag in a register that the compiler cannot load again: the epoch word changes before the launch
    ends."""
    return replace(c, tag=ll.fresh(c.tag))


@ll.device
def mark(c: Context) -> None:
    """Say that this workgroup has read the epoch: its mark is the next one."""
    fx.barrier()
    if c.tid == 0:
        at = c.workgroup * 4 + 4 * c.build.ffn.epoch.marks
        ll.buffer_store(ll.buffer(c.epoch), Int32(0), at, epoch_of(c) + 1, cache=ll.SC1)


def counter(c: Context, ring: int, ahead: int = 0) -> Any:
    """Byte offset of the epoch's counter in the ring at word ``ring``."""
    slot = (epoch_of(c) + ahead) & (c.build.ffn.epoch.ring - 1)
    return (slot + ring) * 4


def epoch_end(c: Context, tasks: Tasks, site: Site) -> None:
    """Advance the epoch; one task."""
    if tasks.count != 1:
        raise ValueError(f"epoch: {tasks.count} tasks; one workgroup advances the epoch")
    c = renew(c)
    _advance(c, tasks, site)


@ll.device
def _advance(c: Context, tasks: Tasks, site: Site) -> None:
    words = c.build.ffn.epoch
    if c.workgroup == tasks.first:
        # kept from the launch's begin on, the buffer's address was spilled in builds of 24 rows
        late = replace(c, epoch=ll.late_argument(c.build.faults.epoch))
        if c.tid < c.build.workgroups:
            mailbox.await_words(late, site, (c.tid + words.marks) * 4, epoch_of(c) + 1)
        fx.barrier()
        if c.tid == 0:
            for ring in (words.ug_counters, words.down_counters):
                ll.global_store(late.epoch, counter(c, ring, words.ring // 2), Int32(0))
            ll.global_store(late.epoch, 0, epoch_of(c) + 1)
