"""Routed gate and up: 32 columns of one expert and their gates, a group or two a task, x the picks of a unit.

Tasks of a workgroup follow one another; with more rows than a unit has picks all but the first come from a
counter, so that workgroups that were busy with other roles take fewer. The result of a task does not depend
on who runs it. What is published: MID and MIDS behind a flag a task."""

from __future__ import annotations

from typing import Any

import flydsl.expr as fx
from flydsl.expr import const_expr, range_constexpr
from flydsl.expr.typing import Int32

from . import epoch_end, mailbox, rows, table
from . import lowlevel as ll
from .build import Site, Tasks
from .context import Context, place, renew
from .ug_activate import activate
from .ug_map import map_of, whole
from .ug_product import Experts, product


@ll.device
def ug_rows(c: Context, site: Site) -> list[Any]:
    """Wait for the step's quantised rows and, if they are held whole for all tasks, issue their loads: before
    the experts are known."""
    m, s = map_of(c.build), whole(c)
    mailbox.await_flags(c, site, Int32(c.build.ffn.scratch.x8rdy), c.build.shape.rows, 8)
    regs = rows.nothing(c, s, m.held)
    if const_expr(_stays(c)):
        regs = rows.load_rows(c, s, Int32(0), m.held, regs)
    return regs


def _stays(c: Context) -> bool:
    """Whether x is staged once, for all tasks of the workgroup."""
    m = map_of(c.build)
    return m.blocks == 1 and not m.by_unit


def ug(c: Context, tasks: Tasks, experts: Experts, regs: list[Any]) -> None:
    """All tasks of the workgroup."""
    c = renew(c)
    if map_of(c.build).by_unit:
        _queued(c, tasks, experts)
    else:
        _in_turn(c, tasks, experts, regs)


@ll.device
def _in_turn(c: Context, tasks: Tasks, experts: Experts, regs: list[Any]) -> None:
    if const_expr(_stays(c)):
        rows.store_rows(c, whole(c), Int32(0), map_of(c.build).held, regs)
        fx.barrier()
    total = table.count_of_units(c) * c.build.ffn.mix.parts
    for task in range(place(c, tasks), total, tasks.span, unroll=1):  # type: ignore[call-overload]
        _task(c, experts, Int32(task))


@ll.device
def _queued(c: Context, tasks: Tasks, experts: Experts) -> None:
    word = table.broadcast_word(c)
    total = table.count_of_units(c) * c.build.ffn.mix.parts
    task = place(c, tasks)
    while fx.Uint32(task) < fx.Uint32(total):
        if c.tid == 0:
            at = epoch_end.counter(c, c.build.ffn.epoch.ug_counters)
            ll.lds_store(c.lds, word, ll.ticket(c.epoch, at))
        _task(c, experts, task)
        task = ll.uniform(ll.lds_load(c.lds, word, Int32)) + tasks.span
        fx.barrier()


@ll.device
def _task(c: Context, experts: Experts, task: Any) -> None:
    f, m = c.build.ffn, map_of(c.build)
    unit = Int32(fx.Uint32(task) // f.mix.parts)
    part = task - unit * f.mix.parts
    expert, count, position, _ = table.record(c, f.lds.units if m.by_unit else f.lds.slots, unit)
    token = fx.min(c.lane & 15, count - 1)
    if const_expr(not m.by_unit):
        token = table.row_at(c, position + token)
    picked = [] if _stays(c) else _picked(c, count, position)
    if const_expr(m.by_unit and m.blocks == 1):
        regs = rows.load_picked(c, whole(c), picked, rows.nothing(c, whole(c), m.held))
        rows.store_picked(c, whole(c), picked, regs)
        fx.barrier()
    product(c, experts, expert, part, token, picked)
    fx.barrier()
    for first in range_constexpr(0, m.groups * m.held, c.build.waves * 2):
        activate(c, part, count, position, first)
    mailbox.publish(c, f.scratch.ugf + task * 8, 1)


def _picked(c: Context, count: Any, position: Any) -> list[rows.Picked]:
    """Rows of x that the wave stages: the step's, or those of the unit's picks."""
    m, out = map_of(c.build), []
    for r in range(rows.rounds(c, m.held)):
        slot = c.wave + r * c.build.waves
        if m.by_unit:
            at = position + fx.min(slot, count - 1)
            out.append(rows.Picked(ll.uniform(table.row_at(c, at)), slot < count))
        else:
            out.append(rows.Picked(slot, slot < m.held))
    return out
