"""What `flymono trace` does: a layer's launches, or the FFN launch, as builds that note the clock, and when
each stage ended on every workgroup."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from flymono.runtime.files import check_writable, write_atomically
from flymono.runtime.report.perfetto import trace
from flymono.runtime.run import html
from flymono.runtime.run.ffn_command import run_ffn
from flymono.runtime.run.layer_command import run_layers
from flymono.runtime.run.layer_options import LayerOptions
from flymono.runtime.run.result import RunResult

FILES = ("trace.json", "trace.html")


@dataclass(frozen=True)
class StageTime:
    """When a stage's workgroups were through, in microseconds from the launch's first entry."""

    stage: str
    first: float
    median: float
    last: float
    longest: float  # from the point before it, on one workgroup


def stage_times(result: RunResult, rank: int = 0) -> list[StageTime]:
    """Of a timeline build's launch on one rank."""
    spans, found = result.by_clock(rank), list[StageTime]()
    for stage in result.points[1:]:
        own = [(begin, end) for _, name, begin, end in spans if name == stage]
        ends = [end for _, end in own]
        longest = max(end - begin for begin, end in own)
        found.append(StageTime(stage, min(ends), median(ends), max(ends), longest))
    return found


def table(result: RunResult) -> Table:
    """A line a stage, rank 0."""
    made = Table(
        title=f"{result.build} on {result.device}: us from the first entry, rank 0", title_justify="left"
    )
    made.add_column("stage")
    for heading in ("first through", "median", "last through", "longest on a workgroup"):
        made.add_column(heading, justify="right")
    for t in stage_times(result):
        made.add_row(t.stage, *(f"{v:.2f}" for v in (t.first, t.median, t.last, t.longest)))
    return made


def trace_and_print(options: LayerOptions, kind: str, into: Path) -> bool:
    """Run `layer` or `ffn`, print the stages' times, write trace.json and trace.html into the folder, and say
    whether every output is right: times of wrong results mean nothing."""
    for name in FILES:
        check_writable(into / name)
    ran = list((run_layers if kind == "layer" else run_ffn)(options))
    results, console = [r for one in ran for r in one.results], Console()
    for result in results:
        if result.clock:
            console.print(table(result))
    into.mkdir(parents=True, exist_ok=True)
    write_atomically(into / FILES[0], trace(results).encode())
    html.write_html(results, into / FILES[1])
    ok = all(one.ok for one in ran)
    wrong = [f"{r.build} {v.name}" for r in results for v in r.verdicts if not v.ok]
    console.print(f"{'right' if ok else 'WRONG: ' + ', '.join(wrong)}; {' and '.join(FILES)} in {into}")
    return ok
