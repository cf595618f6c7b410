"""Every FlyDSL call that FlyDSL does not promise, in one file.

Invariants:

- Nothing else in ``mono/`` imports ``flydsl._mlir`` or names a ROCDL builder or an LLVM intrinsic, so a
  new FlyDSL release is met here and nowhere else.
- Offsets are bytes. An offset is a Python int or an ``Int32``; the constant part of a sum folds into the
  instruction. Values come back as ``Int32``, ``Float32`` or a ``Vector`` of them.
- ``device`` marks a helper whose ``if`` / ``for`` / ``while`` on traced values become control flow of
  the kernel. Such a helper takes plain records and never calls a *method* of one inside such a region
  (FlyDSL would try to carry the record through the branch).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl._mlir import ir
from flydsl._mlir.dialects import arith as _arith
from flydsl._mlir.dialects import llvm as _llvm
from flydsl._mlir.dialects import rocdl as _rocdl
from flydsl._mlir.dialects import scf as _scf
from flydsl.expr import rocdl
from flydsl.expr.typing import Float32, Int32, Int64, T

device = flyc.jit

SC1 = 16  # cache bit of a device-scope access: past the L2 of one XCD
_RAW_BUFFER = 0x00027000  # word 3 of an untyped buffer descriptor


def i32(v: Any) -> Any:
    """A raw i32 value of a Python int (two's complement) or a traced integer."""
    if isinstance(v, int):
        return Int32((v + 2**31) % 2**32 - 2**31).ir_value()
    return v.ir_value() if hasattr(v, "ir_value") else v


def _type(kind: Any, count: int) -> Any:
    return kind.ir_type if count == 1 else ir.VectorType.get([count], kind.ir_type)


def _wrap(raw: Any, kind: Any, count: int) -> Any:
    return kind(raw) if count == 1 else fx.Vector(raw)


def _raw(v: Any) -> Any:
    return v.ir_value() if hasattr(v, "ir_value") else v


def undef(kind: Any, count: int = 1) -> Any:
    """A value that nothing may use: what the idle waves of a stage carry past a uniform branch."""
    return _wrap(_llvm.UndefOp(_type(kind, count)).result, kind, count)


# ---------------------------------------------------------------------------- memory


def _pointer(base: Any, space: int, offset: Any) -> Any:
    """``base`` (i64 address or LDS pointer) plus an unsigned byte offset, constant part last."""
    ptr_type = ir.Type.parse(f"!llvm.ptr<{space}>")
    ptr = _llvm.IntToPtrOp(ptr_type, base).result if isinstance(base.type, ir.IntegerType) else base
    byte = ir.IntegerType.get_signless(8)
    if isinstance(offset, int):
        return ptr if offset == 0 else _llvm.GEPOp(ptr_type, ptr, [], [offset], byte, None).result
    dynamic, constant = offset if isinstance(offset, tuple) else (offset, 0)
    index = i32(dynamic)
    if space == 1:
        index = _arith.ExtUIOp(ir.IntegerType.get_signless(64), index).result
    ptr = _llvm.GEPOp(ptr_type, ptr, [index], [-(2**31)], byte, None).result
    return ptr if constant == 0 else _llvm.GEPOp(ptr_type, ptr, [], [constant], byte, None).result


def global_load(base: Any, offset: Any = 0, kind: Any = Int32, count: int = 1, size: int = 4,
                constant: bool = False) -> Any:
    """Load at ``base`` (Int64 address) + ``offset``; ``offset`` may be ``(dynamic, constant)``.

    ``constant``: no launch that could run now writes it, so a wave-uniform address becomes a scalar load.
    """
    result = _type(kind, count)
    op = _llvm.LoadOp(result, _pointer(base.ir_value(), 1, offset), alignment=size * count, invariant=constant or None)
    return _wrap(op.result, kind, count)


def global_store(base: Any, offset: Any, value: Any, size: int = 4) -> None:
    """Plain store of a scalar or vector at ``base`` + ``offset``; ``size`` < 4 stores its low bytes."""
    raw = _raw(value)
    if size < 4:
        raw = _arith.TruncIOp(ir.IntegerType.get_signless(8 * size), raw).result
    count = raw.type.shape[0] if isinstance(raw.type, ir.VectorType) else 1
    _llvm.StoreOp(raw, _pointer(base.ir_value(), 1, offset), alignment=size * count)


def lds_block(nbytes: int) -> Any:
    """The kernel's one LDS block; stages overlay it at the offsets of the plan's map."""
    return fx.SharedAllocator().allocate(nbytes, 16).peek().ptr.llvm_ptr


def lds_load(lds: Any, offset: Any, kind: Any = Float32, count: int = 1) -> Any:
    """Load ``count`` words of LDS at byte ``offset``, whole (the address is a multiple of the width)."""
    op = _llvm.LoadOp(_type(kind, count), _pointer(lds, 3, offset), alignment=4 * count)
    return _wrap(op.result, kind, count)


def lds_store(lds: Any, offset: Any, value: Any) -> None:
    raw = _raw(value)
    count = raw.type.shape[0] if isinstance(raw.type, ir.VectorType) else 1
    _llvm.StoreOp(raw, _pointer(lds, 3, offset), alignment=4 * count)


def buffer(base: Any, nbytes: Any = 0xFFFFFFFF) -> Any:
    """Descriptor of ``nbytes`` (int or uniform Int32) at ``base``; 0 bytes reads zeros without traffic."""
    i16, i64 = ir.IntegerType.get_signless(16), ir.IntegerType.get_signless(64)
    size = Int64(nbytes).ir_value() if isinstance(nbytes, int) else _arith.ExtUIOp(i64, i32(nbytes)).result
    stride = _arith.ConstantOp(i16, ir.IntegerAttr.get(i16, 0)).result
    ptr = _pointer(base.ir_value(), 1, 0)
    return _rocdl.make_buffer_rsrc(ir.Type.parse("!llvm.ptr<8>"), ptr, stride, size, i32(_RAW_BUFFER))


def buffer_load(buf: Any, offset: Any, uniform: Any = 0, kind: Any = Int32, count: int = 1, cache: int = 0) -> Any:
    """Load at ``offset`` (a lane's) + ``uniform`` (the wave's, not range checked)."""
    raw = rocdl.raw_ptr_buffer_load(_type(kind, count), buf, i32(offset), i32(uniform), aux=cache)
    return _wrap(raw, kind, count)


def buffer_store(buf: Any, offset: Any, uniform: Any, value: Any, cache: int = 0) -> None:
    aux = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), cache)
    _rocdl.raw_ptr_buffer_store(_raw(value), buf, i32(offset), i32(uniform), aux=aux)


