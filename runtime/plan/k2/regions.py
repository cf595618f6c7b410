"""Scratch of K2's attention half (attention.md 7).

Data is loaded plainly where what one task publishes ends on lines; wo_b awaits every writer of x8b in any
case.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..dims import Dims
from ..scratch import PAIR_BYTES, Declared, Load, data_region, load_of
from .stages import COMBINE_HEADS, AttentionShape

LIFE = ("k2",)


def unit_bytes(d: Dims) -> dict[str, int]:
    """Bytes that one task publishes and a reader awaits as one, of each region of plain data."""
    unit = d.head_dim * COMBINE_HEADS
    return {
        "part": d.q_rows * 2,
        "pstat": d.heads * 8,
        "xo": unit,
        "xos": unit // d.mx_group * 4,
    }


def attention_regions(d: Dims, rows: int, a: AttentionShape, line: int) -> tuple[Declared, ...]:
    """Partials and their statistics, the attention output, wo_a's output; krdy of index builds last."""
    units, chunks, codes = rows * a.split.chunks, a.split.chunks, d.mx_group
    head_words, hc = d.q_rows // 4, d.q_rows // codes
    loads = {name: load_of(size, line) for name, size in unit_bytes(d).items()}
    unit, dim = f"(t*{chunks} + ch)", f"h*{d.head_dim} + d"
    o_words, o_codes = d.o_rows // 4, d.o_rows // codes
    return (
        _data(loads, "part", units * d.q_rows * 2, "bf16", "split", "combine", f"{unit}*{d.q_rows} + {dim}"),
        _data(loads, "pstat", units * d.heads * 8, "f32x2", "split", "combine", f"{unit}*{d.heads} + h"),
        _flags("srdy", units, "split", "combine", f"t*{chunks} + ch"),
        _data(loads, "xo", rows * d.q_rows, "e4m3x4", "combine", "wo_a", f"t*{head_words} + ({dim})/4"),
        _data(loads, "xos", rows * hc * 4, "i32", "combine", "wo_a", f"t*{hc} + ({dim})/{codes}"),
        _flags("crdy", a.combine_tasks, "combine", "wo_a", f"t*{a.combine_per_row} + hg"),
        _data(loads, "x8b", rows * d.o_rows, "e4m3x4", "wo_a", "wo_b", f"t*{o_words} + row/4"),
        _data(loads, "x8bs", rows * o_codes * 4, "i32", "wo_a", "wo_b", f"t*{o_codes} + task"),
        _flags("ardy", a.wo_a_tasks, "wo_a", "wo_b", "task"),
    )  # fmt: skip


def key_flags(rows: int) -> Declared:
    """Flags of the key table that an index build of K2 makes."""
    return _flags("krdy", rows, "kt", "split", "t")


def _data(
    loads: Mapping[str, Load], name: str, size: int, element: str, writer: str, reader: str, index: str
) -> Declared:
    load = loads.get(name, "plain")
    return data_region(name, size, element, writer, reader, LIFE, index, launch="k2", load=load)


def _flags(name: str, count: int, writer: str, reader: str, index: str) -> Declared:
    return Declared(name, count * PAIR_BYTES, "flags", "flag", writer, reader, LIFE, index, launch="k2")
