"""The HTML report of a run: one file that opens offline.

Sections: verdicts, error histograms of each output, the wait graph with times in executed
instructions, bytes of each argument, instructions by stage. Plots are plotly figures whose script
is embedded once; nothing is fetched.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from flymono.runtime.files import write_atomically
from flymono.runtime.run.result import RunResult

_PALETTE = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d", "#bab0ac")


def _histograms(result: RunResult) -> Any:
    """Counts of errors as a share of the budget (log bins), one panel an output."""
    from plotly.subplots import make_subplots

    shown = [v for v in result.verdicts if v.histogram]
    if not shown:
        return None
    columns = 3
    rows = -(-len(shown) // columns)
    figure = make_subplots(rows=rows, cols=columns, subplot_titles=[f"{v.stage}: {v.output}" for v in shown])
    for i, v in enumerate(shown):
        labels, counts = zip(*v.histogram, strict=True)
        figure.add_bar(x=labels, y=counts, row=i // columns + 1, col=i % columns + 1, marker_color="#4c78a8")
    figure.update_layout(showlegend=False, height=230 * rows, margin={"t": 40, "b": 20})
    figure.update_yaxes(type="log")
    return figure


def _stage_graph(result: RunResult) -> Any:
    """Stages as bars over ticks with an arrow for every wait between two stages."""
    import plotly.graph_objects as go

    figure = go.Figure()
    level = {s.stage: i for i, s in enumerate(result.spans)}
    for i, s in enumerate(result.spans):
        figure.add_bar(
            y=[s.stage],
            x=[s.last - s.first],
            base=[s.first],
            orientation="h",
            marker_color=_PALETTE[i % len(_PALETTE)],
            hovertext=f"{s.stage}: ticks {s.first:,} to {s.last:,}, {s.instructions:,} instructions",
        )
    at = {s.stage: s for s in result.spans}
    for producer, consumer, region in result.waits:
        if producer in level and consumer in level:
            figure.add_annotation(
                x=at[consumer].first,
                y=consumer,
                ax=at[producer].last,
                ay=producer,
                xref="x",
                yref="y",
                axref="x",
                ayref="y",
                showarrow=True,
                arrowhead=2,
                text=region,
            )
    figure.update_layout(
        showlegend=False,
        xaxis_title="ticks (executed wave instructions)",
        height=90 + 55 * len(level),
        yaxis={"autorange": "reversed"},
        margin={"t": 20},
    )
    return figure


def _workgroups(result: RunResult) -> Any:
    """Every workgroup's stages over ticks: who works and who waits."""
    import plotly.graph_objects as go

    figure = go.Figure()
    by_stage: dict[str, list[tuple[int, int, int]]] = {}
    for workgroup, stage, low, high in result.counters.timeline:
        by_stage.setdefault(stage, []).append((workgroup, low, high))
    for i, (stage, bars) in enumerate(by_stage.items()):
        figure.add_bar(
            name=stage,
            orientation="h",
            y=[b[0] for b in bars],
            x=[b[2] - b[1] for b in bars],
            base=[b[1] for b in bars],
            marker_color=_PALETTE[i % len(_PALETTE)],
            marker_line_width=0,
        )
    figure.update_layout(
        barmode="overlay",
        height=700,
        bargap=0,
        xaxis_title="ticks",
        yaxis_title="workgroup",
        margin={"t": 20},
    )
    return figure


def html(result: RunResult) -> str:
    """The report as one HTML text."""
    figures = [
        ("Error histograms (error over budget)", _histograms(result)),
        ("Wait graph", _stage_graph(result)),
        ("Workgroups", _workgroups(result)),
    ]
    script: bool | str = True
    blocks = []
    for title, figure in figures:
        if figure is not None:
            blocks.append((title, figure.to_html(full_html=False, include_plotlyjs=script)))
            script = False
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        autoescape=select_autoescape(["j2"]),
    )
    return environment.get_template("report.html.j2").render(result=result, blocks=blocks)


def write_html(result: RunResult, path: Path) -> None:
    """Write the report to `path`, whole or not at all."""
    write_atomically(path, html(result).encode())
