"""Figures of one launch: tasks on the grid, hand-offs between stages, bytes by group of arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..plan.layer import Handoff
from ..plan.view import Placed, moved, placed
from .page import KINDS, Figure

if TYPE_CHECKING:
    from ..plan import KernelPlan

_SPACES = {"scratch": "", "peer": "#e45756", "epoch": "#9d755d"}
_SCALE = {"showscale": False, "xgap": 0, "ygap": 2, "hoverongaps": False, "zmin": 0}
_DEEP = 4
"""Tasks of a workgroup in the darkest blue at least, so that one task is light in every launch."""


def occupancy_figure(plan: KernelPlan) -> Figure:
    """Heat map of the tasks of every workgroup in every stage, and queued tasks beside it."""
    from plotly.subplots import make_subplots

    rows = placed(plan)
    widths = [0.94, 0.06] if any(r.queued for r in rows) else [1.0]
    figure = make_subplots(
        cols=len(widths), column_widths=widths, shared_yaxes=True, horizontal_spacing=0.012
    )
    figure.add_trace(_grid(plan, rows), row=1, col=1)
    if len(widths) > 1:
        figure.add_trace(_queues(plan, rows), row=1, col=2)
    for i, row in enumerate(rows):
        if row.wraps:  # left of the line, tasks are past the wrap
            at = {"x0": row.first - 0.5, "x1": row.first - 0.5, "y0": i - 0.5, "y1": i + 0.5}
            figure.add_shape(type="line", **at, line={"color": "#e45756", "width": 3}, row=1, col=1)
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_xaxes(title_text="workgroup (red: the first of a stage that wraps)", row=1, col=1)
    margin = {"t": 30, "b": 50, "l": 80, "r": 10}
    figure.update_layout(height=110 + 24 * len(rows), margin=margin, template="plotly_white")
    return figure


def _grid(plan: KernelPlan, rows: Sequence[Placed]) -> Figure:
    from plotly import graph_objects as go

    return go.Heatmap(
        z=[[n or None for n in r.held] for r in rows],
        x=list(range(plan.grid)),
        y=[r.stage for r in rows],
        text=[[_task_list(plan, r.stage, w) for w in range(plan.grid)] for r in rows],
        hovertemplate="workgroup %{x}, %{y}<br>%{text}<extra></extra>",
        zmax=max(_DEEP, *(max(r.held) for r in rows)),
        colorscale="Blues",
        **_SCALE,
    )


def _queues(plan: KernelPlan, rows: Sequence[Placed]) -> Figure:
    from plotly import graph_objects as go

    rules = {s.name: s.queue.rule for s in plan.stages if s.queue is not None}
    return go.Heatmap(
        z=[[r.queued or None] for r in rows],
        x=["queue"],
        y=[r.stage for r in rows],
        text=[[f"+{r.queued}" if r.queued else ""] for r in rows],
        texttemplate="%{text}",
        hovertext=[[f"{r.stage}: {rules.get(r.stage, '')}"] for r in rows],
        hoverinfo="text",
        colorscale=[[0, "#fde3c8"], [1, "#f58518"]],
        **_SCALE,
    )


def _task_list(plan: KernelPlan, name: str, workgroup: int) -> str:
    """Tasks that the table gives a workgroup, and what one of them is."""
    stage = plan.stage(name)
    fixed = stage.tasks if stage.queue is None else stage.queue.static
    tasks = [t for t in stage.tasks_of(workgroup) if t < fixed]
    word = "task" if len(tasks) == 1 else "tasks"
    return f"{word} {', '.join(map(str, tasks))} of {stage.tasks}" if tasks else ""


def handoff_figure(found: list[Handoff]) -> Figure | None:
    """Stages as nodes, hand-offs as bands from producer to consumer."""
    from plotly import graph_objects as go

    if not found:
        return None
    names = list(dict.fromkeys(name for h in found for name in (h.producer, h.stage)))
    at = {name: i for i, name in enumerate(names)}
    links = {
        "source": [at[h.producer] for h in found],
        "target": [at[h.stage] for h in found],
        "value": [h.bytes.bit_length() for h in found],
        "label": [f"{h.region}: {h.bytes:,} bytes behind {h.kind}, {h.space} buffer" for h in found],
        "color": [_faded(_SPACES[h.space] or KINDS[h.kind]) for h in found],
        "hovertemplate": "%{source.label} to %{target.label}<br>%{label}<extra></extra>",
    }
    nodes = {
        "label": names,
        "pad": 16,
        "thickness": 14,
        "color": "#555",
        "align": "left",
        "hovertemplate": "%{label}<extra></extra>",
    }
    figure = go.Figure(go.Sankey(arrangement="snap", node=nodes, link=links))
    figure.update_layout(height=140 + 22 * len(names), margin={"t": 30, "b": 10, "l": 10, "r": 60})
    return figure


def _faded(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.45)"


def bytes_figure(plan: KernelPlan) -> Figure:
    """Bytes by group of arguments: each once, and asked for."""
    from plotly import graph_objects as go

    groups = moved(plan)
    names = [g.group for g in groups]
    figure = go.Figure()
    for label, values, colour in (
        ("requested", [g.requested for g in groups], "#9ecae9"),
        ("unique", [g.unique or None for g in groups], "#4c78a8"),
    ):
        figure.add_bar(
            name=label,
            y=names,
            x=values,
            orientation="h",
            marker_color=colour,
            hovertemplate=f"%{{y}}: %{{x:,}} bytes {label}<extra></extra>",
        )
    top = math.log10(max(g.requested for g in groups))
    figure.update_xaxes(type="log", title_text="bytes (logarithmic)", range=[1, top + 0.1])
    figure.update_yaxes(autorange="reversed")
    figure.update_layout(
        height=110 + 36 * len(names),
        margin={"t": 30, "b": 50, "l": 130, "r": 10},
        legend={"orientation": "h", "y": 1.12},
        template="plotly_white",
    )
    return figure
