"""A layer drawn in text: each launch's stages from top to bottom, its workgroups from left to right."""

from __future__ import annotations

from rich.console import Console

from ..runtime.plan import KernelPlan, LayerPlan
from ..runtime.plan.layer import Handoff, handoffs, occupancy

COLUMNS = 64
SHADES = " 123456789"


def print_layer(plan: LayerPlan, console: Console | None = None) -> None:
    """Print the drawing and the bytes of every launch."""
    out = console or Console()
    kind = plan.kind
    lines = [f"layer {kind.layer}: {kind.why}", f"launches: {', '.join(p.key.id for p in plan.plans)}", ""]
    for one in plan.plans:
        lines += _launch(one)
    total = sum(p.cost.bound.hbm_bytes for p in plan.plans)
    lines.append(f"layer: {total:,} bytes of HBM, at least {sum(p.cost.bound.ns for p in plan.plans):,} ns")
    for line in lines:
        out.print(line, highlight=False, markup=False, soft_wrap=True)


def _launch(plan: KernelPlan) -> list[str]:
    each = -(-plan.grid // COLUMNS)
    head = [
        f"{plan.key.id}: {plan.grid} workgroups, {each} a column; a digit is the most tasks of one of them",
        f"{'':10} {'tasks':>6} |{'0':<{COLUMNS - 4}}{plan.grid - 1:>4}|",
    ]
    found = handoffs(plan)
    for stage in plan.stages:
        if not stage.tasks:
            continue
        head += [f"{'':17} v {_text(h)}" for h in found if h.stage == stage.name]
        bar = "".join(SHADES[min(n, 9)] for n in occupancy(stage, COLUMNS)).ljust(COLUMNS)
        queue = f" queue: {stage.queue.rule}" if stage.queue else ""
        head.append(f"{stage.name:<10} {stage.tasks:>6} |{bar}|{queue}")
    bound = plan.cost.bound
    weights = [t for t in plan.cost.traffic if plan.abi[t.name].owner == "layer" and t.unique_read > 1 << 20]
    notes = dict.fromkeys(t.note for t in weights if t.note)
    read = ", ".join(f"{t.name} {t.unique_read:,}" for t in weights) + "".join(f"; {note}" for note in notes)
    return [
        *head,
        f"weights    {read}",
        f"bound      {bound.hbm_bytes:,} bytes of HBM, {bound.ns:,} ns by {bound.by}",
        "",
    ]


def _text(h: Handoff) -> str:
    where = "" if h.space == "scratch" else f", {h.space} buffer"
    return f"{h.producer} -> {h.stage}: {h.region}, {h.bytes:,} bytes behind {h.kind}{where}"
