"""The HTML report of a run: one file that opens offline, a section a launch.

A section: verdicts and stage errors, error histograms, the wait graph and the workgroups' time line in
executed instructions, instructions of each stage and rank, bytes of each argument against the plan's. All of
it comes from `RunResult`s: one kernel's report and that of a layer on several ranks are the same code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from flymono.reference.verdict import Verdict
from flymono.runtime.files import write_atomically
from flymono.runtime.report.page import Figures, render
from flymono.runtime.run import html_figures as draw
from flymono.runtime.run.result import ArgumentTraffic, RunResult

_TEMPLATE = Path(__file__).with_name("report.html.j2")
_HEAVY = 1 << 16
"""Bytes that a plan states of an argument before a ratio above the allowance is marked."""
_ALLOWED = 1.02
"""What may be asked for of an argument, against the plan's bytes."""


@dataclass(frozen=True)
class Row:
    """A verdict as a line of the table. `share` of its budget: infinite where bits differ."""

    verdict: Verdict
    share: float
    rank: str


@dataclass(frozen=True)
class StageWork:
    """Executed instructions of a stage: of all ranks, of each, and the most frequent ones."""

    stage: str
    executed: int
    ranks: tuple[int, ...]
    most: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Moved:
    """Bytes of an argument against the plan's; `ratio` is None where the plan states none."""

    counted: ArgumentTraffic
    ratio: float | None

    @property
    def over(self) -> bool:
        """Whether a large argument is asked for more than the plan allows; scratch is polled, at will."""
        large = self.counted.planned >= _HEAVY and self.counted.name != "scratch"
        return self.ratio is not None and self.ratio > _ALLOWED and large


@dataclass(frozen=True)
class Section:
    """One launch: what the template shows of it."""

    result: RunResult
    anchor: str
    rows: tuple[Row, ...]
    work: tuple[StageWork, ...]
    moved: tuple[Moved, ...]
    blocks: tuple[tuple[str, Markup], ...]

    @property
    def right(self) -> int:
        """Outputs within their budgets."""
        return sum(r.verdict.ok for r in self.rows)


def section(result: RunResult, anchor: str, figures: Figures) -> Section:
    """What a report shows of one launch."""
    drawn = figures.blocks(
        (
            ("Stage errors (share of the budget)", draw.stage_errors(result)),
            (
                "Error histograms (error over budget; outputs with all elements in one bin are left out)",
                draw.histograms(result),
            ),
            ("Wait graph", draw.stage_graph(result)),
            ("Workgroups", draw.workgroups(result)),
            ("Workgroups by the clock", draw.clock(result)),
        )
    )
    rows = tuple(Row(v, draw.share(v), rank_of(v, result)) for v in result.verdicts)
    return Section(result, anchor, rows, stage_work(result), argument_bytes(result), tuple(drawn))


def rank_of(verdict: Verdict, result: RunResult) -> str:
    """The rank of the worst element: verdicts of K2 and FFN have ranks as their leading axis, one on equal
    bits names the rank. Empty where it is not known, where nothing is off, or where there is one rank."""
    if result.ranks == 1 or verdict.worst == 0:
        return ""
    named = re.search(r"\brank (\d+)", f"{verdict.output} {verdict.where}")
    leading = re.match(r"\[(\d+)[,\]]", verdict.where)
    stacked = "_k1-" not in result.build and verdict.shape[:1] == (result.ranks,)
    found = named or (leading if stacked else None)
    return found[1] if found else ""


def stage_work(result: RunResult) -> tuple[StageWork, ...]:
    """Instructions by stage, in the order of the counters (program order)."""
    found = []
    for stage, ops in result.counters.by_stage.items():
        ranks = tuple(own.get(stage, 0) for own in result.rank_stages)
        most = sorted(ops.items(), key=lambda item: -item[1])[:6]
        found.append(StageWork(draw.named(stage), sum(ops.values()), ranks, tuple(most)))
    return tuple(found)


def argument_bytes(result: RunResult) -> tuple[Moved, ...]:
    """Arguments that the plan or the device knows bytes of, in launch order."""
    used = [t for t in result.traffic if t.planned or t.requested or t.stored]
    return tuple(Moved(t, (t.requested + t.stored) / t.planned if t.planned else None) for t in used)


def html(results: RunResult | Sequence[RunResult]) -> str:
    """The report as one HTML text: of one launch, or of several in their order."""
    found = (results,) if isinstance(results, RunResult) else tuple(results)
    figures = Figures()
    sections = [section(r, f"launch-{i + 1}", figures) for i, r in enumerate(found)]
    ok = bool(found) and all(r.ok for r in found)
    return render(_TEMPLATE, figures, sections=sections, ok=ok, allowed=_ALLOWED)


def write_html(results: RunResult | Sequence[RunResult], path: Path) -> None:
    """Write the report to `path`, whole or not at all."""
    write_atomically(path, html(results).encode())
