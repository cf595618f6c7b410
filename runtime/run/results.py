"""From a launch that was made and judged to the result that reports read."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence

import torch

from flymono.reference.verdict import Verdict
from flymono.runtime.devices.base import Counters
from flymono.runtime.plan import KernelPlan
from flymono.runtime.run.group import Kernel, Launched
from flymono.runtime.run.result import ArgumentTraffic, RunResult, spans_of


def result_of(
    kernel: Kernel, device: str, seed: int, source: str, done: Sequence[Launched], verdicts: Sequence[Verdict]
) -> RunResult:
    """Everything that a report shows of one launch on all ranks: instructions of all of them; bytes and the
    time line of rank 0, since a plan speaks of one."""
    plan, r = kernel.plan, kernel.artefact.resources
    figures = {
        "vgprs": r.vgprs, "sgprs": r.sgprs, "lds_bytes": r.lds_bytes, "spills": r.vgpr_spills + r.sgpr_spills,
        "instructions": r.instructions,
    }  # fmt: skip
    counters = together([rank.counters for rank in done])
    waits = tuple((s.producer, s.stage, s.region) for s in plan.sites)
    clock = [d.bound.tensor("tl").reshape(plan.grid, -1).tolist() for d in done if plan.points]
    return RunResult(
        build=plan.key.id, code=hashlib.sha256(kernel.artefact.hsaco).hexdigest(), device=device, seed=seed,
        source=source, verdicts=tuple(verdicts), resources=figures, counters=counters,
        traffic=_traffic(plan, counters), spans=spans_of(counters), waits=waits,
        digests=_digests(done[0].outputs(plan)), ranks=len(done),
        rank_stages=tuple({s: sum(ops.values()) for s, ops in d.counters.by_stage.items()} for d in done),
        points=plan.points, clock=tuple(tuple(map(tuple, rank)) for rank in clock),
    )  # fmt: skip


def together(ranks: Sequence[Counters]) -> Counters:
    """Instructions of all ranks, traffic and time line of the first."""
    by_op, by_stage = Counter[str](), dict[str, Counter[str]]()
    for one in ranks:
        by_op.update(one.by_op)
        for stage, ops in one.by_stage.items():
            by_stage.setdefault(stage, Counter()).update(ops)
    first = ranks[0]
    stages = {s: dict(c.most_common()) for s, c in by_stage.items()}
    return Counters(by_op.total(), dict(by_op.most_common()), stages,
                    first.traffic, first.timeline, first.seconds)  # fmt: skip


def _traffic(plan: KernelPlan, counters: Counters) -> tuple[ArgumentTraffic, ...]:
    rows = []
    planned = {t.name: t for t in plan.cost.traffic}
    for arg in plan.abi.arguments:
        if arg.type == "ptr" and arg.name in counters.traffic:
            seen, plan_row = counters.traffic[arg.name], planned.get(arg.name)
            stated = plan_row.requested_read + plan_row.requested_write if plan_row else 0
            once = plan_row.unique_read if plan_row else 0
            rows.append(
                ArgumentTraffic(
                    arg.name, stated, seen.load_requested, seen.load_unique, seen.store_requested, once
                )
            )
    return tuple(rows)


def digest(value: torch.Tensor) -> str:
    """sha256 of a tensor's bytes."""
    return hashlib.sha256(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()


def _digests(outputs: Mapping[str, torch.Tensor]) -> dict[str, str]:
    return {name: digest(value) for name, value in outputs.items()}
