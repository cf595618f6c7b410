"""A layer's plan as one HTML page: of each launch a heat map (workgroups x stages), hand-offs, LDS, bytes.

Everything shown is the plan's; `runtime/plan/view.py` says what belongs together.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..plan.layer import handoffs
from ..plan.view import moved, passed, place_text, placed, pushed, same_limit, terms
from .layer_figures import bytes_figure, handoff_figure, occupancy_figure
from .layer_memory import lds_figure, peer_figure, scratch_figure
from .page import Figures, render

if TYPE_CHECKING:
    from ..plan import KernelPlan, LayerPlan

_TEMPLATE = Path(__file__).with_name("layer.html.j2")


def layer_html(plan: LayerPlan) -> str:
    """The whole page."""
    figures = Figures()
    launches = [_section(one, figures) for one in plan.plans]
    holder = plan.plans[-1]  # K2's scratch is the whole layer's, and its peer buffer the only one
    memory = [
        ("Scratch, by the launches that a region lives through", scratch_figure(holder.scratch)),
        ("A half of the peer buffer", peer_figure(holder)),
    ]
    return render(
        _TEMPLATE,
        figures,
        plan=plan,
        launches=launches,
        passed=passed(plan),
        holder=holder,
        peer=getattr(holder, "peer", None),
        memory=figures.blocks(memory),
        one_limit=same_limit(plan.plans),
        total_bytes=sum(p.cost.bound.hbm_bytes for p in plan.plans),
        total_ns=sum(p.cost.bound.ns for p in plan.plans),
    )


def _section(plan: KernelPlan, figures: Figures) -> dict[str, object]:
    """One launch: its figures, and rows of its tables that are not the plan's own."""
    found, queued = handoffs(plan), any(row.queued for row in placed(plan))
    blocks = [
        (
            "Tasks: workgroups x stages",
            occupancy_figure(plan),
            "A column is a workgroup, a row a stage in program order; point at a cell for its tasks."
            + (" The column on the right counts tasks that a queue hands out." if queued else ""),
        ),
        (
            "Hand-offs",
            handoff_figure(found),
            "From the stage that writes to the stage that waits; a band grows with the logarithm of its "
            "bytes. Blue: pairs that carry the tag themselves; orange: data behind flags; red: the peer "
            "buffer; brown: the epoch buffer.",
        ),
        ("LDS, one struct at a time", lds_figure(plan.lds), ""),
        (
            "Bytes moved",
            bytes_figure(plan),
            "Each byte once, and what lanes ask for. Scratch stays within the Infinity Cache.",
        ),
    ]
    return {
        "plan": plan,
        "blocks": [(title, figures.html(f), note) for title, f, note in blocks if f is not None],
        "handoffs": [(h, site) for h, site in zip(found, plan.sites, strict=True)],
        "places": {s.name: place_text(s) if s.tasks else "-" for s in plan.stages},
        "moved": moved(plan),
        "pushed": pushed(plan),
        "terms": terms(plan),
    }
