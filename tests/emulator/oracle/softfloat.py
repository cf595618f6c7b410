"""Binary floating point on exact fractions: decode, round, and the few operations that the ISA names.

A value is a `Num`: NaN, infinity, or a sign and an exact non-negative Fraction (so that -0 exists). Every
operation computes exactly and rounds once, to nearest even unless it says otherwise. Nothing here uses the
host's own floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache


@dataclass(frozen=True)
class Format:
    """A format of 1 sign, `exp` exponent and `man` mantissa bits.

    `rule` says what the top of the code space means: "ieee" (infinity and NaNs), "ocp" (E4M3: only S.1111.111
    is NaN),
    "fnuz" (no infinity, no -0, the code of -0 is the only NaN), "finite" (fp6, fp4: no special codes).
    """

    name: str
    exp: int
    man: int
    bias: int
    rule: str

    @property
    def bits(self) -> int:
        return 1 + self.exp + self.man

    @property
    def top(self) -> int:
        """The code of the largest finite magnitude."""
        codes = (1 << self.exp + self.man) - 1
        return {"ieee": codes - (1 << self.man), "ocp": codes - 1, "fnuz": codes, "finite": codes}[self.rule]


F32 = Format("f32", 8, 23, 127, "ieee")
F64 = Format("f64", 11, 52, 1023, "ieee")
F16 = Format("f16", 5, 10, 15, "ieee")
BF16 = Format("bf16", 8, 7, 127, "ieee")
E4M3 = Format("e4m3", 4, 3, 7, "ocp")
E5M2 = Format("e5m2", 5, 2, 15, "ieee")
E4M3_FNUZ = Format("e4m3fnuz", 4, 3, 8, "fnuz")
E5M2_FNUZ = Format("e5m2fnuz", 5, 2, 16, "fnuz")
E2M3 = Format("e2m3", 2, 3, 1, "finite")
E3M2 = Format("e3m2", 3, 2, 3, "finite")
E2M1 = Format("e2m1", 2, 1, 1, "finite")


@dataclass(frozen=True)
class Num:
    kind: str  # "nan", "inf" or "fin"
    sign: int = 0
    mag: Fraction = Fraction(0)
    signalling: bool = False

    @property
    def nan(self) -> bool:
        return self.kind == "nan"

    @property
    def zero(self) -> bool:
        return self.kind == "fin" and self.mag == 0

    @property
    def value(self) -> Fraction:
        assert self.kind == "fin"
        return -self.mag if self.sign else self.mag


NAN, INF = Num("nan"), Num("inf")


@lru_cache(maxsize=1 << 16)
def decode(fmt: Format, code: int) -> Num:
    sign = code >> fmt.bits - 1 & 1
    exponent = code >> fmt.man & (1 << fmt.exp) - 1
    mantissa = code & (1 << fmt.man) - 1
    ones = (1 << fmt.exp) - 1
    if fmt.rule == "ieee" and exponent == ones:
        return Num("nan", sign, signalling=not mantissa >> fmt.man - 1) if mantissa else Num("inf", sign)
    if fmt.rule == "ocp" and exponent == ones and mantissa == (1 << fmt.man) - 1:
        return Num("nan", sign)
    if fmt.rule == "fnuz" and code == 1 << fmt.bits - 1:
        return NAN
    scale = (exponent or 1) - fmt.bias - fmt.man
    whole = mantissa + ((1 << fmt.man) if exponent else 0)
    return Num("fin", sign, Fraction(whole << scale) if scale >= 0 else Fraction(whole, 1 << -scale))


def floor_log2(x: Fraction) -> int:
    guess = x.numerator.bit_length() - x.denominator.bit_length()
    return guess if power(guess) <= x else guess - 1


def power(exponent: int) -> Fraction:
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def to_even(x: Fraction) -> int:
    """The nearest integer of a non-negative fraction, halves to even."""
    whole, rest = divmod(x.numerator, x.denominator)
    twice = 2 * rest
    return whole + (twice > x.denominator or (twice == x.denominator and whole & 1 == 1))


def round_magnitude(fmt: Format, mag: Fraction, truncate: bool = False) -> int:
    """The code of the magnitude rounded into `fmt` as if it had no largest value; may exceed `fmt.top`."""
    if mag == 0:
        return 0
    smallest = 1 - fmt.bias
    exponent = max(floor_log2(mag), smallest)
    steps = mag / power(exponent - fmt.man)
    whole = steps.numerator // steps.denominator if truncate else to_even(steps)
    # The implicit one and the exponent field add up, which also carries a round-up to the next exponent.
    return whole + ((exponent - smallest) << fmt.man)


def nan_code(fmt: Format, sign: int = 0) -> int:
    if fmt.rule == "fnuz":
        return 1 << fmt.bits - 1
    if fmt.rule == "ocp":
        return sign << fmt.bits - 1 | fmt.top + 1
    assert fmt.rule == "ieee", fmt
    return sign << fmt.bits - 1 | fmt.top + 1 | 1 << fmt.man - 1


def encode(fmt: Format, num: Num, saturate: bool = False, truncate: bool = False) -> int:
    """The code of `num`. Past the top: infinity where the format has one, else NaN; with `saturate` the
    largest."""
    if num.nan:
        return nan_code(fmt, num.sign)
    code = fmt.top + 1 if num.kind == "inf" else round_magnitude(fmt, num.mag, truncate)
    if code > fmt.top:
        if saturate or fmt.rule == "finite":
            code = fmt.top
        elif fmt.rule == "ieee":
            code = fmt.top + 1
        else:
            return nan_code(fmt, num.sign)
    if fmt.rule == "fnuz" and code == 0:
        return 0
    return num.sign << fmt.bits - 1 | code


def finite(value: Fraction, zero_sign: int = 0) -> Num:
    return Num("fin", zero_sign if value == 0 else int(value < 0), abs(value))


def f32(code: int) -> Num:
    return decode(F32, code)


def negate(a: Num) -> Num:
    return Num(a.kind, a.sign ^ 1, a.mag, a.signalling)


def multiply(a: Num, b: Num) -> Num:
    """The exact product."""
    if a.nan or b.nan:
        return NAN
    sign = a.sign ^ b.sign
    if a.kind == "inf" or b.kind == "inf":
        return NAN if a.zero or b.zero else Num("inf", sign)
    return Num("fin", sign, a.mag * b.mag)


def add(a: Num, b: Num) -> Num:
    """The exact sum; an exact zero is +0 unless both addends are negative zeros."""
    if a.nan or b.nan:
        return NAN
    if a.kind == "inf":
        return NAN if b.kind == "inf" and a.sign != b.sign else a
    if b.kind == "inf":
        return b
    return finite(a.value + b.value, a.sign & b.sign)


def fma(a: Num, b: Num, c: Num) -> Num:
    return add(multiply(a, b), c)


def less(a: Num, b: Num) -> bool:
    """a < b for numbers that are not NaN; -0 equals +0."""
    return _rank(a) < _rank(b)


def _rank(a: Num) -> tuple[int, Fraction]:
    if a.kind == "inf":
        return (-1 if a.sign else 1, Fraction(0))
    return (0, a.value)


def equal(a: Num, b: Num) -> bool:
    return _rank(a) == _rank(b)
