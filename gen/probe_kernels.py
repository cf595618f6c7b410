"""One tiny kernel for every claim an arch spec can make. FlyDSL traces these: import in a child only.

A body gets two 16-byte aligned addresses, reads from the first and writes what it computed to the second, so
that nothing is optimised away. The tables map a claim to (body, mnemonic that its code must hold): some
claims are about instructions that LLVM replaces by a sequence where the arch lacks them.
No `from __future__ import annotations` here: FlyDSL reads annotations as types.
"""

from collections.abc import Callable
from typing import Any

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl._mlir import ir
from flydsl._mlir.dialects import llvm
from flydsl.expr.typing import Float32, Int32, Int64

Body = Callable[[Any, Any], None]


def _pointer(kind: Any, address: Any, space: Any = fx.AddressSpace.Global) -> Any:
    return fx.inttoptr(fx.PointerType.get(kind.ir_type, space, 16), address)


def _load(x: Any, mlir_type: str, offset: int = 0) -> Any:
    """A raw value of any MLIR type from `x` + 64 B x lane + `offset`."""
    address = x + Int64(fx.thread_idx.x) * 64 + offset
    pointer = llvm.inttoptr(ir.Type.parse("!llvm.ptr<1>"), address.ir_value())
    return llvm.load(ir.Type.parse(mlir_type), pointer, alignment=16)


def _store(y: Any, value: Any) -> None:
    address = y + Int64(fx.thread_idx.x) * 64
    llvm.store(value, llvm.inttoptr(ir.Type.parse("!llvm.ptr<1>"), address.ir_value()), alignment=16)


def _intrinsic(name: str, result: str, *operands: Any) -> Any:
    return llvm.call_intrinsic(ir.Type.parse(result), name, list(operands), [], [])


def _i32(value: int) -> Any:
    return Int32(value).ir_value()


def _i1(value: bool) -> Any:
    return fx.Boolean(value).ir_value()


def _mfma(shape: str, a: str, b: str, acc: str) -> Body:
    def body(x: Any, y: Any) -> None:
        zero = _i32(0)
        _store(
            y,
            _intrinsic(
                f"llvm.amdgcn.mfma.{shape}",
                acc,
                _load(x, a),
                _load(x, b, 16),
                _load(x, acc, 32),
                zero,
                zero,
                zero,
            ),
        )

    return body


def _scaled_mfma(x: Any, y: Any) -> None:
    zero, scale = _i32(0), _load(x, "i32", 4)
    _store(
        y,
        _intrinsic(
            "llvm.amdgcn.mfma.scale.f32.16x16x128.f8f6f4",
            "vector<4xf32>",
            _load(x, "vector<8xi32>"),
            _load(x, "vector<8xi32>", 32),
            _load(x, "vector<4xf32>", 16),
            zero,
            zero,
            zero,
            scale,
            zero,
            scale,
        ),
    )


def _permlane_swap(x: Any, y: Any) -> None:
    pair = _intrinsic(
        "llvm.amdgcn.permlane32.swap",
        "!llvm.struct<(i32, i32)>",
        _load(x, "i32"),
        _load(x, "i32", 4),
        _i1(False),
        _i1(False),
    )
    _store(y, llvm.extractvalue(ir.Type.parse("i32"), pair, [0]))


def _cvt_pk_bf16_f32(x: Any, y: Any) -> None:
    value = fx.generic_load(_pointer(Float32, x) + fx.thread_idx.x * 2, count=2)
    _store(y, value.to(fx.BFloat16).ir_value())


def _cvt_scalef32(x: Any, y: Any) -> None:
    _store(
        y,
        _intrinsic(
            "llvm.amdgcn.cvt.scalef32.pk.f32.fp4",
            "vector<2xf32>",
            _load(x, "i32"),
            _load(x, "f32", 4),
            _i32(0),
        ),
    )


def _cvt_pk_fp8_f32(x: Any, y: Any) -> None:
    _store(
        y,
        _intrinsic(
            "llvm.amdgcn.cvt.pk.fp8.f32",
            "i32",
            _load(x, "f32"),
            _load(x, "f32", 4),
            _load(x, "i32", 8),
            _i1(False),
        ),
    )


def _maximum3(x: Any, y: Any) -> None:
    inner = _intrinsic("llvm.maximum", "f32", _load(x, "f32"), _load(x, "f32", 4))
    _store(y, _intrinsic("llvm.maximum", "f32", inner, _load(x, "f32", 8)))


def _bitop3(x: Any, y: Any) -> None:
    a, b, c = Int32(_load(x, "i32")), Int32(_load(x, "i32", 4)), Int32(_load(x, "i32", 8))
    _store(y, ((a ^ b) & c).ir_value())


@fx.struct
class _Tile:
    words: fx.Array[Int32, 1024, 16]


def _shared() -> Any:
    return fx.SharedAllocator().allocate(_Tile).words.peek().ptr


