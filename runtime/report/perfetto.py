"""Time lines of workgroups as the JSON that ui.perfetto.dev and chrome://tracing open.

A process a rank, a track a workgroup, an event a stage: from the point before it to its own. Ranks have
clocks of their own, so each begins with its first launch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from flymono.runtime.plan.faults import TICKS_PER_SECOND
from flymono.runtime.run.result import RunResult


def trace(results: Sequence[RunResult]) -> str:
    """Launches of one run, one after the other on every rank, as one JSON document."""
    timed = [r for r in results if r.clock]
    events = [e for rank in range(len(timed[0].clock) if timed else 0) for e in _of_rank(timed, rank)]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}) + "\n"


def _of_rank(results: Sequence[RunResult], rank: int) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}}
    for workgroup in range(len(results[0].clock[rank])):
        name = {"name": f"workgroup {workgroup}"}
        yield {"ph": "M", "name": "thread_name", "pid": rank, "tid": workgroup, "args": name}
    start = min(r.entry(rank) for r in results)
    for result in results:
        since = (result.entry(rank) - start) * 1e6 / TICKS_PER_SECOND
        for workgroup, stage, begin, end in result.by_clock(rank):
            yield {
                "ph": "X", "name": stage, "cat": result.build, "pid": rank, "tid": workgroup,
                "ts": since + begin, "dur": end - begin,
            }  # fmt: skip
