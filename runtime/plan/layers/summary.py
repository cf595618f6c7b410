"""A plan in the words of a log: a line a group of layers, and the error of a server that does not start."""

from __future__ import annotations

from dataclasses import dataclass

from ..unsupported import Reason, Unsupported
from .codes import listed
from .host import Path
from .model import LayerPath, ModelPlan

WORDS = {
    Path.WHOLE: "whole, two launches",
    Path.FFN: "vLLM's attention, then the FFN launch",
    Path.STOCK: "vLLM's path",
}


@dataclass(frozen=True)
class Line:
    """A line of a log, and whether it is a warning."""

    text: str
    warning: bool = False


def check_starts(plan: ModelPlan, nearest: str | None = None) -> None:
    """Raise Unsupported with every reason that stops a strict server."""
    if not plan.starts:
        subject = f"serving {plan.host.model} on {plan.host.arch} TP{plan.host.tp}"
        raise Unsupported(subject, plan.stops, nearest)


def startup_lines(plan: ModelPlan) -> tuple[Line, ...]:
    """What rank 0 logs: layers by path, each group with its reasons and what to do, then gaps of the
    bundle. That no layer at all runs on a kernel is a warning, for every rank."""
    off = plan.count(Path.STOCK) == len(plan.layers)
    counts = ", ".join(f"{plan.count(path)} {path}" for path in Path)
    where = f"{plan.host.arch} TP{plan.host.tp}, steps of up to {plan.limit} rows"
    head = f"{len(plan.layers)} layers on {where}: {counts}"
    lines = [Line(head, off)]
    lines += [Line(_group(layers), off) for layers in grouped(plan)]
    return tuple(lines + [Line(_said(note), True) for note in plan.notes])


def grouped(plan: ModelPlan) -> tuple[tuple[LayerPath, ...], ...]:
    """Layers with the same path and the same codes, in the order of their first layers."""
    groups: dict[object, list[LayerPath]] = {}
    for one in plan.layers:
        groups.setdefault((one.path, frozenset(r.code for r in one.reasons)), []).append(one)
    return tuple(map(tuple, groups.values()))


def _group(layers: tuple[LayerPath, ...]) -> str:
    first = layers[0]
    why = "; ".join(map(_said, first.reasons))
    return f"layers {listed([one.layer for one in layers])}: {WORDS[first.path]}" + (
        f": {why}" if why else ""
    )


def _said(one: Reason) -> str:
    return f"{one.code}: {one.text} (fix: {one.fix})"
