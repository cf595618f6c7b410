"""Small-float conversions of the core, exhaustively, in both FP8 flavours; also straight against
ml_dtypes."""

import ml_dtypes
import numpy as np
import pytest
from asm import Inline, Ins, Sdwa, v
from differ import check, core, encode, implemented
from oracle import softfloat as sf
from oracle.convert import flavour
from oracle.state import State
from states import random_state, rng_of
from test_oracle_formats import boundaries

DTYPES = {
    ("gfx942", "fp8"): ml_dtypes.float8_e4m3fnuz,
    ("gfx942", "bf8"): ml_dtypes.float8_e5m2fnuz,
    ("gfx950", "fp8"): ml_dtypes.float8_e4m3fn,
    ("gfx950", "bf8"): ml_dtypes.float8_e5m2,
}
PAIRS = list(DTYPES)


def _state(*rows: list[int] | np.ndarray) -> State:
    state = random_state(rng_of("convert"), True)
    for i, row in enumerate(rows):
        state.v[i] = row
    return state


def _need(name: str) -> None:
    if not implemented(name):
        pytest.skip("the core does not implement it")


@pytest.mark.parametrize(("arch", "small"), PAIRS)
def test_every_code_to_f32(arch: str, small: str) -> None:
    """All 256 codes in both bytes of both words, e32 and SDWA WORD_1, equal ml_dtypes."""
    _need(f"v_cvt_pk_f32_{small}")
    codes = np.arange(256, dtype=np.uint32)
    for block in codes.reshape(4, 64):
        word = block | block[::-1] << 8 | (block ^ 0x55) << 16 | (block ^ 0xAA) << 24
        state = _state(word)
        for sdwa, low, high in ((None, 0, 8), (Sdwa(sel=(5, 6)), 16, 24)):
            ins = Ins(f"v_cvt_pk_f32_{small}", (v(16, 2),), (v(0),), sdwa=sdwa)
            check(arch, ins, state)
            got = core(arch, encode(ins), state).v[16:18]
            for row, shift in zip(got, (low, high), strict=True):
                want = (word >> shift & 0xFF).astype(np.uint8).view(DTYPES[arch, small]).astype(np.float32)
                assert np.array_equal(row.view(np.float32), want, equal_nan=True)


