"""Maps of memory: scratch regions by lifetime, LDS structs, a half of the peer buffer. x is the offset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .page import KINDS, PALETTE, Figure

if TYPE_CHECKING:
    from ..plan import KernelPlan
    from ..plan.lds import LdsMap
    from ..plan.scratch import Region, Scratch


@dataclass(frozen=True)
class Piece:
    """A range of bytes: the line that it is drawn on, the family that it is coloured by."""

    line: str
    family: str
    name: str
    offset: int
    bytes: int
    hover: str


def scratch_figure(scratch: Scratch) -> Figure | None:
    """Regions at their offsets, a line for each set of launches that they live through."""
    if not scratch.regions:
        return None
    pieces = [_of_region(" ".join(r.lifetime), r) for r in scratch.regions]
    return _map(pieces, KINDS, scratch.total, f"offset of {scratch.total:,} bytes; drag to zoom")


def peer_figure(plan: KernelPlan) -> Figure | None:
    """Regions of a half of the peer buffer; the half is as large as the widest step needs."""
    peer = getattr(plan, "peer", None)
    if peer is None:
        return None
    pieces = [_of_region("half", r) for r in peer.regions.regions]
    return _map(pieces, KINDS, peer.half_bytes, f"offset in a half of {peer.half_bytes:,} bytes")


def lds_figure(lds: LdsMap) -> Figure | None:
    """Members of each struct at their offsets; the red line is what the arch allows."""
    if not lds.total:
        return None
    pieces = [
        Piece(
            f"{s.name}: {', '.join(s.stages)}",
            m.name,
            m.name,
            m.offset,
            m.bytes,
            f"{m.name}: {m.bytes:,} bytes at {m.offset:,}<br>{m.rows} x {m.row_words} words, {m.element}"
            f"<br>{m.doc}",
        )
        for s in lds.structs
        for m in s.members
    ]
    families = dict.fromkeys(p.family for p in pieces)
    colours = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(families)}
    title = f"bytes; {lds.decides} needs {lds.total:,} of {lds.budget:,} (red)"
    figure = _map(pieces, colours, lds.budget * 102 // 100, title)
    figure.add_vline(x=lds.budget, line={"color": "#e45756", "dash": "dash"})
    figure.update_layout(showlegend=False, margin_l=170)
    return figure


def _of_region(line: str, r: Region) -> Piece:
    what = f"{r.name}: {r.bytes:,} bytes at {r.offset:,}, {r.kind} of {r.element}"
    return Piece(line, r.kind, r.name, r.offset, r.bytes, f"{what}<br>{r.writer} to {r.reader}")


def _map(pieces: Sequence[Piece], colours: dict[str, str], end: int, title: str) -> Figure:
    """A bar a piece, on its line at its offset."""
    from plotly import graph_objects as go

    figure = go.Figure()
    for family in dict.fromkeys(p.family for p in pieces):
        own = [p for p in pieces if p.family == family]
        figure.add_bar(
            name=family,
            orientation="h",
            y=[p.line for p in own],
            x=[p.bytes for p in own],
            base=[p.offset for p in own],
            marker={"color": colours[family], "line": {"color": "#fff", "width": 1}},
            text=[p.name for p in own],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            hovertext=[p.hover for p in own],
            hoverinfo="text",
        )
    lines = len({p.line for p in pieces})
    figure.update_yaxes(autorange="reversed", type="category", categoryorder="array",
                        categoryarray=list(dict.fromkeys(p.line for p in pieces)))  # fmt: skip
    figure.update_xaxes(title_text=title, range=[0, end])
    figure.update_layout(
        barmode="overlay",
        height=130 + 36 * lines,
        template="plotly_white",
        margin={"t": 40, "b": 50, "l": 80, "r": 10},
        showlegend=True,
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom"},
        uniformtext={"minsize": 9, "mode": "hide"},
    )
    return figure
