"""Time lines of workgroups as the JSON that ui.perfetto.dev and chrome://tracing open.

A process a rank, a track a workgroup, an event a stage: from the point before it to its own. Ranks have
clocks of their own, so each begins with its first launch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from flymono.runtime.run.result import RunResult

TICKS = 100.0
"""Of the clock that kernels read, a microsecond."""


def trace(results: Sequence[RunResult]) -> str:
    """Launches of one run, one after the other on every rank, as one JSON document."""
    timed = [r for r in results if r.clock]
    events = [*_names(timed), *(event for r in timed for event in _events(r, _starts(timed)))]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}) + "\n"


def _starts(results: Sequence[RunResult]) -> list[int]:
    """The first tick of each rank."""
    ranks = range(max((len(r.clock) for r in results), default=0))
    return [min(min(own) for r in results for own in r.clock[rank]) for rank in ranks]


def _names(results: Sequence[RunResult]) -> Iterator[dict[str, Any]]:
    for rank in range(max((len(r.clock) for r in results), default=0)):
        yield {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}}
        for workgroup in range(len(results[0].clock[rank])):
            name = {"name": f"workgroup {workgroup}"}
            yield {"ph": "M", "name": "thread_name", "pid": rank, "tid": workgroup, "args": name}


def _events(result: RunResult, starts: Sequence[int]) -> Iterator[dict[str, Any]]:
    for rank, workgroups in enumerate(result.clock):
        for workgroup, ticks in enumerate(workgroups):
            for n, stage in enumerate(result.points[1:]):
                yield {
                    "ph": "X", "name": stage, "cat": result.build, "pid": rank, "tid": workgroup,
                    "ts": (ticks[n] - starts[rank]) / TICKS, "dur": (ticks[n + 1] - ticks[n]) / TICKS,
                }  # fmt: skip
