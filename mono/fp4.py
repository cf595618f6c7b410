"""FP4 weights in matrix instructions: as they are, or as FNUZ e4m3 bytes.

Strategy ``scaled_mfma``: an operand of the f8f6f4 MFMA, scaled by its E8M0 code in the MFMA. Strategy
``fp8_mfma_fma``: a nibble's bits moved into an e4m3 byte are the value times 2^-7 (a negative zero would
become NaN; the copies hold none). A block's product is scaled by two floats of one power of two each, the
weight row's 2^(s - 127) and the activation's 2^(cx - 127), never by a sum of exponents: s is any byte (0
gives 0, 255 inf), cx is 1 .. 254 by the quantiser's clamp. The 2^7 is applied once, to the finished sum,
where it is exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flydsl.expr as fx
from flydsl.expr.typing import Float32, Int32

from . import lowlevel as ll
from .build import Strategy

VALUE_SCALE = 128.0  # of a finished sum of converted products
_EVEN_FIRST = (0, 2, 4, 6, 1, 3, 5, 7)
_MAGNITUDES, _SIGNS = 0x1C1C1C1C, -0x7F7F7F80
_EXPONENT = 0x7F800000


def is_native(how: Strategy) -> bool:
    """The matrix instruction takes FP4."""
    return how.gemv == "scaled_mfma"


def order_of(how: Strategy) -> Sequence[int]:
    """Columns of eight, in the order in which converted weights meet them."""
    return range(8) if is_native(how) else _EVEN_FIRST


def to_fnuz(word: Any) -> Any:
    """Eight nibbles as eight e4m3 bytes of value * 2^-7: the even ones, then the odd ones."""
    even = ((word << 2) & _MAGNITUDES) | ((word << 4) & _SIGNS)
    odd = ((word >> 2) & _MAGNITUDES) | (word & _SIGNS)
    return fx.Vector.from_elements([even, odd], Int32)


def factors(word: Any) -> Any:
    """Four codes s in a word as the floats 2^(s - 127)."""
    bits = [word << 23, word << 15, word << 7, word >> 1]
    return fx.Vector.from_elements([(b & _EXPONENT).bitcast(Float32) for b in bits], Float32)


def factor(code: Any) -> Any:
    """2^(cx - 127) of a code 1 .. 254."""
    return (code << 23).bitcast(Float32)


def splat(v: Any) -> Any:
    return fx.Vector.from_elements([v] * 4, Float32)


def product(weights: Any, x: Any) -> Any:
    """32 columns of a tile, not scaled: ``weights`` a dword of nibbles, ``x`` two words in ``order_of``."""
    return ll.mfma_fp8(to_fnuz(weights), x)


def scaled(d: Any, rows: Any, column: Any, acc: Any) -> Any:
    """acc + a product ``d``: ``rows`` the factors of the lane's four weight rows, ``column`` that of its
    activation, four times."""
    return ll.fma(d * column, rows, acc)


def block(weights: Any, x: Any, rows: Any, column: Any, acc: Any) -> Any:
    """acc + 32 columns of a tile, scaled at once."""
    return scaled(product(weights, x), rows, column, acc)
