"""The table that a run prints: verdict of every output, resources, bytes of every argument."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from flymono.reference.verdict import Verdict
from flymono.runtime.run.result import RunResult


def _number(value: float) -> str:
    return "bits" if value == 0 else f"{value:.3g}"


def _verdict(verdict: Verdict) -> Text:
    return Text("right", style="green") if verdict.ok else Text("WRONG", style="bold red")


def outputs_table(result: RunResult) -> Table:
    """One row an output: stage, name, shape, worst error, budget, verdict."""
    table = Table(title=f"{result.build} on {result.device}", title_justify="left")
    for heading in ("stage", "output", "shape", "worst error", "budget", "verdict"):
        table.add_column(heading, justify="right" if heading in ("worst error", "budget") else "left")
    for v in result.verdicts:
        shape = " x ".join(map(str, v.shape))
        worst = "0" if v.worst == 0 else f"{v.worst:.3g}"
        table.add_row(v.stage, v.output, shape, worst, _number(v.budget), _verdict(v))
    return table


def resources_line(result: RunResult) -> str:
    """Registers, LDS, static and executed instructions, bytes moved, in one line."""
    r, c = result.resources, result.counters
    loaded = sum(t.requested for t in result.traffic)
    stored = sum(t.stored for t in result.traffic)
    rate = f", {c.instructions / c.seconds / 1e6:.1f} M a core second" if c.seconds else ""
    return (
        f"{r['vgprs']} VGPR, {r['sgprs']} SGPR, {r['lds_bytes']:,} B LDS, {r['spills']} spills, "
        f"{r['instructions']:,} instructions; executed {c.instructions:,} wave instructions{rate}; "
        f"loaded {loaded:,} B, stored {stored:,} B"
    )


def traffic_table(result: RunResult) -> Table:
    """Bytes of each argument: what the plan states, what lanes asked for, what is distinct."""
    table = Table(title="bytes of each argument", title_justify="left")
    table.add_column("argument")
    for heading in ("planned", "requested", "unique", "stored"):
        table.add_column(heading, justify="right")
    for t in result.traffic:
        if t.planned or t.requested or t.stored:
            table.add_row(t.name, f"{t.planned:,}", f"{t.requested:,}", f"{t.unique:,}", f"{t.stored:,}")
    return table


def failures(result: RunResult) -> list[str]:
    """One line for every wrong output: which stage, where, how far."""
    return [
        f"{v.stage}: {v.output} is wrong at {v.where}: error {v.worst:.4g}, budget {_number(v.budget)}"
        for v in result.verdicts
        if not v.ok
    ]


def render(result: RunResult, verbose: bool = False) -> RenderableType:
    """The whole report of one kernel for a terminal."""
    parts: list[RenderableType] = [outputs_table(result), Text(resources_line(result))]
    if verbose:
        parts.append(traffic_table(result))
    parts.extend(Text(line, style="red") for line in failures(result))
    return Group(*parts)
