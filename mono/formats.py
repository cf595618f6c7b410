"""bf16, e4m3 and the power-of-two scales of MXFP8 groups and KV records.

Facts the short sequences rest on (proved over every bf16 value in the tests):

- A scale code is the exponent of amax / MAX rounded up. MAX is 1.75 * 2^8 (OCP) or 1.75 * 2^7 (FNUZ), so
  the quotient rounds up to the next power of two exactly where amax's mantissa is above 1.75: an integer
  addition of 31 to the upper 16 bits of amax (a bf16) carries into the exponent there, and no division is
  needed. The same holds for fp32 magnitudes: next to 1.75 the quotient's rounding never crosses the power.
- A code so chosen keeps |value| * 2^(127 - code) <= MAX, so the clamp of the formula never acts. A group
  with NaN or inf has code 254 and multiplier 0: numbers become 0, NaN and inf become NaN.
- Rounding to bf16 by adding 0x7FFF and the last kept bit keeps every inf, every quiet NaN that arithmetic
  makes, and every NaN widened from bf16.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flydsl.expr as fx
from flydsl.expr.typing import BFloat16, Float32, Int32

from . import lowlevel as ll
from .build import Strategy

_EXPONENT_OF_MAX = {"ocp": 8, "fnuz": 7}
_INF16 = 0x7F80
UPPER_HALVES, LOWER_HALVES = 0x07060302, 0x05040100  # v_perm selectors: halves of (high, low)
MX_FLOOR = 1  # code of an all-zero group
_RECORD_FLOOR = {"ocp": 105, "fnuz": 106}  # code of amax = 1e-4, the floor of a KV record
_ROUTED_FLOOR = {"ocp": 85, "fnuz": 86}  # code of amax = 1e-10, the floor of the routed experts' inputs


def routed_floor(how: Strategy) -> int:
    return _ROUTED_FLOOR[how.fp8]


def record_floor(how: Strategy) -> int:
    return _RECORD_FLOOR[how.fp8]


def _round_up_half(v: Any) -> Any:
    """fp32 bits whose upper half is bf16(v), nearest even; the lower half is left over."""
    bits = v.bitcast(Int32)
    return bits + ((bits >> 16) & 1) + 0x7FFF


def bf16_pair(how: Strategy, low: Any, high: Any) -> Any:
    """One word of two bf16."""
    if how.bf16_cvt == "cvt_pk":
        return fx.Vector.from_elements([low, high], Float32).to(BFloat16).bitcast(Int32)[0]
    return ll.perm(_round_up_half(high), _round_up_half(low), UPPER_HALVES)


def bf16_round(how: Strategy, v: Any) -> Any:
    """v rounded to bf16, as fp32."""
    if how.bf16_cvt == "cvt_pk":
        return Float32(v.to(BFloat16))
    return (_round_up_half(v) & -65536).bitcast(Float32)


def bf16_low(word: Any) -> Any:
    return (word << 16).bitcast(Float32)


def bf16_high(word: Any) -> Any:
    return (word & -65536).bitcast(Float32)


def unpack(words: Sequence[Any]) -> list[Any]:
    """The bf16 values of packed words, as fp32, low half first."""
    return [half(w) for w in words for half in (bf16_low, bf16_high)]


def packed(low: Any, high: Any) -> Any:
    """One word of two fp32 that are bf16 values."""
    return ll.perm(high.bitcast(Int32), low.bitcast(Int32), UPPER_HALVES)


def amax16(how: Strategy, words: Sequence[Any], values: Sequence[Any]) -> Any:
    """Upper 16 bits of max |v| over packed bf16 ``words`` (``values``: the same, unpacked). NaN wins."""
    if how.max3:
        top = abs(values[0])
        for v in values[1:]:
            top = fx.max(top, abs(v))
        return (top.bitcast(Int32) >> 16) & 0xFFFF
    pair = ll.max_u16x2([w & 0x7FFF7FFF for w in words])
    return fx.max(pair & 0xFFFF, (pair >> 16) & 0xFFFF)


def amax32(how: Strategy, values: Sequence[Any]) -> Any:
    """Bits of max |v| over fp32 ``values``. NaN wins."""
    if how.max3:
        top = abs(values[0])
        for v in values[1:]:
            top = fx.max(top, abs(v))
        return top.bitcast(Int32) & 0x7FFFFFFF
    top = values[0].bitcast(Int32) & 0x7FFFFFFF
    for v in values[1:]:
        top = fx.max(top, v.bitcast(Int32) & 0x7FFFFFFF)
    return top


def scale_code(how: Strategy, top: Any, floor: int, bits: int = 16) -> Any:
    """The scale code of a group whose largest magnitude has the upper ``bits`` (16 or 32) ``top``."""
    mantissa = bits - 9
    carry = (1 << (mantissa - 2)) - 1  # carries out of a mantissa above 1.75
    code = (top + (carry - (_EXPONENT_OF_MAX[how.fp8] << mantissa))) >> mantissa
    return (top >= _INF16 << (bits - 16)).select(Int32(254), fx.max(code, Int32(floor)))


def power_of_two(code: Any) -> Any:
    """2^(code - 127) as fp32; code 0, which no record or group has, counts as 0."""
    return (code << 23).bitcast(Float32)


def multiplier(code: Any) -> Any:
    """2^(127 - code) as fp32, 0 for code 254."""
    return ((254 - code) << 23).bitcast(Float32)


def pack4(values: Sequence[Any], by: Any) -> Any:
    """Four values times ``by`` as a word of e4m3."""
    low = ll.pack_fp8(values[0] * by, values[1] * by, Int32(0), False)
    return ll.pack_fp8(values[2] * by, values[3] * by, low, True)


def pack8(values: Sequence[Any], by: Any) -> Any:
    """Eight values times ``by`` as two words of e4m3."""
    return fx.Vector.from_elements([pack4(values[k : k + 4], by) for k in (0, 4)], Int32)


def divide(x: Any, by: float) -> Any:
    """x / by, correctly rounded: a quotient from the rounded reciprocal and one exact residual step."""
    d, r = Float32(by), Float32(1.0 / by)
    q = x * r
    return ll.fma(ll.fma(-q, d, x), r, q)
