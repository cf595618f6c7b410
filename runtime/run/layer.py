"""A decoder layer on all ranks of a group: K1, what stands between the launches, K2.

Invariants
 - A launch's inputs are the buffers that the launch before it left on the same rank; the host copies
   nothing between them. What vLLM runs between K1 and K2 of an index layer (compressor, indexer) is the
   reference's: the step's records from K1's own output, and lists that the case holds.
 - Each launch is judged from what it was itself given, so that an error names its launch and stage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from flymono.gen.store import Artefact
from flymono.reference.compressor import CompressorWeights
from flymono.reference.front import key_table
from flymono.reference.k2 import K2Case
from flymono.reference.layer import compress
from flymono.reference.layer_case import LayerCase
from flymono.reference.layer_sizes import LayerSizes
from flymono.reference.layer_weights import BackWeights, FfnWeights, WholeLayer
from flymono.reference.verdict import Judge, Verdict
from flymono.reference.weights import K1Weights
from flymono.runtime.devices.base import Device
from flymono.runtime.plan import K1Plan, K2Plan, KernelPlan, LayerPlan
from flymono.runtime.run import ffn, k1, k2
from flymono.runtime.run.group import Given, Group, Kernel, Launched
from flymono.specs import Specs
from flymono.specs.findings import UserError

SEAM = ("res_out", "post_out", "comb_out", "pre_out")


@dataclass(frozen=True)
class Layer:
    """A layer that only needs a device: plans, code objects by build id, a case and weights."""

    specs: Specs
    plan: LayerPlan
    artefacts: dict[str, Artefact]
    case: LayerCase
    weights: WholeLayer
    compressor: CompressorWeights | None = None

    @property
    def k1(self) -> K1Plan:
        """The plan of the first launch."""
        assert isinstance(self.plan.plans[0], K1Plan)
        return self.plan.plans[0]

    @property
    def k2(self) -> K2Plan:
        """The plan of the last launch."""
        assert isinstance(self.plan.plans[-1], K2Plan)
        return self.plan.plans[-1]

    @property
    def tp(self) -> int:
        """Ranks."""
        return self.k1.key.tp

    @property
    def sizes(self) -> LayerSizes:
        """A rank's sizes."""
        return self.weights.sizes(self.tp)

    def kernel(self, plan: KernelPlan, given: Sequence[Given]) -> Kernel:
        """A launch of the layer."""
        return Kernel(plan, self.artefacts[plan.key.id], tuple(given))


@dataclass(frozen=True)
class Step:
    """One launch of a layer that was made, and its judgement."""

    kernel: Kernel
    done: tuple[Launched, ...]
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True)
class LayerDone:
    """A layer that ran: its launches in order, and the case of K2 as the launches before it left it."""

    layer: Layer
    steps: tuple[Step, ...]
    k2case: K2Case

    @property
    def ok(self) -> bool:
        """Whether every output of every launch is right."""
        return all(v.ok for step in self.steps for v in step.verdicts)

    @property
    def last(self) -> Step:
        """K2."""
        return self.steps[-1]

    @property
    def ffn(self) -> Any:
        """Rank 0's outputs of the layer by name, in the shapes of the reference."""
        return _shaped(self.last.done[0].outputs(self.layer.k2), self.layer)

    def handed_on(self) -> tuple[dict[str, Tensor], ...]:
        """What the next layer's K1 takes on each rank, under its names: the buffers themselves."""
        names = {"pend": "out"} | {n.replace("_out", "_in"): n for n in SEAM}
        outs = [d.outputs(self.layer.k2) for d in self.last.done]
        return tuple({new: out[old] for new, old in names.items()} for out in outs)


def _shaped(outputs: dict[str, Tensor], layer: Layer) -> SimpleNamespace:
    rows, sizes = layer.k1.key.rows, layer.sizes
    shapes = {
        "out": (rows, sizes.hidden), "res_out": (rows, sizes.streams, sizes.hidden),
        "post_out": (rows, sizes.streams),
        "comb_out": (rows, sizes.streams, sizes.streams), "pre_out": (rows, sizes.streams),
        "q": (rows, sizes.heads, sizes.head_dim), "normed_out": (rows, sizes.hidden),
    }  # fmt: skip
    return SimpleNamespace(**{n: v.reshape(shapes[n]) if n in shapes else v for n, v in outputs.items()})


def k1_given(layer: Layer, weights: Sequence[K1Weights], carried: Sequence[Given] = ()) -> tuple[Given, ...]:
    """K1's arguments on each rank; `carried` (LayerDone.handed_on) replaces the case's inputs."""
    given = []
    for rank, shares in enumerate(weights):
        own = k1.arguments_of(layer.k1, layer.case.k1, shares)
        given.append({**own, **(carried[rank] if carried and layer.case.k1.fold else {})})
    return tuple(given)


