"""Time lines of a timeline build: from ticks of 10 ns to stages in microseconds, in every view."""

from __future__ import annotations

import json

import pytest

from flymono.runtime.devices.base import Counters
from flymono.runtime.report.perfetto import trace
from flymono.runtime.run.html_figures import clock
from flymono.runtime.run.result import RunResult
from flymono.runtime.run.trace import StageTime, stage_times


def launch(build: str, *ranks: tuple[tuple[int, ...], ...]) -> RunResult:
    """Two stages, `a` and `b`; a rank's ticks by workgroup."""
    return RunResult(
        build=build, code="", device="a device", seed=0, source="", verdicts=(), resources={},
        counters=Counters(), traffic=(), spans=(), waits=(), digests={}, ranks=len(ranks),
        points=("start", "a", "b"), clock=ranks,
    )  # fmt: skip


FIRST = launch("first", ((1000, 1200, 1500), (1100, 1150, 1800)), ((7, 9, 13), (9, 10, 11)))
SECOND = launch("second", ((2000, 2100, 2100), (2050, 2100, 2300)), ((20, 30, 40), (20, 30, 50)))


def test_a_stage_begins_where_the_one_before_it_ended() -> None:
    assert FIRST.by_clock(0) == [
        (0, "a", 0.0, 2.0), (0, "b", 2.0, 5.0), (1, "a", 1.0, 1.5), (1, "b", 1.5, 8.0),
    ]  # fmt: skip
    assert FIRST.by_clock(1)[-1] == (1, "b", pytest.approx(0.03), pytest.approx(0.04))


def test_times_of_a_stage_are_those_of_all_workgroups() -> None:
    assert stage_times(FIRST) == [
        StageTime("a", first=1.5, median=1.75, last=2.0, longest=2.0),
        StageTime("b", first=5.0, median=6.5, last=8.0, longest=6.5),
    ]


def test_launches_follow_one_another_on_each_rank_from_its_own_beginning() -> None:
    events = json.loads(trace([FIRST, SECOND]))["traceEvents"]
    names = {(e["pid"], e.get("tid")): e["args"]["name"] for e in events if e["ph"] == "M"}
    assert names[0, None] == "rank 0" and names[1, 1] == "workgroup 1" and len(names) == 6
    spans = {(e["cat"], e["pid"], e["tid"], e["name"]): (e["ts"], e["dur"]) for e in events if e["ph"] == "X"}
    assert len(spans) == 16
    assert spans["first", 0, 0, "a"] == (0.0, 2.0) and spans["first", 0, 1, "b"] == (1.5, 6.5)
    assert spans["second", 0, 0, "a"] == (10.0, 1.0) and spans["second", 0, 1, "b"] == (11.0, 2.0)
    assert spans["second", 1, 1, "b"] == (pytest.approx(0.23), pytest.approx(0.2))


def test_a_run_without_a_clock_has_no_time_line() -> None:
    plain = launch("plain")
    assert json.loads(trace([plain]))["traceEvents"] == [] and clock(plain) is None
    figure = clock(FIRST)
    assert figure is not None and [bar.name for bar in figure.data] == ["a", "b"]
    assert list(figure.data[1].base) == [2.0, 1.5] and list(figure.data[1].x) == [3.0, 6.5]
