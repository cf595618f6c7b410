"""Scratch of the FFN half (ffn_structure.md 4).

Unlike the public layout, every region starts at 256 bytes and the code rows of MID end on lines, so that data
may be loaded plainly through the L2 (`lines` has the rule): MID is read by every down task. Where a model's
rows do not end on lines, readers go past the L2.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..dims import Dims
from ..scratch import PAIR_BYTES, Declared, Load, data_region, load_of
from .shape import ROUTE_COPIES, ROUTER_PARTS, FfnShape, mids_row

LIFE = ("k2", "ffn")


def row_bytes(d: Dims, line: int) -> dict[str, int]:
    """Bytes from row to row of each region of plain data."""
    codes = d.hidden // d.mx_group * 4
    return {
        "x8r": d.hidden,
        "x8rs": codes,
        "x8": d.hidden,
        "x8s": codes,
        "normed": 2 * d.hidden,
        "mid": d.intermediate_padded,
        "mids": mids_row(d, line) * 4,
    }


def ffn_regions(d: Dims, f: FfnShape) -> tuple[Declared, ...]:
    """Regions of the FFN half, but for x8, x8s, lin and pmix, which K1 declares and both halves use."""
    s, w, g = f.rows, d.intermediate, d.mx_group
    words, codes = d.hidden // 4, d.hidden // g
    e, parts, k, n = f.experts, ROUTER_PARTS, 2 * f.per_token, 2 * f.picks  # k, n: ids and weights
    units = f.max_tiles if f.by_tile else f.max_slots
    row, mid = f.mids_row, f.mid_row
    loads = {name: load_of(size, f.line) for name, size in row_bytes(d, f.line).items()}
    return (
        _data(loads, "x8r", d.hidden * s, "e4m3x4", "xq", "ug", f"t*{words} + c/4"),
        _data(loads, "x8rs", codes * 4 * s, "i32", "xq", "ug", f"t*{codes} + c/{g}"),
        _pairs("x8rdy", s, "flags", "flag", "xq", "shared", "t"),
        _pairs("logit", s * e * parts, "pairs", "f32", "router", "route", f"(t*{e} + row)*{parts} + part"),
        _pairs("route", ROUTE_COPIES * n, "pairs", "i32", "route", "table", f"copy*{n} + t*{k} + j"),
        _pairs("smid", s * w, "pairs", "f32", "shared", "shared_q", f"t*{w} + task*16 + r"),
        _pairs("smq", s * w // 4, "pairs", "e4m3x4", "shared_q", "down", f"t*{w // 4} + grp*8 + i"),
        _pairs("smc", s * w // g, "pairs", "i32", "shared_q", "down", f"t*{w // g} + grp"),
        _data(loads, "mid", f.picks * mid, "e4m3x4", "ug", "down", f"row*{mid // 4} + word"),
        _data(loads, "mids", f.picks * row * 4, "i32", "ug", "down", f"row*{row} + word"),
        _pairs("ugf", units * f.parts, "flags", "flag", "ug", "down", "task"),
        _data(loads, "normed", d.hidden * 2 * s, "bf16", "norm", "xq router", f"t*{d.hidden} + c"),
        _pairs("xrdy_moe", s, "flags", "flag", "norm", "xq", "t"),
    )  # fmt: skip


def peer_regions(d: Dims, rows: int) -> tuple[Declared, ...]:
    """What ranks push into one parity half of one another's peer buffer (ffn_structure.md 5)."""
    pairs, c = d.tp * rows * d.hidden // 2, d.hidden // 2
    index = f"(src*S + t)*{c} + c/2"
    return (
        Declared("attn", pairs * PAIR_BYTES, "pairs", "bf16x2", "wo_b", "slice", LIFE, index, launch="k2"),
        Declared("ffn", pairs * PAIR_BYTES, "pairs", "bf16x2", "down", "reduce", LIFE, index, launch="k2"),
    )


def _data(
    loads: Mapping[str, Load], name: str, size: int, element: str, writer: str, reader: str, index: str
) -> Declared:
    return data_region(name, size, element, writer, reader, LIFE, index, launch="k2", load=loads[name])


def _pairs(name: str, count: int, kind: str, element: str, writer: str, reader: str, index: str) -> Declared:
    assert kind in ("pairs", "flags")
    return Declared(
        name,
        count * PAIR_BYTES,
        "flags" if kind == "flags" else "pairs",
        element,
        writer,
        reader,
        LIFE,
        index,
        launch="k2",
    )
