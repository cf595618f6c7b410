"""The ranks' states as Prometheus' text format, for a node exporter's folder of text files or any scraper.

vLLM's own way to more metrics, a stat-logger plugin, is not taken: one that is merely installed switches
vLLM's statistics on, also where the server was started with `--disable-log-stats`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .status import memory_of

HELP = {
    "flymono_on": "1 where this rank's layers run on the kernels",
    "flymono_fault": "1 for each reason that switched the kernels off",
    "flymono_state_age_seconds": "since the rank wrote its state",
    "flymono_layers": "layers by path",
    "flymono_steps_total": "decided steps (replays of a captured graph are none)",
    "flymono_steps_taken_total": "decided steps that ran on the kernels",
    "flymono_steps_declined_total": "decided steps that did not, by reason",
    "flymono_bytes": "memory of a rank by use",
}
"""Metric -> what it says; those that end in _total are counters, the others gauges."""

Sample = tuple[str, dict[str, str], float]


def text(ranks: Sequence[Mapping[str, Any]], now: float) -> str:
    """The exposition of all ranks: each metric once, with its samples behind it."""
    samples = [sample for rank in ranks for sample in samples_of(rank, now)]
    lines = list[str]()
    for name, says in HELP.items():
        own = [_line(*s) for s in samples if s[0] == name]
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# HELP {name} {says}", f"# TYPE {name} {kind}", *own] if own else []
    return "\n".join(lines) + "\n"


def samples_of(state: Mapping[str, Any], now: float) -> Iterator[Sample]:
    """What one rank's state says."""
    rank = {"rank": str(state["rank"])}
    yield "flymono_on", {**rank, "bundle": str(state["bundle"]), "plan": state["plan"]}, int(state["on"])
    yield "flymono_state_age_seconds", rank, max(0.0, now - state["time"])
    for code in state["faults"]:
        yield "flymono_fault", {**rank, "code": code}, 1
    for path, count in state["paths"].items():
        yield "flymono_layers", {**rank, "path": path}, count
    for runner, steps in state["steps"].items():
        own = {**rank, "runner": runner}
        yield "flymono_steps_total", own, steps["steps"]
        yield "flymono_steps_taken_total", own, steps["taken"]
        for code, count in steps.get("reasons", {}).items():
            yield "flymono_steps_declined_total", {**own, "code": code}, count
    for use, size in memory_of(state).items():
        yield "flymono_bytes", {**rank, "use": use}, size


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{k}="{_escaped(v)}"' for k, v in labels.items())
    return f"{name}{{{inside}}} {value:g}" if isinstance(value, float) else f"{name}{{{inside}}} {value}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
