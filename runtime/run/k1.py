"""Running K1: what a case and a layer's weights give to the launch, and how its results are judged.

Invariants
 - The reference sees the published weights and the case, never what was prepared for the device; the
   kernel sees the device copies, never the reference.
 - The comparison is stage by stage from the kernel's own hand-offs, then end to end: an error names
   its stage.
 - The device is an argument: nothing here knows whether it is an emulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from flymono.reference.case import K1Case
from flymono.reference.compare import Comparison, compare_end_to_end, compare_stages
from flymono.reference.compare import Launch as Judged
from flymono.reference.sizes import K1Sizes, SumOrder
from flymono.reference.verdict import Verdict
from flymono.reference.weights import K1Weights
from flymono.runtime.devices.base import Device
from flymono.runtime.plan import K1Plan
from flymono.runtime.run.group import EPOCH, Given, Group, Kernel, Launched
from flymono.runtime.weights import device_copies
from flymono.specs.schema import ModelSpec, NumericsSpec

if TYPE_CHECKING:
    from flymono.gen.store import Artefact

SCALARS = ("swa_stride", "swa_block", "comp_block", "bt_stride")


def arguments_of(plan: K1Plan, case: K1Case, weights: K1Weights) -> dict[str, torch.Tensor | int]:
    """Every launch argument that a case and a layer's weights give (the rest is the runner's).

    Weights become the device's copies here: exact, or WeightsError says which tensor and block are not.
    """
    copies = device_copies(weights, fp8=plan.strategy.fp8, layout=plan.strategy.weight_layout)
    known = {a.name for a in plan.abi.arguments}
    inputs = {k: v for k, v in case.tensors().items() if k in known}
    # a copy as stored would be the reference's own tensor
    given: dict[str, torch.Tensor | int] = {k: v.clone() for k, v in {**copies, **inputs}.items()}
    return given | {name: int(getattr(case, name)) for name in SCALARS}


def launch(
    plan: K1Plan, artefact: Artefact, device: Device, given: Given, epoch: int = EPOCH, seed: int = 0,
    checked: bool = True,
) -> Launched:  # fmt: skip
    """Launch K1 once on one rank; buffers that are written are changed in place. `checked` as in `Group`."""
    group = Group.of([plan], 1, epoch, seed)
    return group.launch(device, [Kernel(plan, artefact, (given,))], checked)[0][0]


def judge(
    plan: K1Plan, case: K1Case, weights: K1Weights, model: ModelSpec, numerics: NumericsSpec, done: Launched
) -> tuple[Verdict, ...]:
    """Verdicts of every stage, then end to end."""
    sizes, order = K1Sizes.of(model, plan.key.tp), SumOrder(gemv=plan.strategy.gemv)
    judged = Judged(done.outputs(plan), done.regions(plan), done.tag)
    stages = compare_stages(case, weights, sizes, order, numerics, judged)
    return (*stages, *compare_end_to_end(case, weights, sizes, order, numerics, judged))


def judge_ranks(
    plan: K1Plan, case: K1Case, weights: Sequence[K1Weights], model: ModelSpec, numerics: NumericsSpec,
    done: Sequence[Launched],
) -> tuple[Verdict, ...]:  # fmt: skip
    """Verdicts of K1 on all ranks: rank 0 in full, of the others the stages that are a rank's own (their
    queries); everything else must have rank 0's bits, which `same_bits` judges.
    """
    sizes, order = K1Sizes.of(model, plan.key.tp), SumOrder(gemv=plan.strategy.gemv)
    verdicts = list(judge(plan, case, weights[0], model, numerics, done[0]))
    for number, (own, rank) in enumerate(zip(weights[1:], done[1:], strict=True), 1):
        judged = Judged(rank.outputs(plan), rank.regions(plan), rank.tag)
        found = Comparison(case, own, sizes, order, numerics, judged).wq_b()
        verdicts += [replace(v, output=f"{v.output} of rank {number}") for v in found]
    return (*verdicts,)
