"""What a run returns: one value that the table, the JSON and the HTML report all read.

Invariants
 - A result is complete: everything a report shows is in it, so a saved JSON can be shown again.
 - `ok` is computed from the verdicts, never stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from flymono.reference.verdict import Verdict
from flymono.runtime.devices.base import Counters
from flymono.runtime.plan.faults import TICKS_PER_SECOND


@dataclass(frozen=True)
class ArgumentTraffic:
    """One launch argument: bytes that the plan states and bytes that the device counted."""

    name: str
    planned: int
    requested: int
    unique: int
    stored: int
    planned_unique: int = 0  # bytes that the plan has loaded, each once


@dataclass(frozen=True)
class StageSpan:
    """When a stage ran: ticks (executed wave instructions of the whole grid) over its workgroups."""

    stage: str
    first: int
    last: int
    instructions: int


@dataclass(frozen=True)
class RunResult:
    """One kernel run and its judgement."""

    build: str
    code: str  # sha256 of the code object
    device: str
    seed: int
    source: str  # where the weights and inputs came from
    verdicts: tuple[Verdict, ...]
    resources: Mapping[str, int]  # vgprs, sgprs, lds_bytes, spills, instructions
    counters: Counters
    traffic: tuple[ArgumentTraffic, ...]
    spans: tuple[StageSpan, ...]
    waits: tuple[tuple[str, str, str], ...]  # producer stage, consumer stage, region
    digests: Mapping[str, str]  # output name -> sha256 of its bytes
    rank_stages: tuple[Mapping[str, int], ...] = ()  # executed instructions by stage, a mapping a rank
    points: tuple[str, ...] = ()  # of a timeline build
    clock: tuple[tuple[tuple[int, ...], ...], ...] = ()  # rank, workgroup, point: ticks of 10 ns
    ranks: int = 1  # that ran side by side: instructions are all of theirs, bytes and spans the first one's

    @property
    def ok(self) -> bool:
        """Whether every output is within its budget."""
        return bool(self.verdicts) and all(v.ok for v in self.verdicts)

    def entry(self, rank: int) -> int:
        """The first tick of a timeline build's launch on a rank."""
        return min(ticks[0] for ticks in self.clock[rank])

    def by_clock(self, rank: int) -> list[tuple[int, str, float, float]]:
        """(workgroup, stage, begin, end) of a timeline build on a rank, in microseconds from `entry`; a stage
        begins at the point before its own."""
        start, scale = self.entry(rank), 1e6 / TICKS_PER_SECOND
        return [
            (workgroup, stage, (ticks[n] - start) * scale, (ticks[n + 1] - start) * scale)
            for workgroup, ticks in enumerate(self.clock[rank])
            for n, stage in enumerate(self.points[1:])
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain data for `--json`: stable keys, no timing of the machine."""
        data = asdict(self)
        data["ok"] = self.ok
        data["counters"].pop("seconds")
        data["counters"].pop("timeline")
        data.pop("clock")
        return data


def spans_of(counters: Counters) -> tuple[StageSpan, ...]:
    """Stage spans from a time line of (workgroup, stage, first tick, last tick)."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for _, stage, low, high in counters.timeline:
        first[stage] = min(low, first.get(stage, low))
        last[stage] = max(high, last.get(stage, high))
    done = {stage: sum(ops.values()) for stage, ops in counters.by_stage.items()}
    return tuple(
        StageSpan(s, first[s], last[s], done.get(s, 0)) for s in sorted(first, key=lambda s: first[s])
    )


@dataclass(frozen=True)
class Ran:
    """Results of one layer's launches, by name."""

    name: str
    results: tuple[RunResult, ...]

    @property
    def ok(self) -> bool:
        """Whether every output of every launch is right."""
        return all(r.ok for r in self.results)
