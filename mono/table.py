"""Route table: which experts the step has picked, by which rows, in LDS of every workgroup.

Nobody builds it centrally: every workgroup derives the same table from a copy of the routing. A *slot* is one
distinct expert, in ascending order; a slot's picks lie at consecutive positions, rows ascending; a *unit* is
at most ``pick_width`` picks of a slot. A thread has one pick; a wave has 64 experts, whose counts of picks,
slots and units are fields of one word, so that one prefix sum does for all three.

The records: a slot's and a unit's (expert | picks << 16, first position | first unit << 16), a position's
(pick | row << 16). Whatever is read or placed is held to its range: where a wave has ended because a hand-off
was lost, the others go on with what LDS holds, and must not reach past it."""

from __future__ import annotations

from typing import Any

import flydsl.expr as fx
from flydsl.expr import const_expr, range_constexpr
from flydsl.expr.typing import Int32

from . import lanes, mailbox
from . import lowlevel as ll
from .build import Site
from .context import WAVE, Context, renew

PICK_BITS, SLOT_BITS = 10, 10  # fields of a wave's counts: picks, slots, units
_FIELD = 0x3FF


def route_table(c: Context, site: Site) -> None:
    """Build the table; it ends with a barrier."""
    mix, rows = c.build.ffn.mix, c.build.shape.rows
    if mix.picks(rows) > min(c.build.waves * WAVE, _FIELD) or rows > WAVE:
        raise ValueError(f"route table: {mix.picks(rows)} picks of {rows} rows; 512 of 64 are built")
    _build(renew(c), site)


@ll.device
def _build(c: Context, site: Site) -> None:
    f, rows = c.build.ffn, c.build.shape.rows
    n, experts = f.mix.picks(rows), f.mix.experts
    fx.barrier()
    zero = fx.Vector.from_elements([Int32(0), Int32(0)], Int32)
    if c.tid < experts:
        ll.lds_store(c.lds, c.tid * 8 + f.lds.bitmaps, zero)
    expert, row = Int32(0), Int32(0)
    if c.wave < (n + WAVE - 1) // WAVE:
        expert, row = _read(c, site)
    fx.barrier()
    if c.tid < n:
        at = expert * 8 + f.lds.bitmaps + (row >> 5) * 4
        ll.lds_or(c.lds, at, Int32(1) << (row & 31))
    fx.barrier()
    counts, before = Int32(0), Int32(0)
    if c.wave < experts // WAVE:
        counts, before = _count(c)
    fx.barrier()
    if c.wave < experts // WAVE:
        _place_experts(c, counts, before)
    fx.barrier()
    if c.tid < n:
        _place_pick(c, expert, row)
    fx.barrier()


@ll.device
def _read(c: Context, site: Site) -> Any:
    """The thread's pick: (expert, row); its weight to LDS."""
    f, rows = c.build.ffn, c.build.shape.rows
    k, n = f.mix.per_token, f.mix.picks(rows)
    pick = fx.min(c.tid, Int32(n - 1))
    row = quotient(pick, k, n)
    copy = (c.workgroup & (f.mix.copies - 1)) * (n * 16) + f.scratch.route
    at = pick * 8 + row * (k * 8)
    expert, weight = mailbox.poll(c, site, [(copy, at, 1), (copy, at + k * 8, 1)])
    ll.lds_store(c.lds, pick * 4 + f.lds.weights, weight)
    return expert, row


