"""The values of split: each wave's dims of every head, summed over the chunk's keys with their weights.

V's operand has a dim a lane and four keys of it; a record in LDS has four dims of a key together, so four
keys are read, widened to bf16 and transposed in registers. Lane (r, g) holds dims 4 r + d (d = 0..3, an MFMA
each) of keys 4 g .. 4 g + 3 of a tile, and ends with 16 neighbouring dims of one head: 32 bytes of PART.
"""

from __future__ import annotations

from typing import Any

import flydsl.expr as fx
from flydsl.expr import range_constexpr
from flydsl.expr.typing import Float32, Int32

from . import formats as fmt
from . import lowlevel as ll
from . import mailbox, records
from .context import Context
from .split_map import HEAD_TILE, heads, record_row, weight_row

DIMS = 64  # of a wave


def _across_keys(low: Any, high: Any, words: int) -> list[Any]:
    """Dims of two keys, ``words`` words of two bf16 each, as a word a dim: (key ``low``, key ``high``)."""
    picks = (fmt.LOWER_HALVES, fmt.UPPER_HALVES)
    return [ll.perm(high[k], low[k], pick) for k in range(words) for pick in picks]


def _rope_keys(c: Context, tile: int, j: int, lane: Any) -> list[Any]:
    """Dims 4 r .. + 3 behind nope of key 4 g + j: two words of bf16."""
    at = c.build.back.split.raw + (16 * tile + j) * record_row(c) + c.build.shape.nope
    got = ll.lds_load(c.lds, (lane, at), Int32, 2)
    return [got[0], got[1]]


def _e4m3_key(c: Context, tile: int, j: int, lane: Any, code_lane: Any) -> tuple[Any, Any]:
    """(word of dims 4 r .. + 3 of the wave's block, its power of two) of key 4 g + j."""
    at = c.build.back.split.raw + (16 * tile + j) * record_row(c)
    code = ll.lds_byte(c.lds, (code_lane, at + c.build.shape.record_data))
    return ll.lds_load(c.lds, (lane, at), Int32), fmt.power_of_two(code)


def _nope_pair(c: Context, keys: list[tuple[Any, Any]]) -> list[Any]:
    """Dims of two e4m3 keys as a word a dim."""
    how = c.build.how
    if how.fp8_cvt == "scaled":
        two = [[records.two_dims(how, word, by, high) for high in (False, True)] for word, by in keys]
        return _across_keys(two[0], two[1], 2)
    low, high = ([v for up in (False, True) for v in records.values(word, by, up)] for word, by in keys)
    return [ll.perm(b, a, fmt.UPPER_HALVES) for a, b in zip(low, high, strict=True)]


@ll.device
def _operands(c: Context) -> list[Any]:
    """V of every key tile: per tile and dim d two words, keys 4 g .. 4 g + 3."""
    tiles = c.build.back.split.key_tiles
    row = (c.lane >> 4) * (4 * record_row(c))
    out = [ll.undef(Int32) for _ in range(8 * tiles)]
    if c.wave == c.build.waves - 1:
        lane = row + (c.lane & 15) * 8
        for t in range_constexpr(tiles):
            keys = [_rope_keys(c, t, j, lane) for j in range(4)]
            pairs = [_across_keys(keys[j], keys[j + 1], 2) for j in (0, 2)]
            out[8 * t : 8 * t + 8] = [pairs[k][d] for d in range(4) for k in range(2)]
    else:
        lane, code = row + (c.lane & 15) * 4 + c.wave * DIMS, row + c.wave
        for t in range_constexpr(tiles):
            scaled = [_e4m3_key(c, t, j, lane, code) for j in range(4)]
            pairs = [_nope_pair(c, scaled[j : j + 2]) for j in (0, 2)]
            out[8 * t : 8 * t + 8] = [pairs[k][d] for d in range(4) for k in range(2)]
    return out


def _head_tile(c: Context, h: int, operands: list[Any]) -> list[Any]:
    """A head tile's sums: an accumulator a dim d."""
    s = c.build.back.split
    sums = [fx.Vector.filled(4, 0.0, Float32) for _ in range(4)]
    spot = (c.lane & 15) * weight_row(c) + (c.lane >> 4) * 8
    for t in range(s.key_tiles):
        p = ll.lds_load(c.lds, (spot, s.p + h * HEAD_TILE * weight_row(c) + 32 * t), Int32, 2)
        for d in range(4):
            two = operands[8 * t + 2 * d : 8 * t + 2 * d + 2]
            sums[d] = ll.mfma_bf16_16(fx.Vector.from_elements(two, Int32), p, sums[d])
    return sums


def weigh(c: Context, task: Any) -> None:
    """Weighted values of every head of the chunk to PART, bf16."""
    shape, back = c.build.shape, c.build.back
    if shape.rope != DIMS or shape.head_dim != DIMS * c.build.waves:
        raise ValueError(
            f"{shape.head_dim} dims with {shape.rope} rotated on {c.build.waves} waves of {DIMS}"
        )
    operands = _operands(c)
    for h in range(heads(c) // HEAD_TILE):
        sums = _head_tile(c, h, operands)
        words = [fmt.bf16_pair(c.build.how, sums[d][i], sums[d + 1][i]) for i in range(4) for d in (0, 2)]
        lane = (c.lane & 15) * (shape.head_dim * 2) + (c.lane >> 4) * 32
        region = back.part + task * (shape.q_rows * 2) + c.wave * (DIMS * 2)
        for k in range(2):
            four = fx.Vector.from_elements(words[4 * k : 4 * k + 4], Int32)
            mailbox.store(c, region + h * (HEAD_TILE * shape.head_dim * 2), lane + 16 * k, four)
