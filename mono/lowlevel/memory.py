"""Global memory, buffers and LDS. Offsets are bytes; the constant part of a sum folds into the access."""

from __future__ import annotations

from typing import Any

import flydsl.expr as fx
from flydsl._mlir import ir
from flydsl._mlir.dialects import arith as _arith
from flydsl._mlir.dialects import llvm as _llvm
from flydsl._mlir.dialects import rocdl as _rocdl
from flydsl.expr import rocdl
from flydsl.expr.typing import Float32, Int32, Int64

from .values import i32, raw, type_of, wrap

NT = 2  # cache bit of data that is used once: it leaves the caches first
SC1 = 16  # cache bit of a device-scope access: past the L2 of one XCD
SYSTEM = 17  # cache bits of a system-scope access: seen by other GPUs
_RAW_BUFFER = 0x00027000  # word 3 of an untyped buffer descriptor


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


def global_load(
    base: Any, offset: Any = 0, kind: Any = Int32, count: int = 1, size: int = 4, constant: bool = False
) -> Any:
    """Load at ``base`` (Int64 address) + ``offset``; ``offset`` may be ``(dynamic, constant)``.

    ``constant``: no launch that could run now writes it, so a wave-uniform address becomes a scalar load.
    """
    result = type_of(kind, count)
    op = _llvm.LoadOp(
        result, _pointer(base.ir_value(), 1, offset), alignment=size * count, invariant=constant or None
    )
    return wrap(op.result, kind, count)


def global_store(base: Any, offset: Any, value: Any, size: int = 4) -> None:
    """Plain store of a scalar or vector at ``base`` + ``offset``; ``size`` < 4 stores its low bytes."""
    data = raw(value)
    if size < 4:
        data = _arith.TruncIOp(ir.IntegerType.get_signless(8 * size), data).result
    count = data.type.shape[0] if isinstance(data.type, ir.VectorType) else 1
    _llvm.StoreOp(data, _pointer(base.ir_value(), 1, offset), alignment=size * count)


def load_now(base: Any, offset: int = 0) -> Any:
    """The word at ``base`` + ``offset`` as every GPU and the host see it now. Its address is in vector
    registers."""
    text = f"global_load_dword $0, $1, off offset:{offset} sc0 sc1\n\ts_waitcnt vmcnt(0)"
    return Int32(_llvm.inline_asm(i32(0).type, [raw(base)], text, "=&v,v,~{memory}", has_side_effects=True))


def lds_block(nbytes: int) -> Any:
    """The kernel's one LDS block; stages overlay it at the offsets of the plan's map."""
    return fx.SharedAllocator().allocate(nbytes, 16).peek().ptr.llvm_ptr


def lds_load(lds: Any, offset: Any, kind: Any = Float32, count: int = 1) -> Any:
    """Load ``count`` words of LDS at byte ``offset``, whole (the address is a multiple of the width)."""
    op = _llvm.LoadOp(type_of(kind, count), _pointer(lds, 3, offset), alignment=4 * count)
    return wrap(op.result, kind, count)


def lds_byte(lds: Any, offset: Any) -> Any:
    """The byte of LDS at ``offset``, zero-extended."""
    byte = ir.IntegerType.get_signless(8)
    op = _llvm.LoadOp(byte, _pointer(lds, 3, offset), alignment=1)
    return Int32(_arith.ExtUIOp(ir.IntegerType.get_signless(32), op.result).result)


def lds_store(lds: Any, offset: Any, value: Any, align: int = 0) -> None:
    """Store a word or vector at byte ``offset``, a multiple of ``align`` (of the width, if not given)."""
    data = raw(value)
    count = data.type.shape[0] if isinstance(data.type, ir.VectorType) else 1
    _llvm.StoreOp(data, _pointer(lds, 3, offset), alignment=align or 4 * count)


def buffer(base: Any, nbytes: Any = 0xFFFFFFFF) -> Any:
    """Descriptor of ``nbytes`` (int or uniform Int32) at ``base``; 0 bytes reads zeros without traffic."""
    i16, i64 = ir.IntegerType.get_signless(16), ir.IntegerType.get_signless(64)
    size = Int64(nbytes).ir_value() if isinstance(nbytes, int) else _arith.ExtUIOp(i64, i32(nbytes)).result
    stride = _arith.ConstantOp(i16, ir.IntegerAttr.get(i16, 0)).result
    ptr = _pointer(base.ir_value(), 1, 0)
    return _rocdl.make_buffer_rsrc(ir.Type.parse("!llvm.ptr<8>"), ptr, stride, size, i32(_RAW_BUFFER))


def buffer_load(
    buf: Any, offset: Any, uniform: Any = 0, kind: Any = Int32, count: int = 1, cache: int = 0
) -> Any:
    """Load at ``offset`` (a lane's) + ``uniform`` (the wave's, not range checked)."""
    raw = rocdl.raw_ptr_buffer_load(type_of(kind, count), buf, i32(offset), i32(uniform), aux=cache)
    return wrap(raw, kind, count)


def buffer_byte(buf: Any, offset: Any, uniform: Any = 0) -> Any:
    """The byte at ``offset`` + ``uniform``, zero-extended."""
    byte = ir.IntegerType.get_signless(8)
    loaded = rocdl.raw_ptr_buffer_load(byte, buf, i32(offset), i32(uniform), aux=0)
    return Int32(_arith.ExtUIOp(ir.IntegerType.get_signless(32), raw(loaded)).result)


def buffer_store(buf: Any, offset: Any, uniform: Any, value: Any, cache: int = 0) -> None:
    aux = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), cache)
    _rocdl.raw_ptr_buffer_store(raw(value), buf, i32(offset), i32(uniform), aux=aux)


def lds_or(lds: Any, offset: Any, word: Any) -> None:
    """OR ``word`` into the word of LDS at ``offset``; the order of lanes does not matter."""
    _llvm.AtomicRMWOp(
        _llvm.AtomicBinOp._or,
        _pointer(lds, 3, offset),
        raw(word),
        _llvm.AtomicOrdering.monotonic,
        syncscope="workgroup",
    )


def ticket(base: Any, offset: Any) -> Any:
    """The word at ``base`` + ``offset``, then one more, for all workgroups of the device (one lane asks)."""
    op = _llvm.AtomicRMWOp(
        _llvm.AtomicBinOp.add,
        _pointer(base.ir_value(), 1, offset),
        Int32(1).ir_value(),
        _llvm.AtomicOrdering.monotonic,
        syncscope="agent",
    )
    return Int32(op.result)
