"""bf16, e4m3 and the power-of-two scales of MXFP8 groups and KV records.

Facts the short sequences rest on (proved over every bf16 value in the tests):

- A scale code is the exponent of amax / MAX rounded up. MAX is 1.75 * 2^8 (OCP) or 1.75 * 2^7 (FNUZ), so
  the quotient rounds up to the next power of two exactly where amax's mantissa is above 1.75: an integer
  addition of 31 to the upper 16 bits of amax (a bf16) carries into the exponent there, and no division is
  needed.
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
_UPPER_HALVES = 0x07060302  # v_perm selector: the two upper halves of (high, low)
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
    return ll.perm(_round_up_half(high), _round_up_half(low), _UPPER_HALVES)


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
    return ll.perm(high.bitcast(Int32), low.bitcast(Int32), _UPPER_HALVES)


def amax16(how: Strategy, words: Sequence[Any], values: Sequence[Any]) -> Any:
    """Upper 16 bits of max |v| over packed bf16 ``words`` (``values``: the same, unpacked). NaN wins."""
    if how.max3:
        top = abs(values[0])
        for v in values[1:]:
            top = fx.max(top, abs(v))
        return (top.bitcast(Int32) >> 16) & 0xFFFF
    pair = ll.max_u16x2([w & 0x7FFF7FFF for w in words])
    return fx.max(pair & 0xFFFF, (pair >> 16) & 0xFFFF)


def scale_code(how: Strategy, top16: Any, floor: int) -> Any:
    """The scale code of a group whose largest magnitude has the upper bits ``top16``."""
    code = (top16 + (31 - (_EXPONENT_OF_MAX[how.fp8] << 7))) >> 7
    return (top16 >= _INF16).select(Int32(254), fx.max(code, Int32(floor)))


def multiplier(code: Any) -> Any:
    """2^(127 - code) as fp32, 0 for code 254."""
    return ((254 - code) << 23).bitcast(Float32)


def pack8(values: Sequence[Any], by: Any) -> Any:
    """Eight values times ``by`` as two words of e4m3."""
    words = []
    for k in (0, 4):
        low = ll.pack_fp8(values[k] * by, values[k + 1] * by, Int32(0), False)
        words.append(ll.pack_fp8(values[k + 2] * by, values[k + 3] * by, low, True))
    return fx.Vector.from_elements(words, Int32)


def divide(x: Any, by: float) -> Any:
    """x / by, correctly rounded: a quotient from the rounded reciprocal and one exact residual step."""
    d, r = Float32(by), Float32(1.0 / by)
    q = x * r
    return ll.fma(ll.fma(-q, d, x), r, q)
