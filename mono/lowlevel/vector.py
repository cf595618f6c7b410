"""Arithmetic, lane exchange and matrix instructions that FlyDSL has no stable name for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flydsl.expr as fx
from flydsl._mlir import ir
from flydsl._mlir.dialects import arith as _arith
from flydsl._mlir.dialects import llvm as _llvm
from flydsl._mlir.dialects import rocdl as _rocdl
from flydsl.expr import rocdl
from flydsl.expr.typing import BFloat16, Float32, Int16, Int32, Int64, T

from .values import i32, raw


def intrinsic(name: str, result: Any, *operands: Any) -> Any:
    return _llvm.call_intrinsic(result, f"llvm.amdgcn.{name}", [raw(v) for v in operands], [], [])


def rsq(x: Any) -> Any:
    """v_rsq_f32 (about 1 ulp)."""
    return Float32(intrinsic("rsq.f32", T.f32, x))


def rcp(x: Any) -> Any:
    """v_rcp_f32 (about 1 ulp)."""
    return Float32(intrinsic("rcp.f32", T.f32, x))


def exp2(x: Any) -> Any:
    """v_exp_f32 (about 1 ulp)."""
    return Float32(intrinsic("exp2.f32", T.f32, x))


def log2(x: Any) -> Any:
    """v_log_f32 (about 1 ulp)."""
    return Float32(intrinsic("log.f32", T.f32, x))


def sqrt(x: Any) -> Any:
    """v_sqrt_f32 (about 1 ulp)."""
    return Float32(intrinsic("sqrt.f32", T.f32, x))


def round_even(x: Any) -> Any:
    """v_rndne_f32: the nearest integer."""
    return Float32(_llvm.call_intrinsic(T.f32, "llvm.rint.f32", [raw(x)], [], []))


def ldexp(x: Any, e: Any) -> Any:
    """x * 2^e for every int32 e, rounded once (v_ldexp_f32)."""
    return Float32(_llvm.call_intrinsic(T.f32, "llvm.ldexp.f32.i32", [raw(x), i32(e)], [], []))


def fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once; scalars or vectors of one length."""
    return fx.fma(a, b, c)


def max_u16x2(words: Sequence[Any]) -> Any:
    """Maxima of the two unsigned 16-bit halves over ``words``."""
    pair = ir.VectorType.get([2], ir.IntegerType.get_signless(16))
    halves = [_llvm.BitcastOp(pair, raw(w)).result for w in words]
    top = halves[0]
    for h in halves[1:]:
        top = _arith.MaxUIOp(top, h).result
    return Int32(_llvm.BitcastOp(T.i32, top).result)


def max_plain(a: Any, b: Any) -> Any:
    """v_max_f32; only where a NaN among the operands may lose."""
    return fx.max(a, b, fastmath="nnan")


def ldexp_one(e: Any) -> Any:
    """2^e as fp32 for every int32 e: subnormal and 0 below, inf above (v_ldexp_f32)."""
    return ldexp(Float32(1.0), e)


def perm(high: Any, low: Any, selector: int) -> Any:
    """v_perm_b32: four bytes picked out of ``high:low``."""
    return Int32(rocdl.perm_b32(Int32(high), Int32(low), Int32(selector)))


def pack_fp8(a: Any, b: Any, old: Any, high: bool) -> Any:
    """Two fp32 in range to two e4m3 bytes of ``old`` (the GPU's own flavour, nearest even)."""
    return Int32(rocdl.cvt_pk_fp8_f32(T.i32, a, b, old, high))


def unpack_fp8(word: Any, high: bool) -> Any:
    """The lower or upper two e4m3 bytes of ``word`` (the GPU's own flavour) as two fp32; exact."""
    return fx.Vector(rocdl.cvt_pk_f32_fp8(T.vec(2, T.f32), Int32(word), high))


def fp8_to_bf16_pair(word: Any, scale: Any, high: bool) -> Any:
    """Two e4m3 bytes of ``word`` times ``scale`` (a power of two) as a word of two bf16; exact."""
    pair = ir.VectorType.get([2], ir.BF16Type.get())
    two = _rocdl.cvt_scalef32_pk_bf16_fp8(pair, raw(Int32(word)), raw(scale), high)
    return Int32(_llvm.BitcastOp(T.i32, two).result)


def uniform(v: Any) -> Any:
    """A value equal in all lanes, as a scalar register."""
    return Int32(rocdl.readfirstlane(T.i32, Int32(v)))


def read_lane(v: Any, lane: int) -> Any:
    return Float32(intrinsic("readlane.f32", T.f32, v, Int32(lane)))


def any_lane(condition: Any) -> Any:
    """Whether any active lane holds: a scalar condition, so the branch on it is one instruction."""
    return fx.Int64(rocdl.ballot(T.i64, condition)) != fx.Int64(0)


def ballot(condition: Any) -> Any:
    """The lanes in which ``condition`` holds, as a scalar i64."""
    return fx.Int64(rocdl.ballot(T.i64, condition))


def lowest_bit(mask: Any) -> Any:
    """Number of the lowest set bit of an i64; 64 if there is none."""
    bit = ir.IntegerType.get_signless(1)
    false = _arith.ConstantOp(bit, ir.IntegerAttr.get(bit, 0)).result
    found = _llvm.call_intrinsic(T.i64, "llvm.cttz.i64", [raw(mask), false], [], [])
    return Int32(_arith.TruncIOp(T.i32, found).result)