def run_layer(
    layer: Layer, device: Device, group: Group, carried: Sequence[Given] = (),
    chosen: Callable[[tuple[int, ...]], None] | None = None,
) -> LayerDone:  # fmt: skip
    """Launch a layer on all ranks and judge every stage. The group's epoch has gone on by one afterwards.

    `chosen` is told the experts that the step may take, before K2 runs on them.
    """
    tp, weights = layer.tp, layer.weights
    first = _run_k1(layer, device, group, carried)
    between, case = _between(layer, device, group, first)
    left = [_shaped(d.outputs(layer.k1), layer) for d in first.done]
    k2case = case.k2(left, layer.k2.key.index)
    ranks = range(tp)
    back, tail = [weights.back(tp, r) for r in ranks], [weights.ffn(tp, r) for r in ranks]
    selected = selected_of(layer, k2case, back, tail)
    weights.keep_experts(len(selected))
    if chosen is not None:
        chosen(selected)
    copies, given = ffn.weights_given(layer.k2, tail, selected, layer.sizes), []
    for r in ranks:
        outs = first.done[r].outputs(layer.k1)
        handed = {new: outs[old] for new, old in k2.HANDED_ON.items() if old in outs}
        handed |= {n: v for step in between for n, v in step.done[r].outputs(step.kernel.plan).items()}
        given.append(k2.arguments_of(layer.k2, k2case, r, back[r], copies[r], layer.sizes, handed))
    kernel = layer.kernel(layer.k2, given)
    done = group.launch(device, [kernel])[0]
    refuse_faults(group, kernel.plan)
    verdicts = k2.judge(layer.k2, k2case, back, tail, layer.sizes, layer.specs, done)
    return LayerDone(layer, (first, *between, Step(kernel, done, verdicts)), k2case)


def _run_k1(layer: Layer, device: Device, group: Group, carried: Sequence[Given]) -> Step:
    weights = [layer.weights.k1(layer.tp, r) for r in range(layer.tp)]
    kernel = layer.kernel(layer.k1, k1_given(layer, weights, carried))
    done = group.launch(device, [kernel])[0]
    refuse_faults(group, kernel.plan)
    model, numerics = layer.case.model, layer.specs.numerics["k1"]
    verdicts = k1.judge_ranks(layer.k1, layer.case.k1, weights, model, numerics, done)
    return Step(kernel, done, (*verdicts, *ffn.same_bits(layer.k1, done, ("q",))))


def _between(layer: Layer, device: Device, group: Group, first: Step) -> tuple[tuple[Step, ...], LayerCase]:
    """The compressor's records, then the key list where the arch makes it in a launch of its own."""
    case = layer.case
    if layer.compressor is not None:
        normed = _shaped(first.done[0].outputs(layer.k1), layer).normed_out
        case = compress(case, normed, layer.compressor, layer.sizes)
    return tuple(_key_list(layer, p, device, group, first) for p in layer.plan.plans[1:-1]), case


def _key_list(layer: Layer, plan: KernelPlan, device: Device, group: Group, first: Step) -> Step:
    """The launch on K1's own metadata, judged as K1's key table is in other layers."""
    read = [a.name for a in plan.abi.arguments if not a.written]
    kernel = layer.kernel(plan, [{n: d.bound.values[n] for n in read} for d in first.done])
    done = group.launch(device, [kernel])[0]
    judge, (kt, klen) = Judge(layer.specs.numerics["k1"], "kt"), key_table(layer.case.k1, layer.sizes)
    outs = [d.outputs(plan) for d in done]
    got = {n: torch.stack([o[n] for o in outs]) for n in ("kt", "klen")}
    want = {"kt": kt.reshape(-1), "klen": klen}
    return Step(kernel, done, tuple(judge.bits(n, got[n], want[n].expand_as(got[n])) for n in got))


def selected_of(
    layer: Layer, case: K2Case, back: Sequence[BackWeights], tail: Sequence[FfnWeights]
) -> tuple[int, ...]:
    """Experts that must be in place: the step's, and the next best of each row, which a kernel may take
    instead where two scores are nearly equal."""
    sizes = layer.sizes
    routing = k2.routes(layer.k2, case, back, tail, replace(sizes, picks=sizes.picks + 1))
    return ffn.selected(routing, sizes.picks, layer.weights)


class LaunchFault(UserError):
    """A launch whose waits gave up."""

    exit_code = 1


def refuse_faults(group: Group, plan: KernelPlan) -> None:
    """LaunchFault that names every rank and wait that gave up."""
    if reports := group.faults([plan]):
        raise LaunchFault("\n".join(one.render() for one in reports))
