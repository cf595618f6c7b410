"""Conversions between f32, integers and the small floats, with both FP8 flavours.

gfx942 reads and writes fp8/bf8 as FNUZ, gfx950 as OCP: `flavour` is the only place where the arch matters.
FP16_OVFL is 0 (launch default): an overflow becomes NaN, or infinity where the format has one.
"""

from __future__ import annotations

from fractions import Fraction

from . import softfloat as sf
from .softfloat import BF16, E2M1, E4M3, E4M3_FNUZ, E5M2, E5M2_FNUZ, F16, F32, Format, Num, f32
from .state import MASK32, signed
from .valu import Lane, op, plain


def flavour(arch: str, name: str) -> Format:
    """The format that `fp8` or `bf8` in a mnemonic means on `arch`."""
    ocp = {"gfx942": False, "gfx950": True}[arch]
    return {("fp8", True): E4M3, ("fp8", False): E4M3_FNUZ, ("bf8", True): E5M2, ("bf8", False): E5M2_FNUZ}[
        name, ocp
    ]


def to_small(fmt: Format, code: int) -> int:
    """f32 code -> code of `fmt`, RNE; overflow is judged after rounding."""
    return sf.encode(fmt, f32(code))


def from_small(fmt: Format, code: int) -> int:
    """Code of `fmt` -> f32 code; exact for every format here."""
    return sf.encode(F32, sf.decode(fmt, code))


plain("v_cvt_f32_u32", "b32", lambda a: sf.encode(F32, sf.finite(Fraction(a))))
plain("v_cvt_f32_i32", "b32", lambda a: sf.encode(F32, sf.finite(Fraction(signed(a)))))
for _byte in range(4):
    plain(
        f"v_cvt_f32_ubyte{_byte}",
        "b32",
        lambda a, n=_byte: sf.encode(F32, sf.finite(Fraction(a >> 8 * n & 0xFF))),
    )


def _to_integer(a: int, low: int, high: int) -> int:
    num = f32(a)
    if num.nan:
        return 0
    if num.kind == "inf":
        return low if num.sign else high
    whole = num.mag.numerator // num.mag.denominator
    return max(low, min(high, -whole if num.sign else whole))


plain("v_cvt_u32_f32", "f32", lambda a: _to_integer(a, 0, MASK32))
plain("v_cvt_i32_f32", "f32", lambda a: _to_integer(a, -(1 << 31), (1 << 31) - 1))
plain("v_cvt_f16_f32", "f32", lambda a: to_small(F16, a), dst="z16")
plain("v_cvt_f32_f16", "b16", lambda a: from_small(F16, a))
plain("v_cvt_f32_bf16", "b16", lambda a: from_small(BF16, a))
plain("v_cvt_pk_bf16_f32", "f32 f32", lambda a, b: to_small(BF16, a) | to_small(BF16, b) << 16)


def _merge_half(lane: Lane, value: int) -> int:
    """Write the half that op_sel[3] names; the other half keeps its old bits."""
    high = lane.ins.op_sel >> 3 & 1
    return lane.old & 0xFFFF | value << 16 if high else lane.old & 0xFFFF0000 | value


def _scale(e8m0_source: int) -> Num:
    """The E8M0 scale in the exponent field of an f32 register; 255 is NaN."""
    exponent = e8m0_source >> 23 & 0xFF
    return sf.NAN if exponent == 255 else Num("fin", 0, sf.power(exponent - 127))


def _unscale(e8m0_source: int) -> Num:
    exponent = e8m0_source >> 23 & 0xFF
    return sf.NAN if exponent == 255 else Num("fin", 0, sf.power(127 - exponent))


def _register(small: str) -> None:
    def pack(lane: Lane, a: int, b: int) -> int:
        fmt = flavour(lane.arch, small)
        return _merge_half(lane, to_small(fmt, a) | to_small(fmt, b) << 8)

    def unpack(lane: Lane, a: int) -> int:
        fmt = flavour(lane.arch, small)
        return from_small(fmt, a & 0xFF) | from_small(fmt, a >> 8 & 0xFF) << 32

    def one(lane: Lane, a: int) -> int:
        return from_small(flavour(lane.arch, small), a & 0xFF)

    def scaled(wide: Format, width: int) -> None:
        def run(lane: Lane, a: int, scale: int) -> int:
            word = a >> 16 * (lane.ins.op_sel & 1) & 0xFFFF
            fmt, factor = flavour(lane.arch, small), _scale(scale)
            low, high = (
                sf.encode(wide, sf.multiply(sf.decode(fmt, c), factor)) for c in (word & 0xFF, word >> 8)
            )
            return low | high << width

        name = f"v_cvt_scalef32_pk_{wide.name}_{small}"
        op(name, "b32 b32", dst="b64" if width == 32 else "b32")(run)

    def descaled(lane: Lane, a: int, b: int, scale: int) -> int:
        fmt, factor = flavour(lane.arch, small), _unscale(scale)
        low, high = (sf.encode(fmt, sf.multiply(f32(x), factor)) for x in (a, b))
        return _merge_half(lane, low | high << 8)

    op(f"v_cvt_pk_{small}_f32", "f32 f32")(pack)
    op(f"v_cvt_pk_f32_{small}", "b16", dst="b64")(unpack)
    op(f"v_cvt_f32_{small}", "b32")(one)
    op(f"v_cvt_scalef32_pk_{small}_f32", "f32 f32 b32")(descaled)
    scaled(F32, 32)
    scaled(BF16, 16)


for _small in ("fp8", "bf8"):
    _register(_small)


@op("v_cvt_scalef32_pk_f32_fp4", "b32 b32", dst="b64")
def _from_fp4(lane: Lane, a: int, scale: int) -> int:
    byte = a >> 8 * (lane.ins.op_sel & 3) & 0xFF
    low, high = (
        sf.encode(F32, sf.multiply(sf.decode(E2M1, c), _scale(scale))) for c in (byte & 15, byte >> 4)
    )
    return low | high << 32
