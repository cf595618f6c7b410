"""Maps of memory: scratch regions by lifetime, LDS structs, a half of the peer buffer. x is always the offset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .page import KINDS, PALETTE, Figure

if TYPE_CHECKING:
    from ..plan import KernelPlan
    from ..plan.lds import LdsMap
    from ..plan.scratch import Region, Scratch


def scratch_figure(scratch: Scratch) -> Figure | None:
    """Regions at their offsets, a line for each set of launches that they live through."""
    if not scratch.regions:
        return None
    figure = _map([(" ".join(r.lifetime), r) for r in scratch.regions])
    figure.update_xaxes(title_text=f"offset of {scratch.total:,} bytes; drag to zoom", range=[0, scratch.total])
    return figure


def peer_figure(plan: KernelPlan) -> Figure | None:
    """Regions of a half of the peer buffer; the half is as large as the widest step needs."""
    peer = getattr(plan, "peer", None)
    if peer is None:
        return None
    figure = _map([("half", r) for r in peer.regions.regions])
    title = f"offset in a half of {peer.half_bytes:,} bytes"
    figure.update_xaxes(title_text=title, range=[0, peer.half_bytes])
    return figure


def _map(rows: Sequence[tuple[str, Region]]) -> Figure:
    """A bar a region, coloured by what it holds."""
    from plotly import graph_objects as go

    figure = go.Figure()
    for kind in dict.fromkeys(r.kind for _, r in rows):
        of_kind = [(row, r) for row, r in rows if r.kind == kind]
        figure.add_bar(
            name=kind, orientation="h", y=[row for row, _ in of_kind], x=[r.bytes for _, r in of_kind],
            base=[r.offset for _, r in of_kind], marker={"color": KINDS[kind], "line": {"color": "#fff", "width": 1}},
            text=[r.name for _, r in of_kind], textposition="inside", insidetextanchor="middle",
            hovertext=[_region(r) for _, r in of_kind], hoverinfo="text",
        )  # fmt: skip
    figure.update_yaxes(autorange="reversed", type="category")
    count = len({row for row, _ in rows})
    figure.update_layout(barmode="overlay", height=120 + 42 * count, margin={"t": 10, "b": 50, "l": 80, "r": 10},
                         legend={"orientation": "h", "y": 1.2}, showlegend=True, uniformtext={"minsize": 9, "mode": "hide"})  # fmt: skip
    return figure


def _region(r: Region) -> str:
    return f"{r.name}: {r.bytes:,} bytes at {r.offset:,}, {r.kind} of {r.element}<br>{r.writer} to {r.reader}"


def lds_figure(lds: LdsMap) -> Figure | None:
    """Members of each struct at their offsets; the line is what the arch allows."""
    from plotly import graph_objects as go

    if not lds.total:
        return None
    names = [f"{s.name}: {', '.join(s.stages)}" for s in lds.structs]
    members = dict.fromkeys(m.name for s in lds.structs for m in s.members)
    figure = go.Figure()
    for i, member in enumerate(members):
        held = [(n, m) for n, s in zip(names, lds.structs, strict=True) for m in s.members if m.name == member]
        figure.add_bar(
            name=member, orientation="h", y=[n for n, _ in held], x=[m.bytes for _, m in held],
            base=[m.offset for _, m in held], marker={"color": PALETTE[i % len(PALETTE)], "line": {"color": "#fff", "width": 1}},
            text=[m.name for _, m in held], textposition="inside", insidetextanchor="middle",
            hovertext=[f"{m.name}: {m.bytes:,} bytes at {m.offset:,}<br>{m.rows} x {m.row_words} words, {m.element}"
                       f"<br>{m.doc}" for _, m in held], hoverinfo="text",
        )  # fmt: skip
    figure.add_vline(x=lds.budget, line={"color": "#e45756", "dash": "dash"})
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_xaxes(title_text=f"bytes; {lds.decides} needs {lds.total:,} of {lds.budget:,} (red)",
                        range=[0, lds.budget * 1.02])  # fmt: skip
    figure.update_layout(barmode="overlay", height=100 + 34 * len(names), showlegend=False,
                         margin={"t": 10, "b": 50, "l": 170, "r": 10}, uniformtext={"minsize": 9, "mode": "hide"})  # fmt: skip
    return figure
