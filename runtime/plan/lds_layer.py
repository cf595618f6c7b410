"""LDS demand of the stages of K2 and of the FFN launch: they decide the pass width from the start.

Sources: attention.md 5.4 and 5.6 (split, gemv), ffn_structure.md 1.4 and 3 (moe). Byte counts are tested
against the tables of both sheets.
"""

from __future__ import annotations

from dataclasses import dataclass

from .arith import align_up, cdiv
from .dims import STEP_K, TILE_ROWS, Dims
from .lds import PARTIAL_BYTES, WAVES, Struct, code_words, struct_of, x_words
from .strategy import Strategy

UG_ROUND_STEPS = 8
"""Steps whose scale blocks a wave keeps in LDS at a time in the routed gate/up stage."""


@dataclass(frozen=True)
class Split:
    """How the keys of a row are cut: `chunk` keys a task over `head_groups` groups of waves."""

    chunk: int
    chunks: int
    head_groups: int
    bytes: int
    why: str


def split_of(d: Dims, rows: int, grid: int, budget: int) -> Split:
    """The split stage: wide chunks, unless narrow ones run in one round or the budget forces them."""
    narrow = WAVES // 2 * TILE_ROWS
    wide = WAVES * TILE_ROWS
    groups = d.head_tiles if d.head_tiles > 1 and rows * cdiv(d.keys, wide // d.head_tiles) <= grid else 1
    chunk = wide // groups
    if groups > 1:
        return _split(d, chunk, groups, "one head tile a group of waves, all chunks in one round of the grid")
    if _split_struct(d, chunk, 1).bytes <= budget:
        return _split(d, chunk, 1, "a key tile a wave, each wave holds every head tile")
    return _split(
        d, narrow, 1, f"{wide} raw records do not fit the LDS budget: half of the waves repeat a key tile"
    )


def _split(d: Dims, chunk: int, groups: int, why: str) -> Split:
    return Split(chunk, cdiv(d.keys, chunk), groups, _split_struct(d, chunk, groups).bytes, why)


def _split_struct(d: Dims, chunk: int, groups: int) -> Struct:
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


@dataclass(frozen=True)
class Routed:
    """Which expert mixture: the target's, or a draft layer's."""

    experts: int
    per_token: int


@dataclass(frozen=True)
class MoeAreas:
    """32-bit words of the stage area of the FFN half, one user at a time."""

    shared: int
    ug: int
    down: int

    @property
    def words(self) -> int:
        """Words that the largest user needs."""
        return max(self.shared, self.ug, self.down)

    @property
    def decides(self) -> str:
        """The users that need most."""
        return " and ".join(n for n in ("shared", "ug", "down") if getattr(self, n) == self.words)


def moe_struct(d: Dims, rows: int, width: int, how: Strategy, routed: Routed | None = None) -> Struct:
    """The FFN half at `rows` rows and `width` rows a pass."""
    mix = routed or Routed(d.experts, d.experts_per_token)
    pair_rows = min(rows, width) if how.scale_home == "registers" else rows
    return struct_of(
        "moe",
        ("shared", "ug", "down"),
        [
            ("red", 2, PARTIAL_BYTES // 4, "f32", "MFMA partials of two tiles"),
            ("tab", 1, table_words(mix, rows, width), "i32", "route table, live from ug to down"),
            ("pair", pair_rows, TILE_ROWS, "f32", "silu(gate) * up of 16 columns, then combine sums"),
            (
                "stage",
                1,
                moe_areas(d, rows, width, how, mix).words,
                "words",
                "shared, ug or down, one at a time",
            ),
            ("tls", 1, 2, "i64", "timeline word"),
        ],
    )


def table_words(mix: Routed, rows: int, width: int) -> int:
    """Words of the route table: every workgroup derives the same one."""
    picks = rows * mix.per_token
    slots = min(picks, mix.experts)
    words = 4 * picks + 2 * slots + 3 * mix.experts + 3
    tiles = min(picks, slots + picks // width)
    return words + (slots + 1 + tiles if rows > width else 0)


def moe_areas(d: Dims, rows: int, width: int, how: Strategy, mix: Routed) -> MoeAreas:
    """The three users of the stage area."""
    held, picks, w = min(rows, width), rows * mix.per_token, d.intermediate
    x = held * (x_words(d.hidden) + code_words(d, d.hidden))
    scales = _scale_block_words(d) if how.scale_home == "lds" else 0
    mid_row = x_words(w)
    tail = max(0, STEP_K // 4 * cdiv(w, STEP_K) - mid_row)
    mid = held * mid_row + tail + held * code_words(d, w)
    kept = 2 * picks * (TILE_ROWS if how.scale_home == "lds" else TILE_ROWS // 2)
    return MoeAreas(shared=x, ug=scales + x, down=scales + mid + kept + 2 * rows * TILE_ROWS)


def _scale_block_words(d: Dims) -> int:
    """Per-wave blocks of scale codes where the MFMA takes them: the larger of ug's and down's."""
    columns = align_up(cdiv(d.intermediate_padded, d.mx_group), 8)
    down = 2 * 256 * cdiv(UG_ROUND_STEPS * columns, 256)
    return WAVES * max(256, down)
