"""Figures of one launch's report: errors by stage, histograms, the wait graph, workgroups over ticks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from flymono.reference.verdict import Verdict
from flymono.runtime.report.page import PALETTE, Figure
from flymono.runtime.run.result import RunResult

_RIGHT, _WRONG = "#1a7f37", "#cf222e"
_FAR = 3.0
"""Where errors that are further off are drawn."""


def share(verdict: Verdict) -> float:
    """The worst error as a share of its budget; of bits 0 or infinite."""
    if verdict.worst == 0:
        return 0.0
    return verdict.worst / verdict.budget if verdict.budget else math.inf


def named(stage: str) -> str:
    """A stage as reports name it: what runs ahead of the first one has no name of its own."""
    return stage or "entry"


def stage_errors(result: RunResult) -> Figure | None:
    """A point an output on its stage's line; the budget is the line at 1."""
    from plotly import graph_objects as go

    if not result.verdicts:
        return None
    figure = go.Figure()
    for ok, colour, name in ((True, _RIGHT, "right"), (False, _WRONG, "wrong")):
        own = [v for v in result.verdicts if v.ok is ok]
        if own:
            figure.add_scatter(
                name=name,
                mode="markers",
                x=[min(share(v), _FAR) for v in own],
                y=[v.stage for v in own],
                marker={"color": colour, "size": 9, "opacity": 0.7},
                hovertext=[
                    f"{v.output}: {v.worst:.3g} of {f'{v.budget:.3g}' if v.budget else 'no difference'} "
                    f"{v.unit}<br>{v.where}"
                    for v in own
                ],
                hoverinfo="text",
            )
    stages = list(dict.fromkeys(v.stage for v in result.verdicts))
    worst = max((min(share(v), _FAR) for v in result.verdicts), default=0.0)
    figure.add_vline(x=1, line={"color": _WRONG, "dash": "dash"})
    figure.update_xaxes(
        range=[-0.02, max(1.05, worst * 1.05)],
        title_text="worst error / budget; a rounding that may go either way is 1",
    )
    figure.update_yaxes(autorange="reversed", type="category", categoryorder="array", categoryarray=stages)
    figure.update_layout(
        height=110 + 22 * len(stages),
        margin={"t": 30, "l": 90, "b": 50},
        template="plotly_white",
        showlegend=False,
    )
    return figure


def _merged(result: RunResult) -> dict[str, dict[str, int]]:
    """Histograms by output, those of several ranks added, of outputs that are wrong or fill several bins."""
    wrong = {f"{v.stage}: {v.output}" for v in result.verdicts if not v.ok}
    found = dict[str, Counter[str]]()
    for v in result.verdicts:
        if v.histogram:
            found.setdefault(f"{v.stage}: {v.output}", Counter()).update(dict(v.histogram))
    telling = {n: c for n, c in found.items() if n in wrong or sum(count > 0 for count in c.values()) > 1}
    return {name: dict(counts) for name, counts in telling.items()}


def histograms(result: RunResult) -> Figure | None:
    """Counts of errors as a share of the budget (log bins), one panel an output."""
    from plotly.subplots import make_subplots

    shown = _merged(result)
    if not shown:
        return None
    columns = min(4, len(shown))
    rows = -(-len(shown) // columns)
    gap = min(0.4 / rows, 0.12)
    figure = make_subplots(rows=rows, cols=columns, subplot_titles=list(shown), vertical_spacing=gap)
    for i, counts in enumerate(shown.values()):
        place = {"row": i // columns + 1, "col": i % columns + 1}
        figure.add_bar(x=list(counts), y=list(counts.values()), marker_color=PALETTE[0], **place)
    figure.update_layout(
        showlegend=False, height=60 + 230 * rows, margin={"t": 40, "b": 20}, template="plotly_white"
    )
    figure.update_yaxes(type="log", dtick=1)
    figure.update_xaxes(tickfont_size=9)
    figure.update_annotations(font_size=11)
    return figure


def stage_graph(result: RunResult) -> Figure | None:
    """Stages as bars over ticks, and an arrow for every wait between two stages: from where the producer's
    last task ends to the consumer, which may have begun before."""
    import plotly.graph_objects as go

    if not result.spans:
        return None
    figure = go.Figure()
    for i, s in enumerate(result.spans):
        figure.add_bar(
            y=[named(s.stage)],
            x=[s.last - s.first],
            base=[s.first],
            orientation="h",
            marker_color=PALETTE[i % len(PALETTE)],
            hovertext=f"{named(s.stage)}: ticks {s.first:,} to {s.last:,}, {s.instructions:,} instructions",
            hoverinfo="text",
        )
    at = {s.stage: s for s in result.spans}
    for producer, consumer, region in result.waits:
        if producer in at and consumer in at:
            done, own = at[producer].last, at[consumer]
            ends = {"x": min(max(own.first, done), own.last), "y": consumer, "ax": done, "ay": producer}
            axes = {"xref": "x", "yref": "y", "axref": "x", "ayref": "y"}
            figure.add_annotation(**ends, **axes, showarrow=True, arrowhead=2, text=region)
    figure.update_layout(
        showlegend=False,
        xaxis_title="ticks (executed wave instructions)",
        height=90 + 45 * len(at),
        yaxis={"autorange": "reversed"},
        margin={"t": 30},
        template="plotly_white",
    )
    return figure


def workgroups(result: RunResult) -> Figure | None:
    """Every workgroup's stages over ticks: who works and who waits."""
    return _bars(result.counters.timeline, "ticks")


def clock(result: RunResult) -> Figure | None:
    """The same by the clock that a timeline build has noted, of rank 0, in microseconds."""
    return _bars(result.by_clock(0), "us") if result.clock else None


def _bars(spans: Iterable[tuple[int, str, float, float]], unit: str) -> Figure | None:
    import plotly.graph_objects as go

    by_stage: dict[str, list[tuple[int, float, float]]] = {}
    for workgroup, stage, low, high in spans:
        by_stage.setdefault(stage, []).append((workgroup, low, high))
    if not by_stage:
        return None
    figure = go.Figure()
    for i, (stage, bars) in enumerate(by_stage.items()):
        figure.add_bar(
            name=named(stage),
            orientation="h",
            y=[b[0] for b in bars],
            x=[b[2] - b[1] for b in bars],
            base=[b[1] for b in bars],
            marker_color=PALETTE[i % len(PALETTE)],
            marker_line_width=0,
        )
    figure.update_layout(
        barmode="overlay",
        height=700,
        bargap=0,
        xaxis_title=unit,
        yaxis_title="workgroup",
        margin={"t": 30},
        template="plotly_white",
    )
    return figure
