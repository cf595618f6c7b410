"""Float operations of the vector ALU, each from the exact real result and one rounding.

MODE is the launch default: round to nearest even, denormals kept, IEEE and DX10_CLAMP on. A NaN result is a
class (`softfloat` gives one canonical code); callers compare NaNs as equal.
"""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction
from math import isqrt

from asm import Ins, Reg

from . import softfloat as sf
from .softfloat import F32, Num, f32
from .state import MASK32, State, signed
from .valu import Lane, op, plain

QNAN = sf.nan_code(F32)


def _pack(num: Num) -> int:
    return sf.encode(F32, num)


plain("v_add_f32", "f32 f32", lambda a, b: _pack(sf.add(f32(a), f32(b))))
plain("v_sub_f32", "f32 f32", lambda a, b: _pack(sf.add(f32(a), sf.negate(f32(b)))))
plain("v_subrev_f32", "f32 f32", lambda a, b: _pack(sf.add(f32(b), sf.negate(f32(a)))))
plain("v_mul_f32", "f32 f32", lambda a, b: _pack(sf.multiply(f32(a), f32(b))))
plain("v_fma_f32", "f32 f32 f32", lambda a, b, c: _pack(sf.fma(f32(a), f32(b), f32(c))))
plain("v_fmaak_f32", "f32 f32 f32", lambda a, b, k: _pack(sf.fma(f32(a), f32(b), f32(k))))
plain("v_fmamk_f32", "f32 f32 f32", lambda a, k, c: _pack(sf.fma(f32(a), f32(k), f32(c))))
op("v_fmac_f32", "f32 f32")(lambda lane, a, b: _pack(sf.fma(f32(a), f32(b), f32(lane.old))))


def _pick(a: int, b: int, larger: bool) -> int:
    """min or max of two codes that are no NaN: +0 is greater than -0."""
    x, y = f32(a), f32(b)
    if sf.equal(x, y):
        return a if (x.sign == 0) == larger else b
    return a if sf.less(y, x) == larger else b


def minmax(a: int, b: int, larger: bool) -> int:
    """v_min_f32 / v_max_f32 with IEEE=1: a signalling NaN wins quieted, a quiet one loses to a number."""
    x, y = f32(a), f32(b)
    if x.signalling or y.signalling or (x.nan and y.nan):
        return QNAN
    if x.nan or y.nan:
        return b if x.nan else a
    return _pick(a, b, larger)


def minmax_2019(a: int, b: int, larger: bool) -> int:
    return QNAN if f32(a).nan or f32(b).nan else _pick(a, b, larger)


plain("v_min_f32", "f32 f32", lambda a, b: minmax(a, b, False))
plain("v_max_f32", "f32 f32", lambda a, b: minmax(a, b, True))
plain("v_min3_f32", "f32 f32 f32", lambda a, b, c: minmax(minmax(a, b, False), c, False))
plain("v_max3_f32", "f32 f32 f32", lambda a, b, c: minmax(minmax(a, b, True), c, True))
plain("v_minimum3_f32", "f32 f32 f32", lambda a, b, c: minmax_2019(minmax_2019(a, b, False), c, False))
plain("v_maximum3_f32", "f32 f32 f32", lambda a, b, c: minmax_2019(minmax_2019(a, b, True), c, True))


@op("v_med3_f32", "f32 f32 f32")
def _med3(_lane: Lane, a: int, b: int, c: int) -> int:
    if any(f32(x).nan for x in (a, b, c)):
        return minmax(minmax(a, b, False), c, False)
    top = f32(minmax(minmax(a, b, True), c, True))
    if sf.equal(top, f32(a)):
        return minmax(b, c, True)
    return minmax(a, c if sf.equal(top, f32(b)) else b, True)


TESTS = {
    "lt": lambda a, b: sf.less(a, b),
    "eq": lambda a, b: sf.equal(a, b),
    "le": lambda a, b: not sf.less(b, a),
    "gt": lambda a, b: sf.less(b, a),
    "lg": lambda a, b: not sf.equal(a, b),
    "ge": lambda a, b: not sf.less(a, b),
}


def _compare(test: str, a: int, b: int) -> bool:
    x, y = f32(a), f32(b)
    return not (x.nan or y.nan) and bool(TESTS[test](x, y))


for _test in TESTS:
    _not = "neq" if _test == "eq" else "n" + _test
    plain(f"v_cmp_{_test}_f32", "f32 f32", lambda a, b, t=_test: _compare(t, a, b), dst="mask")
    plain(f"v_cmp_{_not}_f32", "f32 f32", lambda a, b, t=_test: not _compare(t, a, b), dst="mask")
