"""The division and square-root sequences that LLVM emits, as a whole: correctly rounded for every kind of
operand.

v_div_scale's corner branches are printed wrongly in the manuals; what is certain is that the sequence
divides right.
"""

import numpy as np
import pytest
from asm import VCC, Inline, Ins, program, s, v
from oracle import softfloat as sf
from states import FLOATS, rng_of, word

from flymono.emulator.execute import execute

NUM, DEN = v(0), v(1)
SEQUENCE = (
    Ins("v_div_scale_f32", (v(3), s(10, 2)), (DEN, DEN, NUM), enc="vop3sd"),
    Ins("v_rcp_f32", (v(4),), (v(3),)),
    Ins("v_div_scale_f32", (v(5), VCC), (NUM, DEN, NUM), enc="vop3sd"),
    Ins("v_fma_f32", (v(6),), (v(3), v(4), Inline(1.0)), neg=1),
    Ins("v_fmac_f32", (v(4),), (v(6), v(4))),
    Ins("v_mul_f32", (v(6),), (v(5), v(4))),
    Ins("v_fma_f32", (v(7),), (v(3), v(6), v(5)), neg=1),
    Ins("v_fmac_f32", (v(6),), (v(7), v(4))),
    Ins("v_fma_f32", (v(3),), (v(3), v(6), v(5)), neg=1),
    Ins("v_div_fmas_f32", (v(3),), (v(3), v(4), v(6))),
    Ins("v_div_fixup_f32", (v(0),), (v(3), DEN, NUM)),
)


def quotient(num: int, den: int) -> int:
    a, b = sf.f32(num), sf.f32(den)
    sign = a.sign ^ b.sign
    if a.nan or b.nan or (a.zero and b.zero) or a.kind == b.kind == "inf":
        return sf.nan_code(sf.F32)
    if b.zero or a.kind == "inf":
        return sf.encode(sf.F32, sf.Num("inf", sign))
    if a.zero or b.kind == "inf":
        return sign << 31
    return sf.encode(sf.F32, sf.Num("fin", sign, a.mag / b.mag))


def check(pairs: list[tuple[int, int]], **options: object) -> None:
    pairs = [*pairs, *[(0x3F800000, 0x3F800000)] * (-len(pairs) % 64)]
    for at in range(0, len(pairs), 64):
        num, den = (np.array(x, np.uint32) for x in zip(*pairs[at : at + 64], strict=True))
        got = execute("gfx942", program(*SEQUENCE), vgprs={0: num, 1: den}, rows=16, **options).vgprs[0]
        for a, b, q in zip(num, den, got, strict=True):
            want = quotient(int(a), int(b))
            both_nan = sf.f32(want).nan and sf.f32(int(q)).nan
            assert int(q) == want or both_nan, f"{a:#010x} / {b:#010x}: {q:#010x}, exact {want:#010x}"


@pytest.mark.parametrize("trans", ["exact", "ulp"])
def test_division_of_ordinary_numbers(trans: str) -> None:
    """One ulp of v_rcp does not show in the quotient."""
    rng = rng_of("division", trans)
    check([(word(rng, True), rng.randrange(1 << 23, 254 << 23)) for _ in range(640)], trans=trans)


def test_division_at_the_edges() -> None:
    """Every pair of corner values: zeros, denormals, infinities, NaNs, quotients that overflow or go
    denormal."""
    check([(a, b) for a in FLOATS for b in FLOATS])


def test_division_with_denormal_quotients() -> None:
    rng = rng_of("denormal quotients")
    pairs = []
    for _ in range(320):
        den = rng.randrange(120, 250)
        pairs.append(
            (rng.randrange(1, max(2, den - 110)) << 23 | rng.getrandbits(23), den << 23 | rng.getrandbits(23))
        )
    check(pairs)
