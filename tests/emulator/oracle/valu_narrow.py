"""f16, f64, packed 16-bit and the rarer integer operations: the same definitions as their f32 and i32 kin.

f16 results leave zero in D[31:16]. Kinds "f16" and "f64" carry neg and abs in their own sign bit.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from asm import Ins, Reg

from . import softfloat as sf
from .softfloat import F16, F32, F64, Format, Num
from .state import MASK32, State, signed
from .valu import plain
from .valu_float import TESTS

Binary = Callable[..., Num]


def _float(fmt: Format, compute: Binary) -> Callable[..., int]:
    return lambda *codes: sf.encode(fmt, compute(*(sf.decode(fmt, code) for code in codes)))


_BINARY: dict[str, Binary] = {
    "add": sf.add,
    "sub": lambda a, b: sf.add(a, sf.negate(b)),
    "subrev": lambda a, b: sf.add(b, sf.negate(a)),
    "mul": sf.multiply,
}
for _name, _fn in _BINARY.items():
    plain(f"v_{_name}_f16", "f16 f16", _float(F16, _fn), dst="z16")
    if _name in ("add", "mul"):
        plain(f"v_{_name}_f64", "f64 f64", _float(F64, _fn), dst="b64")
plain("v_fma_f64", "f64 f64 f64", _float(F64, sf.fma), dst="b64")


def minmax(fmt: Format, a: int, b: int, larger: bool) -> int:
    x, y = sf.decode(fmt, a), sf.decode(fmt, b)
    if x.signalling or y.signalling or (x.nan and y.nan):
        return sf.nan_code(fmt)
    if x.nan or y.nan:
        return b if x.nan else a
    if sf.equal(x, y):
        return a if (x.sign == 0) == larger else b
    return a if sf.less(y, x) == larger else b


plain("v_min_f16", "f16 f16", lambda a, b: minmax(F16, a, b, False), dst="z16")
plain("v_max_f16", "f16 f16", lambda a, b: minmax(F16, a, b, True), dst="z16")


def _integral(kind: str, num: Num) -> Num:
    if num.kind != "fin" or num.zero:
        return num
    whole = num.mag.numerator // num.mag.denominator
    if kind == "rndne":
        whole = sf.to_even(num.mag)
    elif whole != num.mag and ((kind == "ceil" and not num.sign) or (kind == "floor" and num.sign)):
        whole += 1
    return Num("fin", num.sign, Fraction(whole))


for _kind in ("floor", "ceil", "trunc", "rndne"):
    plain(f"v_{_kind}_f16", "f16", _float(F16, lambda a, k=_kind: _integral(k, a)), dst="z16")


def _compare(fmt: Format, test: str, a: int, b: int) -> bool:
    x, y = sf.decode(fmt, a), sf.decode(fmt, b)
    return not (x.nan or y.nan) and bool(TESTS[test](x, y))


for _kind, _fmt in (("f16", F16), ("f64", F64)):
    _src = f"{_kind} {_kind}"
    for _test in TESTS:
        _not = "neq" if _test == "eq" else "n" + _test
        plain(f"v_cmp_{_test}_{_kind}", _src, lambda a, b, t=_test, f=_fmt: _compare(f, t, a, b), dst="mask")
        plain(
            f"v_cmp_{_not}_{_kind}", _src, lambda a, b, t=_test, f=_fmt: not _compare(f, t, a, b), dst="mask"
        )
    plain(
        f"v_cmp_o_{_kind}",
        _src,
        lambda a, b, f=_fmt: not (sf.decode(f, a).nan or sf.decode(f, b).nan),
        dst="mask",
    )
    plain(
        f"v_cmp_u_{_kind}", _src, lambda a, b, f=_fmt: sf.decode(f, a).nan or sf.decode(f, b).nan, dst="mask"
    )

for _kind in ("f16", "f32", "f64"):
    plain(f"v_cmp_f_{_kind}", f"{_kind} {_kind}", lambda a, b: False, dst="mask")
    plain(f"v_cmp_tru_{_kind}", f"{_kind} {_kind}", lambda a, b: True, dst="mask")

# ---- integers and conversions
plain("v_add_i32", "b32 b32", lambda a, b: a + b)
plain("v_sub_i32", "b32 b32", lambda a, b: a - b)
plain("v_add_i16", "b16 b16", lambda a, b: a + b, dst="z16")
plain("v_sub_i16", "b16 b16", lambda a, b: a - b, dst="z16")
plain("v_mul_hi_u32_u24", "b32 b32", lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) >> 32)
plain("v_mul_hi_i32_i24", "b32 b32", lambda a, b: signed(a, 24) * signed(b, 24) >> 32)
plain("v_mad_u32_u16", "b16 b16 b32", lambda a, b, c: a * b + c)
plain("v_mad_i32_i16", "b16 b16 b32", lambda a, b, c: signed(a, 16) * signed(b, 16) + c)
plain("v_sad_u32", "b32 b32 b32", lambda a, b, c: abs(a - b) + c)
plain(
    "v_ffbh_i32",
    "b32",
    lambda a: 32 - (a ^ (MASK32 if a >> 31 else 0)).bit_length() if a not in (0, MASK32) else -1,
)


def _toward_zero(a: int) -> int:
    num = sf.f32(a)
    code = sf.encode(F16, num, truncate=True)
    return code - 1 if num.kind == "fin" and code & 0x7FFF == 0x7C00 else code


plain("v_cvt_pkrtz_f16_f32", "f32 f32", lambda a, b: _toward_zero(a) | _toward_zero(b) << 16)


def _clamped_floor(num: Num) -> int:
    if num.nan:
        return 0
    if num.kind == "inf":
        return -(1 << 31) if num.sign else (1 << 31) - 1
    whole = num.value.numerator // num.value.denominator
    return max(-(1 << 31), min((1 << 31) - 1, whole))


plain("v_cvt_flr_i32_f32", "f32", lambda a: _clamped_floor(sf.f32(a)))


def _frexp_exp(a: int) -> int:
    num = sf.f32(a)
    return sf.floor_log2(num.mag) + 1 if num.kind == "fin" and not num.zero else 0


def _frexp_mant(a: int) -> int:
    num = sf.f32(a)
    if num.kind != "fin" or num.zero:
        return sf.encode(F32, num)
    return sf.encode(F32, Num("fin", num.sign, num.mag / sf.power(sf.floor_log2(num.mag) + 1)))


plain("v_frexp_exp_i32_f32", "f32", _frexp_exp)
plain("v_frexp_mant_f32", "f32", _frexp_mant)

plain("v_cvt_f64_f32", "f32", lambda a: sf.encode(F64, sf.f32(a)), dst="b64")
plain("v_cvt_f32_f64", "f64", lambda a: sf.encode(F32, sf.decode(F64, a)))

# ---- packed 16-bit: op_sel picks the halves of the low result, op_sel_hi those of the high one
_PACKED: dict[str, Callable[..., int]] = {
    "add_u16": lambda a, b: a + b,
    "sub_u16": lambda a, b: a - b,
    "mul_lo_u16": lambda a, b: a * b,
    "mad_u16": lambda a, b, c: a * b + c,
    "lshlrev_b16": lambda a, b: b << (a & 15),
    "lshrrev_b16": lambda a, b: b >> (a & 15),
    "ashrrev_i16": lambda a, b: signed(b, 16) >> (a & 15),
    "min_u16": min,
    "max_u16": max,
    "min_i16": lambda a, b: min(signed(a, 16), signed(b, 16)),
    "max_i16": lambda a, b: max(signed(a, 16), signed(b, 16)),
    "add_f16": _float(F16, sf.add),
    "mul_f16": _float(F16, sf.multiply),
    "fma_f16": _float(F16, sf.fma),
    "min_f16": lambda a, b: minmax(F16, a, b, False),
    "max_f16": lambda a, b: minmax(F16, a, b, True),
}
# The low 16 bits of sums and products do not depend on the sign.
_PACKED |= {f"{name}_i16": _PACKED[f"{name}_u16"] for name in ("add", "sub", "mad")}


def packed16(state: State, ins: Ins) -> None:
    fn, floats = _PACKED[ins.name.removeprefix("v_pk_")], ins.name.endswith("f16")
    results = {}
    for lane in state.lanes():
        out = 0
        for half, select, neg in ((0, ins.op_sel, ins.neg), (1, ins.op_sel_hi, ins.neg_hi)):
            words = []
            for i, operand in enumerate(ins.src):
                word = state.read(operand, lane) >> 16 * (select >> i & 1) & 0xFFFF
                words.append(word ^ (neg >> i & 1) << 15 if floats else word)
            out |= (fn(*words) & 0xFFFF) << 16 * half
        results[lane] = out
    for lane, value in results.items():
        assert isinstance(ins.dst[0], Reg)
        state.set_vector(ins.dst[0], lane, value)


PACKED16 = {f"v_pk_{name}": packed16 for name in _PACKED}