plain("v_cmp_o_f32", "f32 f32", lambda a, b: not (f32(a).nan or f32(b).nan), dst="mask")
plain("v_cmp_u_f32", "f32 f32", lambda a, b: f32(a).nan or f32(b).nan, dst="mask")


@op("v_cmp_class_f32", "f32 b32", dst="mask")
def _class(_lane: Lane, a: int, mask: int) -> int:
    num = f32(a)
    if num.nan:
        bit = 0 if num.signalling else 1
    elif num.kind == "inf":
        bit = 2 if num.sign else 9
    else:
        size = 0 if num.zero else 1 if num.mag < sf.power(-126) else 2
        bit = (5, 4, 3)[size] if num.sign else (6, 7, 8)[size]
    return mask >> bit & 1


@op("v_ldexp_f32", "f32 b32")
def _ldexp(_lane: Lane, a: int, exponent: int) -> int:
    num = f32(a)
    if num.kind != "fin" or num.zero:
        return _pack(num)
    shift = max(min(signed(exponent), 600), -600)
    return _pack(Num("fin", num.sign, num.mag * sf.power(shift)))


def _integral(kind: str, a: int) -> int:
    num = f32(a)
    if num.kind != "fin" or num.zero:
        return _pack(num)
    whole = num.mag.numerator // num.mag.denominator
    exact = whole == num.mag
    if kind == "rndne":
        whole = sf.to_even(num.mag)
    elif not exact and ((kind == "ceil" and not num.sign) or (kind == "floor" and num.sign)):
        whole += 1
    return _pack(Num("fin", num.sign, Fraction(whole)))


for _kind in ("rndne", "floor", "ceil", "trunc"):
    plain(f"v_{_kind}_f32", "f32", lambda a, k=_kind: _integral(k, a))

# ---- operations of one ulp: the correctly rounded value, denormals flushed on both sides


def _flush(num: Num) -> Num:
    small = num.kind == "fin" and num.mag < sf.power(-126)
    return Num("fin", num.sign) if small else num


def _finish(num: Num) -> int:
    return _pack(_flush(f32(_pack(num))))


def _rcp(a: int) -> int:
    num = _flush(f32(a))
    if num.nan:
        return QNAN
    if num.zero or num.kind == "inf":
        return _pack(Num("inf" if num.zero else "fin", num.sign))
    return _finish(Num("fin", num.sign, 1 / num.mag))


