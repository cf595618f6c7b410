"""The closest server and step that runs a layer whole: what `flymono why` proposes.

Invariant: a proposal is planned and routed like any other question, and only handed out if it is whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..deployment import KV_DTYPE
from ..keys import BuildKey
from ..placement import grid_of
from ..support import SpecSet, model_of, nearest
from .host import Host, Path, draft_window, drafts_of, needs_of
from .model import ModelPlan, model_plan
from .step import Decision, Graph, StepFacts, decide


@dataclass(frozen=True)
class Question:
    """A layer of a server in a step."""

    host: Host
    layer: int
    facts: StepFacts


@dataclass(frozen=True)
class Answer:
    """The plan, the step's decision, and the path of the question's layer in it."""

    plan: ModelPlan
    decision: Decision
    path: Path


def answer(specs: SpecSet, asked: Question, *, strict: bool = True) -> Answer:
    """Plan the server and route the step."""
    plan = model_plan(specs, asked.host, strict=strict)
    decision = decide(plan, asked.facts)
    return Answer(plan, decision, decision.path(plan[asked.layer].path))


def nearest_choice(specs: SpecSet, asked: Question) -> Question | None:
    """The question with the fewest changes that is whole; the question itself if it is, None if none is
    known."""
    model = model_of(specs, asked.host.model)
    if model is None:
        return None
    host = _host(specs, asked)
    if host is None:
        return None
    plan = model_plan(specs, host)
    built = plan.draft_widths if asked.facts.draft else plan.widths
    rows = _rows(asked.facts.rows, plan.limit, built)
    facts = StepFacts(rows, draft=asked.facts.draft, graph=_graph(asked.facts))
    if draft_window(model, drafts_of(host, model)) not in model.windows:
        host = replace(host, drafts=None)
    found = Question(host, asked.layer, facts)
    return found if answer(specs, found).path is Path.WHOLE else None


def _graph(facts: StepFacts) -> Graph:
    return "full" if facts.graph == "piecewise" else facts.graph


def _rows(rows: int, limit: int, built: tuple[int, ...] | None) -> int:
    """The width itself, the next wider one (a step is padded to it), else the widest."""
    known = built if built is not None else tuple(range(1, limit + 1))
    return min((s for s in known if s >= rows), default=max(known, default=limit))


def _host(specs: SpecSet, asked: Question) -> Host | None:
    """The server without what keeps it off the kernels, on the nearest arch and TP size that a build has."""
    host = asked.host
    build = nearest(specs, BuildKey("k1", host.arch, host.tp, 1, model=host.model))
    if build is None:
        return None
    arch, model = specs.arch[build.arch], model_of(specs, host.model)
    selects = model is not None and asked.layer in model.topology.index_source_layers
    small = host.compute_units is not None and host.compute_units < grid_of(arch).workgroups
    same = (build.arch, build.tp) == (host.arch, host.tp)
    return Host(
        build.arch,
        build.tp,
        indexer=needs_of(arch).indexer if selects else host.indexer,
        compute_units=None if small or build.arch != host.arch else host.compute_units,
        kv_dtype=KV_DTYPE,
        drafts=host.drafts,
        builds=host.builds if same else None,
        model=host.model,
    )
