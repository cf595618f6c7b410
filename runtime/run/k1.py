"""Running K1: plan, build, bind, launch, judge; every step can be had on its own.

Invariants
 - The reference sees the published weights and the case, never what was prepared for the device; the
   kernel sees the device copies, never the reference.
 - The comparison is stage by stage from the kernel's own hand-offs, then end to end: an error names
   its stage.
 - The device is an argument: nothing here knows whether it is an emulator.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from flymono.reference.case import K1Case
from flymono.reference.compare import Launch as Judged
from flymono.reference.compare import compare_end_to_end, compare_stages
from flymono.reference.sizes import K1Sizes, SumOrder
from flymono.reference.verdict import Verdict
from flymono.reference.weights import K1Weights
from flymono.runtime.devices.base import Counters, Device
from flymono.runtime.plan import K1Plan
from flymono.runtime.run.bind import Bound, bind, to_launch
from flymono.runtime.run.result import ArgumentTraffic, RunResult, spans_of
from flymono.runtime.weights import device_copies
from flymono.specs.schema import ModelSpec, NumericsSpec

if TYPE_CHECKING:
    from flymono.gen.store import Artefact

_NOT_OUTPUTS = frozenset({"scratch", "epoch", "tl"})


@dataclass(frozen=True)
class Launched:
    """A launch that has been made: its buffers after it, and what the device counted."""

    bound: Bound
    counters: Counters
    tag: int

    def outputs(self, plan: K1Plan) -> dict[str, torch.Tensor]:
        """Buffers that the kernel wrote, by ABI name."""
        names = [a.name for a in plan.abi.arguments if a.written and a.name not in _NOT_OUTPUTS]
        return {name: self.bound.tensor(name) for name in names}

    def regions(self, plan: K1Plan) -> dict[str, torch.Tensor]:
        """Scratch regions as bytes, by name."""
        scratch = self.bound.tensor("scratch")
        return {r.name: scratch[r.offset : r.end] for r in plan.scratch.regions}


def arguments_of(
    plan: K1Plan, case: K1Case, weights: K1Weights, epoch: int = 3
) -> dict[str, torch.Tensor | int]:
    """Every launch argument that a case and a layer's weights give (the rest is the runner's).

    Weights become the device's copies here: exact, or WeightsError says which tensor and block are not.
    """
    given: dict[str, torch.Tensor | int] = {}
    copies = device_copies(weights, fp8=plan.strategy.fp8, layout=plan.strategy.weight_layout)
    given.update(
        {k: v.clone() for k, v in copies.items()}
    )  # a copy as stored would be the reference's own tensor
    known = {a.name for a in plan.abi.arguments}
    given.update({k: v.clone() for k, v in case.tensors().items() if k in known})
    for name in ("swa_stride", "swa_block", "comp_block", "bt_stride"):
        given[name] = int(getattr(case, name))
    words = torch.zeros(plan.abi["epoch"].shape, dtype=torch.int32)
    words[plan.epoch.epoch] = epoch
    given["epoch"] = words
    given["scratch"] = used_scratch(plan, epoch, case.seed)
    return given


def used_scratch(plan: K1Plan, epoch: int, seed: int) -> torch.Tensor:
    """Scratch as the step before `epoch` left it: other values everywhere, under that step's tag.

    Epoch 0 is the first launch, which finds zeros. A wait that takes what it finds, or a flag that
    is read too early, then gives wrong results instead of the right ones of the same inputs.
    """
    scratch = torch.zeros(plan.scratch.total, dtype=torch.uint8)
    if epoch == 0:
        return scratch
    generator = torch.Generator().manual_seed(seed)
    words = scratch.view(torch.int32)
    words.copy_(torch.randint(-(2**31), 2**31 - 1, words.shape, generator=generator, dtype=torch.int64))
    for region in plan.scratch.regions:
        if region.kind != "data":
            words[region.offset // 4 + 1 : region.end // 4 : 2] = plan.tags["k1"].at(epoch - 1)
    return scratch


def launch(
    plan: K1Plan, artefact: Artefact, device: Device, given: Mapping[str, torch.Tensor | int]
) -> Launched:
    """Launch K1 once on `device` with `given` arguments; buffers that are written are changed in place."""
    bound = bind(plan, given)
    counters = device.launch(to_launch(plan, bound, artefact.hsaco, artefact.kernel, artefact.stage_ranges))
    return Launched(bound, counters, plan.tags["k1"].at(int(bound.tensor("epoch")[plan.epoch.epoch])))


def judge(
    plan: K1Plan, case: K1Case, weights: K1Weights, model: ModelSpec, numerics: NumericsSpec, done: Launched
) -> tuple[Verdict, ...]:
    """Verdicts of every stage, then end to end."""
    sizes, order = K1Sizes.of(model, plan.key.tp), SumOrder(gemv=plan.strategy.gemv)
    judged = Judged(done.outputs(plan), done.regions(plan), done.tag)
    stages = compare_stages(case, weights, sizes, order, numerics, judged)
    return (*stages, *compare_end_to_end(case, weights, sizes, order, numerics, judged))


def _traffic(plan: K1Plan, counters: Counters) -> tuple[ArgumentTraffic, ...]:
    rows = []
    planned = {t.name: t for t in plan.cost.traffic}
    for arg in plan.abi.arguments:
        if arg.type == "ptr" and arg.name in counters.traffic:
            seen, plan_row = counters.traffic[arg.name], planned.get(arg.name)
            stated = plan_row.requested_read + plan_row.requested_write if plan_row else 0
            rows.append(
                ArgumentTraffic(arg.name, stated, seen.load_requested, seen.load_unique, seen.store_requested)
            )
    return tuple(rows)


def _digests(outputs: Mapping[str, torch.Tensor]) -> dict[str, str]:
    def of(t: torch.Tensor) -> str:
        return hashlib.sha256(t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()

    return {name: of(value) for name, value in outputs.items()}


def result_of(
    plan: K1Plan,
    artefact: Artefact,
    device: str,
    seed: int,
    source: str,
    done: Launched,
    verdicts: tuple[Verdict, ...],
) -> RunResult:
    """Everything that a report shows of one run."""
    r = artefact.resources
    figures = {
        "vgprs": r.vgprs, "sgprs": r.sgprs, "lds_bytes": r.lds_bytes, "spills": r.vgpr_spills + r.sgpr_spills,
        "instructions": r.instructions,
    }  # fmt: skip
    waits = tuple((s.producer, s.stage, s.region) for s in plan.sites)
    return RunResult(
        build=plan.key.id, device=device, seed=seed, source=source, verdicts=verdicts, resources=figures,
        counters=done.counters, traffic=_traffic(plan, done.counters), spans=spans_of(done.counters),
        waits=waits, digests=_digests(done.outputs(plan)),
    )  # fmt: skip