def _root(x: Fraction) -> Fraction:
    """sqrt to 90 bits and a sticky one: rounding it to 24 bits equals rounding the exact root."""
    shift = 2 * (100 + max(0, -sf.floor_log2(x)))
    scaled = (x.numerator << shift) // x.denominator
    root = isqrt(scaled)
    exact = root * root == scaled and scaled * x.denominator == x.numerator << shift
    return Fraction(2 * root + (0 if exact else 1), 2 << shift // 2)


def _sqrt(a: int, reciprocal: bool) -> int:
    num = _flush(f32(a))
    if num.nan or (num.sign and not num.zero):
        return QNAN
    if num.zero:
        return _pack(Num("inf", num.sign) if reciprocal else num)
    if num.kind == "inf":
        return 0 if reciprocal else _pack(num)
    return _finish(Num("fin", 0, _root(1 / num.mag if reciprocal else num.mag)))


_EXACT = Context(prec=60, Emax=999999, Emin=-999999)
_LN2 = _EXACT.ln(Decimal(2))


def _exp2(a: int) -> int:
    num = _flush(f32(a))
    if num.kind != "fin":
        return QNAN if num.nan else 0 if num.sign else _pack(num)
    value = max(min(num.value, Fraction(400)), Fraction(-400))
    exact = _EXACT.divide(Decimal(value.numerator), Decimal(value.denominator))
    return _finish(Num("fin", 0, Fraction(_EXACT.exp(_EXACT.multiply(exact, _LN2)))))


def _log2(a: int) -> int:
    num = _flush(f32(a))
    if num.zero:
        return _pack(Num("inf", 1))
    if num.nan or num.sign:
        return QNAN
    if num.kind == "inf":
        return _pack(num)
    exponent = sf.floor_log2(num.mag)
    mantissa = num.mag / sf.power(exponent)
    log = _EXACT.ln(_EXACT.divide(Decimal(mantissa.numerator), Decimal(mantissa.denominator)))
    return _finish(sf.finite(Fraction(_EXACT.divide(log, _LN2)) + exponent))


plain("v_rcp_f32", "f32", _rcp)
plain("v_rcp_iflag_f32", "f32", _rcp)
plain("v_sqrt_f32", "f32", lambda a: _sqrt(a, False))
plain("v_rsq_f32", "f32", lambda a: _sqrt(a, True))
plain("v_exp_f32", "f32", _exp2)
plain("v_log_f32", "f32", _log2)
TRANSCENDENTAL = ("v_rcp_f32", "v_rcp_iflag_f32", "v_sqrt_f32", "v_rsq_f32", "v_exp_f32", "v_log_f32")

# ---- the division helpers


@op("v_div_fmas_f32", "f32 f32 f32", bit=True)
def _div_fmas(lane: Lane, a: int, b: int, c: int) -> int:
    num = sf.fma(f32(a), f32(b), f32(c))
    if not lane.bit or num.kind != "fin":
        return _pack(num)
    up = (c >> 23 & 0xFF) > 127
    return _pack(Num("fin", num.sign, num.mag * sf.power(64 if up else -64)))


@op("v_div_fixup_f32", "f32 f32 f32")
def _div_fixup(_lane: Lane, q: int, den: int, num: int) -> int:
    quotient, d, n = f32(q), f32(den), f32(num)
    sign = d.sign ^ n.sign
    if n.nan or d.nan or (n.zero and d.zero) or (n.kind == d.kind == "inf"):
        return QNAN
    if d.zero or n.kind == "inf":
        return _pack(Num("inf", sign))
    if d.kind == "inf" or n.zero:
        return _pack(Num("fin", sign))
    if (num >> 23 & 0xFF) - (den >> 23 & 0xFF) < -150:
        return _pack(Num("fin", sign))
    if quotient.nan:
        return _pack(Num("inf", sign))
    return sign << 31 | q & (MASK32 >> 1)


def _div_scale(a: int, den: int, num: int) -> tuple[int, int]:
    """Scales S0 by 2^64 or 2^-64 so that quotient, reciprocal and remainders stay normal; carry = undo it at
    the end.

    D is S0 where nothing scales (the printed pseudocode leaves that out). Where both operands scale alike
    nothing is to be undone. A reciprocal that would be denormal must be avoided because v_rcp flushes it.
    """
    d, n = f32(den), f32(num)
    up, down = (_pack(sf.multiply(f32(a), Num("fin", 0, sf.power(e)))) for e in (64, -64))
    if d.zero or n.zero:
        return QNAN, 0
    if (num >> 23 & 0xFF) - (den >> 23 & 0xFF) >= 96:
        return (up if a == den else a), 1
    if d.kind != "fin" or n.kind != "fin":
        return a, 0
    if d.mag < sf.power(-126):
        return up, 0
    tiny_quotient = n.mag / d.mag < sf.power(-126)
    if 1 / d.mag < sf.power(-126):
        return (down if a == den or not tiny_quotient else a), int(tiny_quotient)
    if tiny_quotient:
        return (up if a == num else a), 1
    return (up if num >> 23 & 0xFF <= 23 else a), 0


plain("v_div_scale_f32", "f32 f32 f32", _div_scale, dst="carry")

# ---- packed f32: a register pair each, op_sel and op_sel_hi pick the dwords


def packed(state: State, ins: Ins) -> None:
    """v_pk_add/mul/fma_f32 and v_pk_mov_b32."""
    results = {}
    for lane in state.lanes():
        halves = []
        for select, neg in ((ins.op_sel, ins.neg), (ins.op_sel_hi, ins.neg_hi)):
            words = []
            for i, operand in enumerate(ins.src):
                raw = state.read(operand, lane)
                wide = isinstance(operand, Reg)
                words.append((raw >> 32 * (select >> i & 1 if wide else 0) & MASK32) ^ (neg >> i & 1) << 31)
            halves.append(words)
        results[lane] = _packed_result(ins, halves)
    for lane, value in results.items():
        assert isinstance(ins.dst[0], Reg)
        state.set_vector(ins.dst[0], lane, value)


def _packed_result(ins: Ins, halves: list[list[int]]) -> int:
    compute = {"v_pk_add_f32": sf.add, "v_pk_mul_f32": sf.multiply, "v_pk_fma_f32": sf.fma}[ins.name]
    low, high = (_pack(compute(*map(f32, words))) for words in halves)
    return low | high << 32


def packed_mov(state: State, ins: Ins) -> None:
    """v_pk_mov_b32: low = S0.dword[op_sel[0]], high = S1.dword[op_sel[1]]."""
    results = {}
    for lane in state.lanes():
        first, second = (state.read(o, lane) for o in ins.src[:2])
        results[lane] = (
            first >> 32 * (ins.op_sel & 1) & MASK32 | (second >> 32 * (ins.op_sel >> 1 & 1) & MASK32) << 32
        )
    for lane, value in results.items():
        assert isinstance(ins.dst[0], Reg)
        state.set_vector(ins.dst[0], lane, value)


PACKED = {"v_pk_add_f32": packed, "v_pk_mul_f32": packed, "v_pk_fma_f32": packed, "v_pk_mov_b32": packed_mov}