@pytest.mark.parametrize(("arch", "small"), PAIRS)
def test_every_rounding_boundary_from_f32(arch: str, small: str) -> None:
    """Each halfway point of two codes and one ulp beside it, both signs, overflow, denormals, NaN,
    infinity."""
    _need(f"v_cvt_pk_{small}_f32")
    fmt = flavour(arch, small)
    codes = np.array(boundaries(fmt), np.uint32)
    codes = np.resize(codes, -(-len(codes) // 64) * 64)
    for block in codes.reshape(-1, 64):
        state = _state(block, block[::-1])
        for op_sel in (0, 8):
            ins = Ins(f"v_cvt_pk_{small}_f32", (v(16),), (v(0), v(1)), enc="vop3", op_sel=op_sel)
            check(arch, ins, state)
            got = core(arch, encode(ins), state).v[16] >> (16 if op_sel else 0) & 0xFF
            want = block.view(np.float32).astype(DTYPES[arch, small]).view(np.uint8)
            same = got.astype(np.uint8) == want
            nans = [
                sf.decode(fmt, int(a)).nan and sf.decode(fmt, int(b)).nan
                for a, b in zip(got, want, strict=True)
            ]
            assert (same | np.array(nans)).all()


@pytest.mark.parametrize(("arch", "small"), PAIRS)
def test_conversion_modifiers(arch: str, small: str) -> None:
    """neg and abs are honoured on the way down."""
    _need(f"v_cvt_pk_{small}_f32")
    state = _state()
    for bits in range(16):
        check(
            arch,
            Ins(f"v_cvt_pk_{small}_f32", (v(16),), (v(0), v(2)), enc="vop3", neg=bits & 3, abs=bits >> 2),
            state,
        )


def test_bf16_pack_exhaustive_boundaries() -> None:
    """Every bf16 code, its upper halfway point and one ulp beside, of a stride that meets all exponents."""
    _need("v_cvt_pk_bf16_f32")
    codes = np.arange(0, 1 << 16, 5, dtype=np.uint32)
    values = np.concatenate([codes << 16 | low for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)])
    values = np.resize(values, -(-len(values) // 64) * 64)
    ins = Ins("v_cvt_pk_bf16_f32", (v(16),), (v(0), v(1)), enc="vop3")
    state = _state()
    for block in values.reshape(-1, 64):
        state.v[0], state.v[1] = block, block[::-1]
        got = core("gfx950", encode(ins), state).v[16]
        with np.errstate(invalid="ignore"):
            want = block.view(np.float32).astype(ml_dtypes.bfloat16)
        low = (got & 0xFFFF).astype(np.uint16).view(ml_dtypes.bfloat16)
        assert np.array_equal(low.astype(np.float32), want.astype(np.float32), equal_nan=True)
        assert np.array_equal((got >> 16)[::-1] & 0x7FFF, got & 0x7FFF)


@pytest.mark.parametrize("small", ["fp8", "bf8"])
@pytest.mark.parametrize("wide", ["f32", "bf16"])
def test_scaled_unpack_every_exponent(small: str, wide: str) -> None:
    """All 256 E8M0 scales, both words; the mantissa and sign of the scale operand do not matter."""
    name = f"v_cvt_scalef32_pk_{wide}_{small}"
    _need(name)
    rng = rng_of(name)
    for base in range(0, 256, 64):
        scales = [(base + i) << 23 | rng.getrandbits(23) | rng.getrandbits(1) << 31 for i in range(64)]
        state = _state([rng.getrandbits(32) for _ in range(64)], scales)
        for op_sel in (0, 1):
            dst = v(16, 2 if wide == "f32" else 1)
            check("gfx950", Ins(name, (dst,), (v(0), v(1)), enc="vop3", op_sel=op_sel), state)


def test_round_trip_of_every_code() -> None:
    """Unpack and pack again: the code comes back, in both flavours (NaN stays NaN)."""
    for arch in ("gfx942", "gfx950"):
        for base in range(0, 256, 64):
            state = _state(np.arange(base, base + 64, dtype=np.uint32))
            wide = core(arch, encode(Ins("v_cvt_pk_f32_fp8", (v(2, 2),), (v(0),))), state)
            back = core(arch, encode(Ins("v_cvt_pk_fp8_f32", (v(16),), (v(2), v(2)), enc="vop3")), wide)
            fmt = flavour(arch, "fp8")
            for was, now in zip(state.v[0], back.v[16] & 0xFF, strict=True):
                assert was == now or (sf.decode(fmt, int(was)).nan and sf.decode(fmt, int(now)).nan)


def test_integer_conversions_at_their_edges() -> None:
    edges = [
        0x4EFFFFFF,
        0x4F000000,
        0xCF000000,
        0xCF000001,
        0x4F7FFFFF,
        0x4F800000,
        0x3F7FFFFF,
        0xBF7FFFFF,
        0x7FC00000,
        0x7F800000,
        0xFF800000,
        0x00000001,
        0x80000000,
        0x4B800001,
        0xCEFFFFFF,
    ]
    state = _state(
        np.resize(np.array(edges, np.uint32), 64),
        np.resize(
            np.array(
                [
                    0,
                    1,
                    0x1000001,
                    0x1000003,
                    0xFFFFFF80,
                    0xFFFFFF7F,
                    0xFFFFFFFF,
                    0x80000000,
                    0x7FFFFFFF,
                    0x80000040,
                    0x800000C0,
                ],
                np.uint32,
            ),
            64,
        ),
    )
    for name, source in (
        ("v_cvt_u32_f32", v(0)),
        ("v_cvt_i32_f32", v(0)),
        ("v_cvt_f32_u32", v(1)),
        ("v_cvt_f32_i32", v(1)),
    ):
        if implemented(name):
            check("gfx942", Ins(name, (v(16),), (source,)), state)
    check("gfx942", Ins("v_cvt_f32_u32", (v(16),), (Inline(64),)), state)
