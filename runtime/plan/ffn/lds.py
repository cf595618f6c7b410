"""LDS of the FFN half: the route table, which lives from `table` to `down`, and one stage area.

Invariants
 - Every struct of `moe_structs` has the members red and the table's at the same places; what follows belongs
   to one stage at a time. `moe` is what the launch must allocate for them.
 - Scale codes need no room: where the MFMA takes them they are loaded in the order of its lanes, elsewhere a
   wave's factors lie in its own share of `red`, which holds sums only after its last product."""

from __future__ import annotations

from collections.abc import Sequence

from ..arith import align_up
from ..dims import STEP_K, TILE_ROWS, Dims
from ..lds import ALIGN, PARTIAL_BYTES, WAVES, Declared, Struct, code_words, struct_of, x_words
from .shape import Mixture, k_slices_of, max_tiles, mixture_of

AREAS = ("shared", "ug", "down")


def moe_structs(
    d: Dims,
    rows: int,
    width: int,
    mix: Mixture | None = None,
    pick_width: int | None = None,
    k_block: int | None = None,
) -> tuple[Struct, ...]:
    """(moe, shared, ug, down) at `rows` rows, `width` rows a pass and `pick_width` picks a tile."""
    mix, picks = mix or mixture_of(d), pick_width or width
    head = _head(mix, rows, picks)
    areas = {
        "shared": _shared(d, min(rows, width)),
        "ug": _ug(d, min(rows, picks), k_block or d.hidden),
        "down": _down(d, rows, min(rows, width), rows * mix.per_token),
    }
    words = max(_words(area) for area in areas.values())
    tail: list[Declared] = [("stage", 1, words, "words", "shared, ug or down, one at a time")]
    moe = struct_of("moe", ("table", *AREAS), [*head, *tail])
    return moe, *(struct_of(name, (name,), [*head, *area]) for name, area in areas.items())


def deciding(structs: Sequence[Struct]) -> str:
    """The stages whose area is the largest."""
    sizes = {s.name: s.bytes for s in structs if s.name in AREAS}
    return " and ".join(name for name in AREAS if sizes[name] == max(sizes.values()))


def _head(mix: Mixture, rows: int, pick_width: int) -> list[Declared]:
    """Partial sums, then the route table."""
    n, slots = rows * mix.per_token, min(rows * mix.per_token, mix.experts)
    units = max_tiles(mix, rows, pick_width) if rows > pick_width else 0
    return [
        ("red", 2, PARTIAL_BYTES // 4, "f32", "MFMA partials of two tiles; before them scale factors"),
        ("weights", 1, n, "f32", "routing weight of every pick"),
        ("slots", slots, 2, "u16x2", "of a distinct expert: number, picks, first position, unit"),
        ("units", units, 2, "u16x2", "the same of each pick tile, where experts are cut into tiles"),
        ("order", 1, n, "u16x2", "pick and row at every position: experts, then rows ascending"),
        ("starts", 1, mix.experts, "i32", "first position of every expert"),
        ("bitmaps", mix.experts, 2, "u32", "rows that picked an expert"),
        ("totals", 1, WAVES + 4, "i32", "counts of each wave's experts; slots, units; a broadcast word"),
    ]  # fmt: skip


def _words(area: Sequence[Declared]) -> int:
    return sum(align_up(rows * words * 4, ALIGN) for _, rows, words, _, _ in area) // 4


def _shared(d: Dims, held: int) -> list[Declared]:
    return [
        ("x", held, x_words(d.hidden), "e4m3x4", "X8 rows of the token tile"),
        ("xs", held, code_words(d, d.hidden), "i32", "their scale codes"),
    ]


def _ug(d: Dims, held: int, k_block: int) -> list[Declared]:
    """Whole rows, or a K block's share of every K slice."""
    shares = 1 if k_block == d.hidden else k_slices_of(d)
    rows, k = shares * held, k_block // shares
    return [
        ("x", rows, x_words(k), "e4m3x4", "X8R rows of the step or the pick tile: K slice, row"),
        ("xs", rows, code_words(d, k), "i32", "their scale codes"),
    ]


def _down(d: Dims, rows: int, held: int, picks: int) -> list[Declared]:
    k, pairs = align_up(d.intermediate, STEP_K), TILE_ROWS // 2
    return [
        (
            "smq",
            held,
            x_words(k),
            "e4m3x4",
            "shared intermediate rows of the token tile, zeros to a whole step",
        ),
        ("smc", held, code_words(d, k), "i32", "their scale codes"),
        ("kept", 2 * picks, pairs, "bf16x2", "weighted results: task, pick, 16 hidden rows"),
        ("sdl", 2 * rows, pairs, "bf16x2", "shared down result: task, row, 16 hidden rows"),
    ]