def _global_load_lds_b128(x: Any, y: Any) -> None:
    tile = _shared()
    source = llvm.inttoptr(ir.Type.parse("!llvm.ptr<1>"), (x + Int64(fx.thread_idx.x) * 16).ir_value())
    llvm.call_intrinsic(
        None, "llvm.amdgcn.global.load.lds", [source, tile.llvm_ptr, _i32(16), _i32(0), _i32(0)], [], []
    )
    fx.barrier()
    _store(y, fx.generic_load(tile + fx.thread_idx.x).ir_value())


def _ds_read_tr(x: Any, y: Any) -> None:
    tile = _shared()
    fx.generic_store(tile + fx.thread_idx.x, Int32(_load(x, "i32")))
    fx.barrier()
    _store(
        y, _intrinsic("llvm.amdgcn.ds.read.tr8.b64", "vector<2xi32>", (tile + fx.thread_idx.x * 2).llvm_ptr)
    )


CAPABILITIES: dict[str, tuple[Body, str]] = {
    "mfma_scale_f8f6f4": (_scaled_mfma, "v_mfma_scale_f32_16x16x128_f8f6f4"),
    "mfma_fp8": (_mfma("f32.16x16x32.fp8.fp8", "i64", "i64", "vector<4xf32>"), "v_mfma_f32_16x16x32_fp8_fp8"),
    "mfma_bf16_k32": (
        _mfma("f32.16x16x32.bf16", "vector<8xbf16>", "vector<8xbf16>", "vector<4xf32>"),
        "v_mfma_f32_16x16x32_bf16",
    ),
    "permlane_swap": (_permlane_swap, "v_permlane32_swap_b32"),
    "cvt_pk_bf16_f32": (_cvt_pk_bf16_f32, "v_cvt_pk_bf16_f32"),
    "cvt_scalef32": (_cvt_scalef32, "v_cvt_scalef32_pk_f32_fp4"),
    "cvt_pk_fp8_f32": (_cvt_pk_fp8_f32, "v_cvt_pk_fp8_f32"),
    "maximum3_f32": (_maximum3, "v_maximum3_f32"),
    "bitop3": (_bitop3, "v_bitop3_b32"),
    "global_load_lds_b128": (_global_load_lds_b128, "global_load_lds_dwordx4"),
    "ds_read_tr": (_ds_read_tr, "ds_read_b64_tr_b8"),
}
# (m, n, k, a, b, scaled) of the schema -> the instruction.
MFMAS: dict[str, tuple[Body, str]] = {
    "16x16x4_f32_f32": (_mfma("f32.16x16x4f32", "f32", "f32", "vector<4xf32>"), "v_mfma_f32_16x16x4_f32"),
    "16x16x16_f16_f16": (
        _mfma("f32.16x16x16f16", "vector<4xf16>", "vector<4xf16>", "vector<4xf32>"),
        "v_mfma_f32_16x16x16_f16",
    ),
    "16x16x16_bf16_bf16": (
        _mfma("f32.16x16x16bf16.1k", "vector<4xi16>", "vector<4xi16>", "vector<4xf32>"),
        "v_mfma_f32_16x16x16_bf16",
    ),
    "16x16x32_bf16_bf16": CAPABILITIES["mfma_bf16_k32"],
    "16x16x32_fp8_fp8": CAPABILITIES["mfma_fp8"],
    "16x16x128_f8f6f4_f8f6f4_scaled": CAPABILITIES["mfma_scale_f8f6f4"],
    "32x32x16_fp8_fp8": (
        _mfma("f32.32x32x16.fp8.fp8", "i64", "i64", "vector<16xf32>"),
        "v_mfma_f32_32x32x16_fp8_fp8",
    ),
}


def _lds(words: int) -> Body:
    """A kernel that allocates `words` x 4 bytes of LDS and uses both ends."""

    @fx.struct
    class Block:
        words: fx.Array[Int32, _lds.words, 16]

    def body(x: Any, y: Any) -> None:
        tile = fx.SharedAllocator().allocate(Block).words.peek().ptr
        fx.generic_store(tile + fx.thread_idx.x, Int32(_load(x, "i32")))
        fx.barrier()
        _store(y, fx.generic_load(tile + (fx.thread_idx.x ^ 1)).ir_value())

    return body


def body_of(claim: str) -> tuple[Body, str]:
    """(body, mnemonic) of `capability/NAME`, `mfma/SHAPE` or `lds/BYTES`; KeyError without a probe."""
    kind, name = claim.split("/")
    if kind == "lds":
        _lds.words = int(name) // 4  # type: ignore[attr-defined]
        return _lds(int(name) // 4), "ds_write_b32"
    return (CAPABILITIES if kind == "capability" else MFMAS)[name]


def launcher(body: Body) -> Any:
    """A FlyDSL launcher whose kernel is one wave running `body`."""

    @flyc.kernel(name="probe", known_block_size=[64, 1, 1])  # type: ignore[untyped-decorator]
    def probe(x: Int64, y: Int64):  # type: ignore[no-untyped-def]
        body(x, y)

    @flyc.jit  # type: ignore[untyped-decorator]
    def launch(x: Int64, y: Int64, stream: fx.Stream = fx.Stream(None)):  # type: ignore[no-untyped-def]  # noqa: B008
        probe(x, y).launch(grid=(1, 1, 1), block=(64, 1, 1), stream=stream)

    return launch