def bits_set(word: Any) -> Any:
    """Set bits of an i32 (v_bcnt_u32_b32)."""
    return Int32(_llvm.call_intrinsic(T.i32, "llvm.ctpop.i32", [raw(word)], [], []))


def read_word(v: Any, lane: Any) -> Any:
    """The i32 of ``lane`` (scalar), as a scalar."""
    return Int32(intrinsic("readlane.i32", T.i32, v, i32(lane)))


def dpp(v: Any, control: int) -> Any:
    """``v`` moved inside rows of 16 lanes; lanes without a source read 0."""
    data = raw(v)
    return type(v)(_rocdl.update_dpp(data.type, raw(type(v)(0)), data, control, 0xF, 0xF, True))


def dpp_keep(v: Any, control: int, rows: int, other: Any = None) -> Any:
    """``v`` moved into the rows of mask ``rows``; other rows get ``other`` (their own value if None)."""
    data = raw(v)
    old = data if other is None else raw(other)
    return type(v)(_rocdl.update_dpp(data.type, old, data, control, rows, 0xF, False))


def swizzle(v: Any, control: int) -> Any:
    """ds_swizzle_b32: a fixed exchange inside 32 lanes through the LDS crossbar."""
    bits = v.bitcast(Int32) if isinstance(v, Float32) else v
    moved = Int32(_rocdl.ds_swizzle(T.i32, raw(bits), i32(control)))
    return moved.bitcast(Float32) if isinstance(v, Float32) else moved


def gather(v: Any, byte_lane: Any) -> Any:
    """ds_bpermute_b32: the value of lane ``byte_lane / 4``."""
    bits = v.bitcast(Int32) if isinstance(v, Float32) else v
    moved = Int32(rocdl.ds_bpermute(T.i32, byte_lane, bits))
    return moved.bitcast(Float32) if isinstance(v, Float32) else moved


def lane_swap(v: Any, distance: int) -> tuple[Any, Any]:
    """(lower, upper) of every lane pair ``distance`` (16 or 32) apart, in both lanes of the pair."""
    swap = _rocdl.permlane32_swap if distance == 32 else _rocdl.permlane16_swap
    bits = raw(v.bitcast(Int32) if isinstance(v, Float32) else v)
    pair = swap(_llvm.StructType.get_literal([T.i32, T.i32]), bits, bits, False, False)
    halves = [Int32(_llvm.extractvalue(T.i32, pair, [i])) for i in range(2)]
    lower, upper = (h.bitcast(Float32) if isinstance(v, Float32) else h for h in halves)
    return lower, upper


def mfma_f32(a: Any, b: Any, c: Any) -> Any:
    """v_mfma_f32_16x16x4_f32."""
    none = rocdl._blgp_attr(0)
    return fx.Vector(_rocdl.mfma_f32_16x16x4f32_(T.vec(4, T.f32), raw(a), raw(b), raw(c), 0, 0, none))


def mfma_fp8(a: Any, b: Any) -> Any:
    """v_mfma_f32_16x16x32_fp8_fp8 on a zero accumulator; ``a`` and ``b`` are two words of 8 bytes."""
    zero = fx.Vector.filled(4, 0.0, Float32)
    operands = [v.bitcast(Int64)[0] for v in (a, b)]
    return fx.Vector(rocdl.mfma_f32_16x16x32_fp8_fp8(T.vec(4, T.f32), [*operands, zero, 0, 0, 0]))


E4M3, E2M1 = 0, 4  # operand formats of a scaled MFMA


def mfma_scaled(
    a: Any, b: Any, c: Any, scale_a: Any, scale_b: Any, a_format: int = E4M3, a_byte: int = 0
) -> Any:
    """v_mfma_scale_f32_16x16x128_f8f6f4, ``b`` in e4m3; scale codes are byte ``a_byte`` and the low byte."""
    operands = [a, b, c, a_format, E4M3, a_byte, scale_a, 0, scale_b]
    return fx.Vector(rocdl.mfma_scale_f32_16x16x128_f8f6f4(T.vec(4, T.f32), operands))


def mfma_bf16(columns: int, a: Any, b: Any, c: Any) -> Any:
    """16 x 16 x 32 bf16 (``a``, ``b``: four words a lane): one MFMA of 32 ``columns``, or two of 16."""
    result = T.vec(4, T.f32)
    if columns == 32:
        wide = [raw(v.bitcast(BFloat16)) for v in (a, b)]
        return fx.Vector(rocdl.mfma_f32_16x16x32_bf16(result, [*wide, raw(c), 0, 0, 0]))
    for k in (0, 2):
        halves = [fx.Vector.from_elements([v[k], v[k + 1]], Int32).bitcast(Int16) for v in (a, b)]
        c = fx.Vector(rocdl.mfma_f32_16x16x16bf16_1k(result, [*map(raw, halves), raw(c), 0, 0, 0]))
    return c


def mfma_bf16_16(a: Any, b: Any, c: Any) -> Any:
    """v_mfma_f32_16x16x16_bf16; ``a`` and ``b`` are two words a lane."""
    operands = [raw(v.bitcast(Int16)) for v in (a, b)]
    return fx.Vector(rocdl.mfma_f32_16x16x16bf16_1k(T.vec(4, T.f32), [*operands, raw(c), 0, 0, 0]))
