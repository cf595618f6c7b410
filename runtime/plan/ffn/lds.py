"""LDS of the FFN half (ffn_structure.md 3): a route table that lives from `table` to `down`, and one stage
area.

Invariant: every struct of `moe_structs` has the members red, tab and pair at the same places; what follows
belongs to one stage at a time. `moe` is what the launch must allocate for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..arith import align_up, cdiv
from ..dims import STEP_K, TILE_ROWS, Dims
from ..lds import ALIGN, PARTIAL_BYTES, WAVES, Declared, Struct, code_words, struct_of, x_words
from ..strategy import Strategy
from .shape import Mixture, mixture_of, route_table

UG_ROUND_STEPS = 8
"""Steps whose scale blocks a wave keeps in LDS at a time in the routed gate/up stage."""
AREAS = ("shared", "ug", "down")


def moe_structs(
    d: Dims,
    rows: int,
    width: int,
    how: Strategy,
    mix: Mixture | None = None,
    pick_width: int | None = None,
    k_block: int | None = None,
) -> tuple[Struct, ...]:
    """(moe, shared, ug, down) at `rows` rows, `width` rows a pass and `pick_width` picks a tile."""
    mix, picks = mix or mixture_of(d), pick_width or width
    head = _head(rows, width, how, route_table(mix, rows, picks).words)
    areas = {
        "shared": _shared(d, min(rows, width)),
        "ug": _ug(d, min(rows, picks), k_block or d.hidden, how),
        "down": _down(d, rows, min(rows, width), rows * mix.per_token, how),
    }
    words = max(_words(area) for area in areas.values())
    tail: list[Declared] = [
        ("stage", 1, words, "words", "shared, ug or down, one at a time"),
        ("tls", 1, 2, "i64", "timeline word"),
    ]
    moe = struct_of("moe", ("table", *AREAS), [*head, *tail])
    return moe, *(struct_of(name, (name,), [*head, *area]) for name, area in areas.items())


def deciding(structs: Sequence[Struct]) -> str:
    """The stages whose area is the largest."""
    sizes = {s.name: s.bytes for s in structs if s.name in AREAS}
    return " and ".join(name for name in AREAS if sizes[name] == max(sizes.values()))


def _head(rows: int, width: int, how: Strategy, table: int) -> list[Declared]:
    pair_rows = min(rows, width) if how.scale_home == "registers" else rows
    return [
        ("red", 2, PARTIAL_BYTES // 4, "f32", "MFMA partials of two tiles; wave totals of the route table"),
        ("tab", 1, table, "i32", "route table, live from table to down"),
        ("pair", pair_rows, TILE_ROWS, "f32", "silu(gate) * up of 16 columns, then combine sums"),
    ]


def _words(area: Sequence[Declared]) -> int:
    return sum(align_up(rows * words * 4, ALIGN) for _, rows, words, _, _ in area) // 4


def _shared(d: Dims, held: int) -> list[Declared]:
    return [
        ("x", held, x_words(d.hidden), "e4m3x4", "X8 rows of the token tile"),
        ("xs", held, code_words(d, d.hidden), "i32", "their scale codes"),
    ]


def _ug(d: Dims, held: int, k_block: int, how: Strategy) -> list[Declared]:
    scales = scale_words(d) if how.scale_home == "lds" else 0
    return [
        ("scales", WAVES, scales // WAVES, "u8x4", "weight scale blocks of a wave's round"),
        ("x", held, x_words(k_block), "e4m3x4", "X8R rows of the step or the pick tile, one K block"),
        ("xs", held, code_words(d, k_block), "i32", "their scale codes"),
    ]


def _down(d: Dims, rows: int, held: int, picks: int, how: Strategy) -> list[Declared]:
    w, in_lds = d.intermediate, how.scale_home == "lds"
    row = x_words(w)
    tail = max(0, STEP_K // 4 * cdiv(w, STEP_K) - row)
    kept = (TILE_ROWS, "f32") if in_lds else (TILE_ROWS // 2, "bf16x2")
    return [
        ("scales", WAVES, scale_words(d) // WAVES if in_lds else 0, "u8x4", "weight scale blocks of a wave"),
        ("smq", held, row, "e4m3x4", "shared intermediate rows of the token tile"),
        ("tail", 1, tail, "words", "read past the last row by a step that the width does not fill"),
        ("smc", held, code_words(d, w), "i32", "their scale codes"),
        ("kept", 2 * picks, kept[0], kept[1], "contributions: task, pick, 16 hidden rows"),
        ("sdl", 2 * rows, TILE_ROWS, "f32", "shared down result: task, row, 16 hidden rows"),
    ]


def scale_words(d: Dims) -> int:
    """Words of the per-wave blocks of scale codes, where the MFMA takes them: ug's or down's."""
    columns = align_up(cdiv(d.intermediate_padded, d.mx_group), 8)
    down = 2 * 256 * cdiv(UG_ROUND_STEPS * columns, 256)
    return WAVES * max(256, down)
