"""The oracle's own float arithmetic against numpy and ml_dtypes: what judges the core must itself be
judged."""

import math
import struct

import ml_dtypes
import numpy as np
import pytest
from oracle import machine
from oracle import softfloat as sf
from oracle.convert import flavour, from_small, to_small
from states import FLOATS, rng_of, word

SMALL = {
    "e4m3": (sf.E4M3, ml_dtypes.float8_e4m3fn),
    "e5m2": (sf.E5M2, ml_dtypes.float8_e5m2),
    "e4m3fnuz": (sf.E4M3_FNUZ, ml_dtypes.float8_e4m3fnuz),
    "e5m2fnuz": (sf.E5M2_FNUZ, ml_dtypes.float8_e5m2fnuz),
}
NARROW = {
    "e2m1": (sf.E2M1, ml_dtypes.float4_e2m1fn),
    "e2m3": (sf.E2M3, ml_dtypes.float6_e2m3fn),
    "e3m2": (sf.E3M2, ml_dtypes.float6_e3m2fn),
}


def as_f32(code: int) -> np.float32:
    return np.array([code], np.uint32).view(np.float32)[0]


def boundaries(fmt: sf.Format) -> list[int]:
    """f32 codes at every halfway point of two neighbouring codes, one ulp beside, and past the top."""
    out = []
    for code in range(fmt.top + 1):
        low = sf.decode(fmt, code).mag
        high = sf.decode(fmt, code + 1).mag if code < fmt.top else low + (low - sf.decode(fmt, code - 1).mag)
        for value in (low, (low + high) / 2):
            at = sf.encode(sf.F32, sf.finite(value))
            assert sf.f32(at).mag == value
            out += [max(at - 1, 0), at, at + 1]
    return sorted({bits | sign for bits in (*out, *FLOATS) for sign in (0, 1 << 31)})


@pytest.mark.parametrize("name", SMALL)
def test_small_formats_both_ways(name: str) -> None:
    fmt, dtype = SMALL[name]
    for code in range(256):
        want = float(np.array([code], np.uint8).view(dtype)[0])
        num = sf.decode(fmt, code)
        assert (
            math.isnan(want)
            if num.nan
            else want == (math.inf if num.kind == "inf" else float(num.mag)) * (-1 if num.sign else 1)
        )
    for bits in boundaries(fmt):
        want_code = int(np.array([as_f32(bits)]).astype(dtype).view(np.uint8)[0])
        got = to_small(fmt, bits)
        if sf.decode(fmt, want_code).nan:
            assert sf.decode(fmt, got).nan, hex(bits)
        else:
            assert got == want_code, hex(bits)


@pytest.mark.parametrize("name", NARROW)
def test_narrow_formats(name: str) -> None:
    fmt, dtype = NARROW[name]
    codes = np.arange(1 << fmt.bits, dtype=np.uint8).view(dtype).astype(np.float64)
    for code, want in enumerate(codes):
        num = sf.decode(fmt, code)
        assert float(num.mag) == abs(want) and num.sign == int(np.signbit(want))


def test_bf16_and_f16() -> None:
    rng = rng_of("bf16")
    for bits in FLOATS + [word(rng, True) for _ in range(2000)] + [rng.getrandbits(32) for _ in range(2000)]:
        for fmt, dtype in ((sf.BF16, ml_dtypes.bfloat16), (sf.F16, np.float16)):
            with np.errstate(over="ignore", invalid="ignore"):
                want = int(np.array([as_f32(bits)]).astype(dtype).view(np.uint16)[0])
            got = to_small(fmt, bits)
            assert got == want or (sf.decode(fmt, got).nan and sf.decode(fmt, want).nan), (
                fmt.name,
                hex(bits),
            )


def _same(got: int, want: np.float32) -> bool:
    return got == int(want.view(np.uint32)) or (sf.f32(got).nan and bool(np.isnan(want)))


def test_arithmetic_against_the_host() -> None:
    """add, mul and conversions equal IEEE numpy; fma equals the product and sum in exact integers."""
    rng = rng_of("arithmetic")
    with np.errstate(all="ignore"):
        for _ in range(4000):
            a, b = word(rng, True), word(rng, True)
            x, y = as_f32(a), as_f32(b)
            assert _same(sf.encode(sf.F32, sf.add(sf.f32(a), sf.f32(b))), x + y), (hex(a), hex(b))
            assert _same(sf.encode(sf.F32, sf.multiply(sf.f32(a), sf.f32(b))), x * y), (hex(a), hex(b))
            if not sf.f32(a).nan and not sf.f32(b).nan:
                assert sf.less(sf.f32(a), sf.f32(b)) == bool(x < y)


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("v_rcp_f32", lambda x: 1 / x),
        ("v_sqrt_f32", math.sqrt),
        ("v_rsq_f32", lambda x: 1 / math.sqrt(x)),
        ("v_exp_f32", lambda x: 2.0**x),
        ("v_log_f32", math.log2),
    ],
)
def test_transcendentals_near_the_host(name: str, reference: object) -> None:
    """Within one f32 ulp of the host's doubles over a plain range (specials: the known vectors below)."""
    rng = rng_of("trans", name)
    for _ in range(300):
        x = as_f32(rng.randrange(100, 134) << 23 | rng.getrandbits(23))
        got = from_op(name, int(x.view(np.uint32)))
        want = np.float32(reference(float(x)))
        assert abs(int(want.view(np.uint32)) - got) <= 1, (name, x)


def from_op(name: str, *sources: int) -> int:
    result = machine.valu.OPS[name].fn(None, *sources)
    assert isinstance(result, int)
    return result


KNOWN = [
    ("v_exp_f32", 0xFF800000, 0x00000000),
    ("v_exp_f32", 0x80000000, 0x3F800000),
    ("v_exp_f32", 0x7F800000, 0x7F800000),
    ("v_log_f32", 0x00000000, 0xFF800000),
    ("v_log_f32", 0x3F800000, 0x00000000),
    ("v_log_f32", 0x00000001, 0xFF800000),
    ("v_rcp_f32", 0x00000000, 0x7F800000),
    ("v_rcp_f32", 0x80000000, 0xFF800000),
    ("v_rcp_f32", 0xFF800000, 0x80000000),
    ("v_rcp_f32", 0x7F000000, 0x00000000),
    ("v_rsq_f32", 0x80000000, 0xFF800000),
    ("v_rsq_f32", 0x40800000, 0x3F000000),
    ("v_sqrt_f32", 0x80000000, 0x80000000),
    ("v_sqrt_f32", 0x41100000, 0x40400000),
]


@pytest.mark.parametrize(("name", "source", "want"), KNOWN)
def test_known_vectors(name: str, source: int, want: int) -> None:
    assert from_op(name, source) == want


def test_flavours_differ_where_they_must() -> None:
    """The same byte means twice as much in OCP as in FNUZ; 0x80 is -0 there and NaN here."""
    ocp, fnuz = flavour("gfx950", "fp8"), flavour("gfx942", "fp8")
    one = struct.unpack("<f", struct.pack("<I", from_small(ocp, 0x38)))[0]
    assert one == 1.0 and from_small(fnuz, 0x38) == from_small(ocp, 0x30)
    assert from_small(ocp, 0x80) == 0x80000000 and sf.f32(from_small(fnuz, 0x80)).nan
