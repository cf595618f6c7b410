"""Reductions across the lanes of a wave, each in a promised order.

The order of a butterfly is a promise about bits (attention.md 3), the instruction that carries it is not.
Inside a row of 16 lanes a DPP operand costs nothing extra, so the exchanges are chosen to be plain DPP
moves:

- going up (xor 1, 2, 4, ...), the lanes below a step already agree, so any move that reaches the other
  group of 4 (half mirror) or of 8 (rotate by 8) serves;
- going down (xor 32, 16, 8, ...), values repeat with the distance just done, so a rotation by 4 is xor 4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flydsl.expr as fx
from flydsl.expr.typing import Int32

from . import lowlevel as ll
from .build import Strategy
from .context import Context

XOR1, XOR2, REVERSE = 0xB1, 0x4E, 0x1B  # quad permutations
ROTATE4, ROTATE8, HALF_MIRROR = 0x124, 0x128, 0x141
ROW_UP = 0x110  # plus n: from n lanes below in the row
NEXT_ROW, NEXT_HALF = 0x142, 0x143  # lane 15 of a row to the next row, lane 31 to the upper half
SWIZZLE_XOR16 = 0x401F

LAST_LANE = 63


def add(a: Any, b: Any) -> Any:
    return a + b


def max_bits(a: Any, b: Any) -> Any:
    """Maximum of two non-negative floats given as bits; a NaN is above every number and so survives."""
    return fx.max(a, b)


def _or(a: Any, b: Any) -> Any:
    return a | b


def _chain(v: Any, controls: tuple[int, ...], op: Callable[[Any, Any], Any]) -> Any:
    for control in controls:
        v = op(v, ll.dpp(v, control))
    return v


def across(c: Context, v: Any, distance: int, op: Callable[[Any, Any], Any]) -> Any:
    """``op`` of the lanes ``distance`` (16 or 32) apart; commutative, so both lanes get the same bits."""
    how: Strategy = c.build.how
    if how.lane_swap == "permlane_swap":
        return op(*ll.lane_swap(v, distance))
    if distance == 16:
        return op(v, ll.swizzle(v, SWIZZLE_XOR16))
    return op(v, ll.gather(v, (c.lane ^ 32) << 2))


def sum_up(v: Any) -> Any:
    """Butterfly sum in the order 1, 2, 4, 8, 16, 32; valid in ``LAST_LANE``."""
    return _chain(v, (XOR1, XOR2, HALF_MIRROR, ROTATE8, NEXT_ROW, NEXT_HALF), add)


def sum_down(c: Context, v: Any) -> Any:
    """Butterfly sum in the order 32, 16, 8, 4, 2, 1; valid in every lane."""
    v = across(c, across(c, v, 32, add), 16, add)
    return row_sum_down(v)


def row_sum_down(v: Any) -> Any:
    """Butterfly sum in the order 8, 4, 2, 1 inside each row of 16 lanes."""
    return _chain(v, (ROTATE8, ROTATE4, XOR2, XOR1), add)


def quad_sum(v: Any) -> Any:
    """(v0 + v1) + (v2 + v3) of the four lanes of a quad."""
    return _chain(v, (XOR1, XOR2), add)


def quad_max(v: Any) -> Any:
    """Largest bits of a quad, in all four lanes."""
    return _chain(v, (XOR1, XOR2), max_bits)


def pair_max(v: Any) -> Any:
    """Largest bits of two neighbouring lanes, in both."""
    return _chain(v, (XOR1,), max_bits)


def eight_max(v: Any) -> Any:
    """Largest bits of eight neighbouring lanes, in all of them."""
    return _chain(v, (XOR1, XOR2, HALF_MIRROR), max_bits)


def row_max(v: Any) -> Any:
    """Largest bits of a row of 16 lanes, in all of them."""
    return _chain(v, (XOR1, XOR2, HALF_MIRROR, ROTATE8), max_bits)


def row_max_plain(v: Any) -> Any:
    """Largest float of a row of 16 lanes, in all of them; a NaN may lose."""
    return _chain(v, (XOR1, XOR2, HALF_MIRROR, ROTATE8), ll.max_plain)


def half_max(c: Context, v: Any) -> Any:
    """Largest bits of 32 lanes, in all of them."""
    return across(c, row_max(v), 16, max_bits)


def wave_max(v: Any) -> Any:
    """Largest signed i32 of the wave, as a scalar; the DPP moves read 0 where a lane has no source, so no
    lane's value is lost only if the last lane is asked."""
    v = row_max(v)
    v = fx.max(v, ll.dpp_keep(v, NEXT_ROW, 0xA))
    v = fx.max(v, ll.dpp_keep(v, NEXT_HALF, 0xC))
    return ll.read_word(v, LAST_LANE)


def quad_or(v: Any) -> Any:
    """Bits of a quad's lanes together, in all four."""
    return _chain(v, (XOR1, XOR2), _or)


def prefix_sum(v: Any) -> Any:
    """Inclusive i32 sums up to each lane of the wave."""
    for distance in (1, 2, 4, 8):
        v = v + ll.dpp(v, ROW_UP + distance)
    v = v + ll.dpp_keep(v, NEXT_ROW, 0xA, Int32(0))
    return v + ll.dpp_keep(v, NEXT_HALF, 0xC, Int32(0))


def column_sum(v: Any) -> Any:
    """A row of 16 lanes as a 4 x 4 matrix: (v0 + v1) + (v2 + v3) down each column, in all its lanes.

    xor 4 is a half mirror (lane i to 7 - i) with the quads turned round again.
    """
    v = v + ll.dpp(ll.dpp(v, HALF_MIRROR), REVERSE)
    return v + ll.dpp(v, ROTATE8)