def quotient(n: Any, by: int, below: int) -> Any:
    """n // by for 0 <= n < ``below``: one multiplication and a shift, exact since n times its error stays
    small."""
    if below * by * by > 1 << 16:
        raise ValueError(f"a quotient by {by} of numbers up to {below} needs more than 16 bits")
    return (n * ((1 << 16) // by + 1)) >> 16


def units_of(c: Context, picks: Any) -> Any:
    """Units of so many picks."""
    width = c.build.ffn.mix.pick_width
    return quotient(picks + (width - 1), width, WAVE + width)


def _most_slots(c: Context) -> int:
    """Distinct experts at most."""
    mix = c.build.ffn.mix
    return min(mix.picks(c.build.shape.rows), mix.experts)


def _most_units(c: Context) -> int:
    """Units at most: one a slot, and one more for each ``pick_width`` picks."""
    picks = c.build.ffn.mix.picks(c.build.shape.rows)
    return min(picks, _most_slots(c) + picks // c.build.ffn.mix.pick_width)


def _is_cut(c: Context) -> bool:
    """Whether a slot can have more picks than a unit holds."""
    return c.build.shape.rows > c.build.ffn.mix.pick_width


def _picks_of(c: Context) -> Any:
    """Picks of the thread's expert."""
    words = ll.lds_load(c.lds, c.tid * 8 + c.build.ffn.lds.bitmaps, Int32, 2)
    return ll.bits_set(words[0]) + ll.bits_set(words[1])


@ll.device
def _count(c: Context) -> Any:
    """(the lane's counts, the counts of the wave's experts below); the wave's totals to LDS."""
    picks = _picks_of(c)
    units = units_of(c, picks) if _is_cut(c) else Int32(0)
    counts = picks | (picks > 0).select(Int32(1 << PICK_BITS), Int32(0)) | (units << (PICK_BITS + SLOT_BITS))
    upto = lanes.prefix_sum(counts)
    if c.lane == lanes.LAST_LANE:
        ll.lds_store(c.lds, c.wave * 4 + c.build.ffn.lds.totals, upto)
    return counts, upto - counts


@ll.device
def _place_experts(c: Context, counts: Any, before: Any) -> None:
    """Records of the wave's slots and units; the last wave leaves the numbers of slots and units."""
    f = c.build.ffn
    waves = f.mix.experts // WAVE
    for w in range_constexpr(waves - 1):
        total = ll.lds_load(c.lds, f.lds.totals + 4 * w, Int32)
        before = before + (c.wave > w).select(total, Int32(0))
    picks = counts & _FIELD
    position, slot = before & _FIELD, (before >> PICK_BITS) & _FIELD
    unit = fx.Int32(fx.Uint32(before) >> (PICK_BITS + SLOT_BITS)) if _is_cut(c) else slot
    ll.lds_store(c.lds, c.tid * 4 + f.lds.starts, position)
    if picks > 0:
        record = [c.tid | (picks << 16), position | (unit << 16)]
        at = fx.min(slot, Int32(_most_slots(c) - 1)) * 8 + f.lds.slots
        ll.lds_store(c.lds, at, fx.Vector.from_elements(record, Int32))
        if const_expr(_is_cut(c)):
            _place_units(c, picks, position, unit)
    if c.tid == f.mix.experts - 1:
        _ends(c, before + counts)


def _ends(c: Context, all_counts: Any) -> None:
    slots = (all_counts >> PICK_BITS) & _FIELD
    units = fx.Int32(fx.Uint32(all_counts) >> (PICK_BITS + SLOT_BITS)) if _is_cut(c) else slots
    both = fx.Vector.from_elements([slots, units], Int32)
    ll.lds_store(c.lds, c.build.ffn.lds.totals + 4 * c.build.waves, both)


@ll.device
def _place_units(c: Context, picks: Any, position: Any, unit: Any) -> None:
    mix = c.build.ffn.mix
    for q in range_constexpr((c.build.shape.rows + mix.pick_width - 1) // mix.pick_width):
        left = picks - q * mix.pick_width
        if left > 0:
            own = fx.min(left, Int32(mix.pick_width))
            record = [c.tid | (own << 16), position + q * mix.pick_width]
            at = fx.min(unit + q, Int32(_most_units(c) - 1)) * 8 + c.build.ffn.lds.units
            ll.lds_store(c.lds, at, fx.Vector.from_elements(record, Int32))


@ll.device
def _place_pick(c: Context, expert: Any, row: Any) -> None:
    """The pick at its position: those of lower rows come before it."""
    f = c.build.ffn
    words = ll.lds_load(c.lds, expert * 8 + f.lds.bitmaps, Int32, 2)
    below = (Int32(1) << (row & 31)) - 1
    high = row >= 32
    rank = ll.bits_set(words[0] & high.select(Int32(-1), below))
    if const_expr(c.build.shape.rows > 32):
        rank = rank + ll.bits_set(words[1] & high.select(below, Int32(0)))
    position = ll.lds_load(c.lds, expert * 4 + f.lds.starts, Int32) + rank
    position = fx.min(position, Int32(f.mix.picks(c.build.shape.rows) - 1))
    ll.lds_store(c.lds, position * 4 + f.lds.order, c.tid | (row << 16))


def count_of_slots(c: Context) -> Any:
    """Distinct experts of the step, scalar."""
    count = ll.lds_load(c.lds, c.build.ffn.lds.totals + 4 * c.build.waves, Int32)
    return _at_most(ll.uniform(count), _most_slots(c))


def count_of_units(c: Context) -> Any:
    """Gate/up units of the step, scalar."""
    count = ll.lds_load(c.lds, c.build.ffn.lds.totals + 4 * c.build.waves + 4, Int32)
    return _at_most(ll.uniform(count), _most_units(c) if _is_cut(c) else _most_slots(c))


def _at_most(value: Any, top: int) -> Any:
    """``value`` as an unsigned number, at most ``top``."""
    return Int32(fx.min(fx.Uint32(value), fx.Uint32(top)))


def record(c: Context, base: int, number: Any) -> tuple[Any, Any, Any, Any]:
    """(expert, picks, first position, first unit) of slot or unit ``number`` (scalar) of the list at
    ``base``."""
    mix, rows = c.build.ffn.mix, c.build.shape.rows
    words = ll.lds_load(c.lds, number * 8 + base, Int32, 2)
    first, second = ll.uniform(words[0]), ll.uniform(words[1])
    picks = fx.max(_at_most(fx.Int32(fx.Uint32(first) >> 16), rows), Int32(1))
    position = _at_most(second & 0xFFFF, mix.picks(rows) - 1)
    unit = _at_most(fx.Int32(fx.Uint32(second) >> 16), _most_units(c) - 1)
    return _at_most(first & 0xFFFF, mix.experts - 1), picks, position, unit


def row_at(c: Context, position: Any) -> Any:
    """Row of the pick at a position."""
    word = ll.lds_load(c.lds, position * 4 + c.build.ffn.lds.order, Int32)
    return _at_most(Int32(fx.Uint32(word) >> 16), c.build.shape.rows - 1)


def pick_at(c: Context, position: Any) -> Any:
    """Number of the pick at a position."""
    word = ll.lds_load(c.lds, position * 4 + c.build.ffn.lds.order, Int32)
    return _at_most(word & 0xFFFF, c.build.ffn.mix.picks(c.build.shape.rows) - 1)


def broadcast_word(c: Context) -> int:
    """LDS offset of a word for one thread's news to all."""
    return c.build.ffn.lds.totals + 4 * c.build.waves + 8
