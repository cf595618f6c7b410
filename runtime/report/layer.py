"""A layer's plan as one HTML page: a heat map of each launch (workgroups x stages), its hand-offs, memory, bytes.

Everything shown is the plan's; `runtime/plan/view.py` says what belongs together.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..plan.layer import Handoff, handoffs
from ..plan.view import moved, passed, place_text, placed, pushed, same_limit
from .layer_memory import lds_figure, peer_figure, scratch_figure
from .page import KINDS, Figure, Figures, render

if TYPE_CHECKING:
    from ..plan import KernelPlan, LayerPlan

_SPACES = {"scratch": "", "peer": "#e45756", "epoch": "#9d755d"}
_TEMPLATE = Path(__file__).with_name("layer.html.j2")


def layer_html(plan: LayerPlan) -> str:
    """The whole page."""
    figures = Figures()
    launches = [_section(one, figures) for one in plan.plans]
    holder = plan.plans[-1]  # K2's scratch is the whole layer's, and its peer buffer the only one
    memory = [
        ("Scratch, by the launches that a region lives through", scratch_figure(holder.scratch)),
        ("A half of the peer buffer", peer_figure(holder)),
    ]
    return render(
        _TEMPLATE,
        figures,
        plan=plan,
        launches=launches,
        passed=passed(plan),
        holder=holder,
        peer=getattr(holder, "peer", None),
        memory=figures.blocks(memory),
        one_limit=same_limit(plan.plans),
        total_bytes=sum(p.cost.bound.hbm_bytes for p in plan.plans),
        total_ns=sum(p.cost.bound.ns for p in plan.plans),
    )


def _section(plan: KernelPlan, figures: Figures) -> dict[str, object]:
    """One launch: its figures, and rows of its tables that are not the plan's own."""
    found = handoffs(plan)
    blocks = [
        (
            "Tasks: workgroups x stages",
            occupancy_figure(plan),
            "A column is a workgroup, a row a stage in program order; point at a cell for its tasks. "
            "The column on the right holds tasks that a queue hands out to whoever asks.",
        ),
        (
            "Hand-offs",
            handoff_figure(found),
            "From the stage that writes to the stage that waits; a band's width grows with the logarithm of its "
            "bytes. Blue: pairs that carry the tag themselves; orange: data behind flags, which stand for all "
            "that the producer wrote; red: the peer buffer; brown: the epoch buffer.",
        ),
        ("LDS, one struct at a time", lds_figure(plan.lds), ""),
        ("Bytes moved", bytes_figure(plan), "Each byte once, and what lanes ask for."),
    ]
    return {
        "plan": plan,
        "blocks": [(title, figures.html(f), note) for title, f, note in blocks if f is not None],
        "handoffs": [(h, site) for h, site in zip(found, plan.sites, strict=True)],
        "places": {s.name: place_text(s) if s.tasks else "-" for s in plan.stages},
        "moved": moved(plan),
        "pushed": pushed(plan),
    }


def occupancy_figure(plan: KernelPlan) -> Figure:
    """Heat map of the tasks of every workgroup in every stage, and queued tasks beside it."""
    from plotly import graph_objects as go
    from plotly.subplots import make_subplots

    rows = placed(plan)
    names = [r.stage for r in rows]
    queue = any(r.queued for r in rows)
    widths = [0.94, 0.06] if queue else [1.0]
    figure = make_subplots(rows=1, cols=len(widths), column_widths=widths, shared_yaxes=True,
                           horizontal_spacing=0.012)  # fmt: skip
    scale = {"colorscale": "Viridis_r", "showscale": False, "xgap": 0, "ygap": 2, "hoverongaps": False}
    heat = go.Heatmap(
        z=[[n or None for n in r.held] for r in rows],
        x=list(range(plan.grid)),
        y=names,
        text=[[_task_list(plan, r.stage, w) for w in range(plan.grid)] for r in rows],
        hovertemplate="workgroup %{x}, %{y}<br>%{text}<extra></extra>",
        zmin=0,
        **scale,
    )
    figure.add_trace(heat, row=1, col=1)
    if queue:
        shown = [[r.queued or None] for r in rows]
        labels = [[f"+{r.queued}" if r.queued else ""] for r in rows]
        figure.add_trace(
            go.Heatmap(z=shown, x=["queue"], y=names, text=labels, texttemplate="%{text}", zmin=0,
                       hovertext=[[_rule(plan, r.stage)] for r in rows], hoverinfo="text",
                       **(scale | {"colorscale": [[0, "#fde3c8"], [1, "#f58518"]]})),
            row=1, col=2,
        )  # fmt: skip
    for i, row in enumerate(rows):  # where task 0 sits: left of it, tasks are past the wrap
        if row.wraps:
            figure.add_shape(type="line", x0=row.first - 0.5, x1=row.first - 0.5, y0=i - 0.5, y1=i + 0.5,
                             line={"color": "#e45756", "width": 3}, row=1, col=1)  # fmt: skip
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_xaxes(title_text="workgroup (red: task 0 of a stage that wraps round the grid)", row=1, col=1)
    figure.update_layout(height=90 + 24 * len(rows), margin={"t": 10, "b": 50, "l": 80, "r": 10},
                         plot_bgcolor="#f6f6f6")  # fmt: skip
    return figure


def _task_list(plan: KernelPlan, name: str, workgroup: int) -> str:
    """Tasks that the table gives a workgroup, and what one of them is."""
    stage = plan.stage(name)
    fixed = stage.tasks if stage.queue is None else stage.queue.static
    tasks = [t for t in stage.tasks_of(workgroup) if t < fixed]
    word = "task" if len(tasks) == 1 else "tasks"
    return f"{word} {', '.join(map(str, tasks))} of {stage.tasks}" if tasks else ""


def _rule(plan: KernelPlan, name: str) -> str:
    queue = plan.stage(name).queue
    return "" if queue is None else f"{name}: {queue.rule}"


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
    nodes = {"label": names, "pad": 16, "thickness": 14, "color": "#555",
             "hovertemplate": "%{label}<extra></extra>"}  # fmt: skip
    figure = go.Figure(go.Sankey(arrangement="snap", node=nodes, link=links))
    figure.update_layout(height=140 + 22 * len(names), margin={"t": 10, "b": 10, "l": 10, "r": 60})
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
        ("unique", [g.unique for g in groups], "#4c78a8"),
    ):
        figure.add_bar(name=label, y=names, x=values, orientation="h", marker_color=colour,
                       hovertemplate=f"%{{y}}: %{{x:,}} bytes {label}<extra></extra>")  # fmt: skip
    figure.update_xaxes(type="log", title_text="bytes (logarithmic)")
    figure.update_yaxes(autorange="reversed")
    figure.update_layout(height=110 + 36 * len(names), margin={"t": 10, "b": 50, "l": 130, "r": 10},
                         legend={"orientation": "h", "y": 1.12})  # fmt: skip
    return figure
