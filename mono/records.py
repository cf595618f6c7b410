"""KV records of a key tile: where a key-table entry's record lies, and its values as bf16 operands.

A lane holds a key's share of 16-byte pieces: lane group g of piece p the bytes 64 p + 16 g .. + 15. Pieces
below nope / 64 are e4m3, 16 dims each; the last two are bf16, so a record's 576 data bytes are nine equal
loads (attention.md 2.1). An entry of -1 is the zero record, whatever its scores are then.

Window records are in the GPU's own flavour, compressed ones are OCP. Where the two differ (FNUZ), an OCP
record becomes FNUZ on load: -0 bytes (FNUZ's NaN) become 0 and codes go up by one, since a FNUZ byte stands
for half of the OCP value. A code is at most 254, so four are raised at once without a carry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flydsl.expr as fx
from flydsl.expr.typing import Float32, Int32

from . import formats as fmt
from . import lowlevel as ll
from .build import Strategy
from .context import Context

PIECE = 64  # bytes of a record that four lane groups hold together
KEY_BITS = 0x7FFFFFFF
_SEVEN = 0x7F7F7F7F
_RAISE = (0x01010101, 0x00010101)  # byte 7 of the codes is padding


@dataclass(frozen=True)
class Caches:
    """Launch arguments that records are read from; the compressed cache's are not read at ratio 0."""

    swa: Any
    swa_stride: Any
    swa_block: Any
    comp: Any
    comp_stride: Any
    comp_block: Any
    zero: Any


def pieces(c: Context) -> int:
    return c.build.shape.record_data // PIECE


def load(c: Context, entry: Any, caches: Caches) -> tuple[list[Any], Any]:
    """(nine pieces of four words, two words of scale codes) of the lane's key, in the GPU's flavour."""
    shape = c.build.shape
    page, data, codes = _locate(c, entry, caches)
    share = data + (c.lane >> 4) * 16
    loaded = [ll.global_load(page, (share, PIECE * p), count=4) for p in range(pieces(c))]
    scales = ll.global_load(page, codes, count=2)
    if c.build.how.fp8 == "fnuz" and shape.ratio > 0:
        return _to_fnuz(loaded, shape.nope // PIECE, scales, entry < 0)
    return loaded, scales


def _locate(c: Context, entry: Any, caches: Caches) -> tuple[Any, Any, Any]:
    """(address, offset of the data, offset of the codes) of an entry's record; 64-bit, caches are large."""
    shape = c.build.shape
    base, stride, states = caches.swa, caches.swa_stride, caches.swa_block
    if shape.ratio > 0:
        compressed = entry < 0
        base = compressed.select(caches.comp, base)
        stride = compressed.select(caches.comp_stride, stride)
        states = compressed.select(caches.comp_block, states)
    slot = entry & KEY_BITS
    block = fx.Uint32(slot) // fx.Uint32(states)
    inside = slot - Int32(block) * states
    page = base + fx.Int64(block) * stride
    codes = states * shape.record_data + inside * shape.record_scales
    none = entry == -1
    return (
        none.select(caches.zero, page),
        none.select(Int32(0), inside * shape.record_data),
        none.select(Int32(shape.record_data), codes),
    )


def _to_fnuz(loaded: list[Any], e4m3: int, scales: Any, compressed: Any) -> tuple[list[Any], Any]:
    spare = compressed.select(Int32(_SEVEN), Int32(-1))  # bits that a byte keeps in any case
    fixed = [_words([_no_minus_zero(v[k], spare) for k in range(4)]) for v in loaded[:e4m3]]
    raised = [scales[k] + compressed.select(Int32(_RAISE[k]), Int32(0)) for k in range(2)]
    return [*fixed, *loaded[e4m3:]], _words(raised)


def _no_minus_zero(word: Any, spare: Any) -> Any:
    """``word`` without the sign of every byte that has no other bit."""
    carried = (word & _SEVEN) + _SEVEN  # bit 7 of a byte: it has a bit below
    return word & (carried | spare)


def _words(words: list[Any]) -> Any:
    return fx.Vector.from_elements(words, Int32)


def scale(scales: Any, block: int) -> Any:
    """2^(code - 127) of 64-dim block ``block`` of the lane's key."""
    return fmt.power_of_two((scales[block // 4] >> (8 * (block % 4))) & 0xFF)


def two_dims(how: Strategy, word: Any, by: Any, high: bool) -> Any:
    """Two neighbouring dims of a word of e4m3, times ``by``, as a word of two bf16; exact."""
    if how.fp8_cvt == "scaled":
        return ll.fp8_to_bf16_pair(word, by, high)
    low, up = values(word, by, high)
    return ll.perm(up, low, fmt.UPPER_HALVES)


def values(word: Any, by: Any, high: bool) -> tuple[Any, Any]:
    """Two neighbouring dims of a word of e4m3, times ``by``, as fp32 whose upper halves are exact bf16."""
    pair = ll.unpack_fp8(word, high) * fx.Vector.from_elements([by, by], Float32)
    return pair[0].bitcast(Int32), pair[1].bitcast(Int32)
