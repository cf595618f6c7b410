"""LDS of K2's attention half (attention.md 5.4 and 5.6), and how the keys of a row are cut."""

from __future__ import annotations

from dataclasses import dataclass

from ..arith import cdiv
from ..dims import TILE_ROWS, Dims
from ..lds import PARTIAL_BYTES, WAVES, Struct, code_words, struct_of, x_words


@dataclass(frozen=True)
class Split:
    """How the keys of a row are cut: `chunk` keys a task over `head_groups` groups of waves (attention.md
    5.4).

    QK: wave w takes key tile `w mod key_tiles` and, of the head tiles, the `wave_heads` from `w // (waves /
    head_groups) * wave_heads` on; with `repeats`, waves from `key_tiles` on compute a tile again and store
    nothing. PV: wave w owns `pv_dims` output dims from `pv_dims * w` on, for every head and key tile.
    """

    chunk: int
    chunks: int
    head_groups: int
    key_tiles: int
    wave_heads: int  # head tiles of a wave in QK
    repeats: bool
    pv_dims: int
    bytes: int
    why: str


def split_of(d: Dims, rows: int, grid: int, budget: int) -> Split:
    """The split stage: wide chunks, unless narrow ones run in one round or the budget forces them."""
    narrow = WAVES // 2 * TILE_ROWS
    wide = WAVES * TILE_ROWS
    fits = WAVES % d.head_tiles == 0 and rows * cdiv(d.keys, wide // d.head_tiles) <= grid
    groups = d.head_tiles if d.head_tiles > 1 and fits else 1
    chunk = wide // groups
    if groups > 1:
        return _split(d, chunk, groups, "one head tile a group of waves, all chunks in one round of the grid")
    if split_struct(d, chunk, 1).bytes <= budget:
        return _split(d, chunk, 1, "a key tile a wave, each wave holds every head tile")
    return _split(
        d, narrow, 1, f"{wide} raw records do not fit the LDS budget: half of the waves repeat a key tile"
    )


def _split(d: Dims, chunk: int, groups: int, why: str) -> Split:
    tiles = chunk // TILE_ROWS
    return Split(
        chunk=chunk,
        chunks=cdiv(d.keys, chunk),
        head_groups=groups,
        key_tiles=tiles,
        wave_heads=d.head_tiles // groups,
        repeats=tiles * groups < WAVES,
        pv_dims=d.head_dim // WAVES,
        bytes=split_struct(d, chunk, groups).bytes,
        why=why,
    )


def split_struct(d: Dims, chunk: int, groups: int) -> Struct:
    return struct_of(
        "split",
        ("split",),
        [
            ("q", d.heads, d.head_dim // 2 + 4, "bf16x2", "query rows of the token"),
            ("raw", chunk, d.record_bytes // 4, "bytes", "raw records of the chunk"),
            ("p", d.heads, chunk // 2 + 2, "bf16x2", "softmax numerators"),
            ("st", 2 * d.heads, WAVES // groups, "f32", "maximum and sum of each key tile"),
        ],
    )


def gemv_struct(d: Dims, rows: int) -> Struct:
    """wo_a and wo_b: two 16-row tiles a task, the wider of their inputs."""
    k = max(d.group_k, d.o_rows)
    return struct_of(
        "gemv",
        ("wo_a", "wo_b"),
        [
            ("red", 2, PARTIAL_BYTES // 4, "f32", "GEMV partials of two tiles"),
            ("xl", rows, x_words(k), "e4m3x4", "input rows of the pass"),
            ("xsl", rows, code_words(d, k), "i32", "their scale codes"),
        ],
    )