# ---------------------------------------------------------------------------- arithmetic


def _intrinsic(name: str, result: Any, *operands: Any) -> Any:
    return _llvm.call_intrinsic(result, f"llvm.amdgcn.{name}", [_raw(v) for v in operands], [], [])


def rsq(x: Any) -> Any:
    """v_rsq_f32 (about 1 ulp)."""
    return Float32(_intrinsic("rsq.f32", T.f32, x))


def rcp(x: Any) -> Any:
    """v_rcp_f32 (about 1 ulp)."""
    return Float32(_intrinsic("rcp.f32", T.f32, x))


def exp2(x: Any) -> Any:
    """v_exp_f32 (about 1 ulp)."""
    return Float32(_intrinsic("exp2.f32", T.f32, x))


def fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once; scalars or vectors of one length."""
    return fx.fma(a, b, c)


def max_u16x2(words: Sequence[Any]) -> Any:
    """Maxima of the two unsigned 16-bit halves over ``words``."""
    pair = ir.VectorType.get([2], ir.IntegerType.get_signless(16))
    halves = [_llvm.BitcastOp(pair, _raw(w)).result for w in words]
    top = halves[0]
    for h in halves[1:]:
        top = _arith.MaxUIOp(top, h).result
    return Int32(_llvm.BitcastOp(T.i32, top).result)


def max_plain(a: Any, b: Any) -> Any:
    """v_max_f32; only where a NaN among the operands may lose."""
    return fx.max(a, b, fastmath="nnan")


def ldexp_one(e: Any) -> Any:
    """2^e as fp32 for every int32 e: subnormal and 0 below, inf above (v_ldexp_f32)."""
    op = "llvm.ldexp.f32.i32"
    return Float32(_llvm.call_intrinsic(T.f32, op, [Float32(1.0).ir_value(), i32(e)], [], []))


def perm(high: Any, low: Any, selector: int) -> Any:
    """v_perm_b32: four bytes picked out of ``high:low``."""
    return Int32(rocdl.perm_b32(Int32(high), Int32(low), Int32(selector)))


def pack_fp8(a: Any, b: Any, old: Any, high: bool) -> Any:
    """Two fp32 in range to two e4m3 bytes of ``old`` (the GPU's own flavour, nearest even)."""
    return Int32(rocdl.cvt_pk_fp8_f32(T.i32, a, b, old, high))


# ---------------------------------------------------------------------------- lanes


def uniform(v: Any) -> Any:
    """A value equal in all lanes, as a scalar register."""
    return Int32(rocdl.readfirstlane(T.i32, Int32(v)))


def read_lane(v: Any, lane: int) -> Any:
    return Float32(_intrinsic("readlane.f32", T.f32, v, Int32(lane)))


def any_lane(condition: Any) -> Any:
    """Whether any active lane holds: a scalar condition, so the branch on it is one instruction."""
    return fx.Int64(rocdl.ballot(T.i64, condition)) != fx.Int64(0)


def dpp(v: Any, control: int) -> Any:
    """``v`` moved inside rows of 16 lanes; lanes without a source read 0."""
    raw = _raw(v)
    zero = _raw(type(v)(0))
    return type(v)(_rocdl.update_dpp(raw.type, zero, raw, control, 0xF, 0xF, True))


def swizzle(v: Any, control: int) -> Any:
    """ds_swizzle_b32: a fixed exchange inside 32 lanes through the LDS crossbar."""
    bits = v.bitcast(Int32) if isinstance(v, Float32) else v
    moved = Int32(_rocdl.ds_swizzle(T.i32, _raw(bits), i32(control)))
    return moved.bitcast(Float32) if isinstance(v, Float32) else moved


def gather(v: Any, byte_lane: Any) -> Any:
    """ds_bpermute_b32: the value of lane ``byte_lane / 4``."""
    bits = v.bitcast(Int32) if isinstance(v, Float32) else v
    moved = Int32(rocdl.ds_bpermute(T.i32, byte_lane, bits))
    return moved.bitcast(Float32) if isinstance(v, Float32) else moved


def lane_swap(v: Any, distance: int) -> tuple[Any, Any]:
    """(lower, upper) of every lane pair ``distance`` (16 or 32) apart, in both lanes of the pair."""
    swap = _rocdl.permlane32_swap if distance == 32 else _rocdl.permlane16_swap
    bits = _raw(v.bitcast(Int32) if isinstance(v, Float32) else v)
    pair = swap(_llvm.StructType.get_literal([T.i32, T.i32]), bits, bits, False, False)
    halves = [Int32(_llvm.extractvalue(T.i32, pair, [i])) for i in range(2)]
    lower, upper = (h.bitcast(Float32) if isinstance(v, Float32) else h for h in halves)
    return lower, upper


# ---------------------------------------------------------------------------- matrix


def mfma_f32(a: Any, b: Any, c: Any) -> Any:
    """v_mfma_f32_16x16x4_f32."""
    none = rocdl._blgp_attr(0)
    return fx.Vector(_rocdl.mfma_f32_16x16x4f32_(T.vec(4, T.f32), _raw(a), _raw(b), _raw(c), 0, 0, none))


def mfma_fp8(a: Any, b: Any) -> Any:
    """v_mfma_f32_16x16x32_fp8_fp8 on a zero accumulator; ``a`` and ``b`` are two words of 8 bytes."""
    zero = fx.Vector.filled(4, 0.0, Float32)
    operands = [v.bitcast(Int64)[0] for v in (a, b)]
    return fx.Vector(rocdl.mfma_f32_16x16x32_fp8_fp8(T.vec(4, T.f32), [*operands, zero, 0, 0, 0]))


def mfma_scaled(a: Any, b: Any, c: Any, scale_a: Any, scale_b: Any) -> Any:
    """v_mfma_scale_f32_16x16x128_f8f6f4 on e4m3 bytes; the scale codes are the low bytes."""
    operands = [a, b, c, 0, 0, 0, scale_a, 0, scale_b]
    return fx.Vector(rocdl.mfma_scale_f32_16x16x128_f8f6f4(T.vec(4, T.f32), operands))


# ---------------------------------------------------------------------------- control


def wait_stores() -> None:
    """Until every store of the wave is acknowledged. A barrier alone does not wait for them."""
    rocdl.s_waitcnt(vmcnt=0)


def sleep() -> None:
    rocdl.s_sleep(1)


def end_program() -> None:
    """s_endpgm here: the wave is over, and barriers no longer count it.

    As text, so that the compiler sees no way out of the middle of the kernel: a known one costs flow blocks
    and condition masks around every stage (measured: 2,721 against 2,4xx instructions).
    """
    assembly("s_endpgm")


def clock() -> Any:
    """The 100 MHz clock (s_memrealtime)."""
    return fx.Int64(_intrinsic("s.memrealtime", T.i64))


def assembly(text: str) -> None:
    """Assembler text without operands, in program order."""
    _llvm.inline_asm(None, [], text, "", has_side_effects=True)


def memory_changes() -> None:
    """Loads before and after this point are different loads."""
    _llvm.inline_asm(None, [], "", "~{memory}", has_side_effects=True)


def opaque(v: int) -> Any:
    """``v`` in a scalar register, its value hidden from the compiler (it would unroll a counted wait)."""
    return Int32(_llvm.inline_asm(T.i32, [i32(v)], "s_mov_b32 $0, $1", "=s,i", has_side_effects=False))


def fresh(v: Any) -> Any:
    """A scalar under a new name, without an instruction: conditions on it are compared where they are used,
    where one that an earlier stage left in a mask would take four instructions to branch on."""
    return Int32(_llvm.inline_asm(T.i32, [_raw(v)], "", "=s,0", has_side_effects=True))


def spin(widths: Sequence[int], load: Callable[[], Sequence[Any]], stale: Callable[[Sequence[Any]], Any],
         limit: int, expired: Callable[[Sequence[Any]], None]) -> list[Any]:
    """``load()`` (vectors of ``widths`` i32 words) until ``stale`` (a scalar condition) is false.

    The loop stands once in the code: load, test, leave; else count down from ``limit``, sleep, again.
    ``expired`` is traced where the count has run out and must end the wave.
    """
    types = [_type(Int32, w) for w in widths]
    loop = _scf.WhileOp([*types, T.i32], [*[undef(Int32, w).ir_value() for w in widths], _raw(opaque(limit))])
    before = loop.before.blocks.append(*types, T.i32)
    with ir.InsertionPoint(before):
        memory_changes()
        got = list(load())
        _scf.condition(_raw(stale(got)), [*[_raw(v) for v in got], before.arguments[-1]])
    after = loop.after.blocks.append(*types, T.i32)
    with ir.InsertionPoint(after):
        left = Int32(after.arguments[-1]) - Int32(1)
        out = _scf.IfOp(_raw(left < Int32(0)))
        with ir.InsertionPoint(out.then_block):
            expired([_wrap(after.arguments[i], Int32, w) for i, w in enumerate(widths)])
            end_program()
            _scf.yield_([])
        sleep()
        _scf.yield_([*after.arguments[:-1], _raw(left)])
    return [_wrap(loop.results[i], Int32, w) for i, w in enumerate(widths)]
