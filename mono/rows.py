"""Published MXFP8 rows from the scratch into LDS, one row a wave.

A row slice is its e4m3 bytes, then its scale codes (an i32 each): both are cut into 16-byte items, one a
lane, with the codes right behind the bytes, so the last access of a row mixes the two and no lane divides
by a row length. Lanes past the end repeat the last item. Waves without a row in a round skip it.

LDS rows are padded by 16 bytes: 16 rows read by one MFMA operand then start in different banks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flydsl.expr as fx
from flydsl.expr import range_constexpr
from flydsl.expr.typing import Int32

from . import lowlevel as ll
from .context import WAVE, Context

ITEM = 16
PAD = 16


@dataclass(frozen=True)
class Slice:
    """A slice of K bytes of every row: where it lies in the scratch and where in LDS."""

    k: int  # bytes of the slice (one an element)
    row: int  # bytes of a whole row
    data: Any  # scratch offset of row 0's bytes (uniform)
    codes: Any  # scratch offset of row 0's codes (uniform)
    lds_data: int
    lds_codes: int

    @property
    def code_bytes(self) -> int:
        return self.k // 8  # one i32 for 32 elements

    @property
    def items(self) -> int:
        return (self.k + self.code_bytes) // ITEM

    @property
    def accesses(self) -> int:
        return -(-self.items // WAVE)

    @property
    def lds_row(self) -> int:
        return self.k + PAD

    @property
    def lds_code_row(self) -> int:
        return self.code_bytes + PAD


def rounds(c: Context, width: int) -> int:
    """Rounds of one row a wave that ``width`` rows take."""
    return -(-width // c.build.waves)


def nothing(c: Context, s: Slice, width: int) -> list[Any]:
    """What a wave that loads no row carries."""
    return [ll.undef(Int32, 4) for _ in range(rounds(c, width) * s.accesses)]


def _last_access(c: Context, s: Slice) -> tuple[Any, Any]:
    """(is a code, item of its kind) of the lane's item in the access that mixes bytes and codes."""
    at = (s.accesses - 1) * WAVE
    item = fx.min(c.lane, Int32(s.items - 1 - at)) + at
    is_code = item >= s.k // ITEM
    return is_code, is_code.select(item - s.k // ITEM, item) * ITEM


@dataclass(frozen=True)
class Picked:
    """The row that a wave has in one round, and whether it has one (both uniform)."""

    row: Any
    live: Any


def _in_order(c: Context, first: Any, width: int) -> list[Picked]:
    """Rows first .. first + width - 1, those of the step."""
    slots = [c.wave + r * c.build.waves for r in range(rounds(c, width))]
    return [Picked(first + slot, (first + slot < c.build.shape.rows) & (slot < width)) for slot in slots]


def load_rows(c: Context, s: Slice, first: Any, width: int, regs: list[Any]) -> list[Any]:
    """Rows first .. first + width - 1 (those of the step) into registers, issued and not waited for."""
    return load_picked(c, s, _in_order(c, first, width), regs)


def store_rows(c: Context, s: Slice, first: Any, width: int, regs: list[Any]) -> None:
    """The loaded rows into LDS rows 0 .. width - 1. The reader's barrier is the caller's."""
    store_picked(c, s, _in_order(c, first, width), regs)


@ll.device
def load_picked(c: Context, s: Slice, picked: list[Picked], regs: list[Any]) -> list[Any]:
    """The wave's rows, one a round, into registers, issued and not waited for."""
    is_code, last = _last_access(c, s)
    for r in range_constexpr(len(picked)):
        if picked[r].live:
            row = picked[r].row
            data, codes = s.data + row * s.row, s.codes + row * (s.row // 8)
            for k in range_constexpr(s.accesses - 1):
                regs[r * s.accesses + k] = ll.buffer_load(
                    c.scratch, c.lane * ITEM + k * WAVE * ITEM, data, count=4
                )
            mixed = last + is_code.select(codes, data)
            regs[r * s.accesses + s.accesses - 1] = ll.buffer_load(c.scratch, mixed, count=4)
    return regs


@ll.device
def store_picked(c: Context, s: Slice, picked: list[Picked], regs: list[Any]) -> None:
    """What ``load_picked`` loaded, into LDS row wave + 8 r of round r. The reader's barrier is the
    caller's."""
    is_code, last = _last_access(c, s)
    for r in range_constexpr(len(picked)):
        slot = c.wave + r * c.build.waves
        if picked[r].live:
            for k in range_constexpr(s.accesses - 1):
                spot = slot * s.lds_row + c.lane * ITEM
                ll.lds_store(c.lds, (spot, s.lds_data + k * WAVE * ITEM), regs[r * s.accesses + k])
            spot = is_code.select(slot * s.lds_code_row + s.lds_codes, slot * s.lds_row + s.lds_data)
            ll.lds_store(c.lds, spot + last, regs[r * s.accesses + s.accesses - 1])
