"""What `flymono run ffn` runs: the FFN launch on all ranks, from options or from a folder of --save.

The folder holds the launch's inputs (every rank's partial in one tensor), a shard with the layer's published
names and the step's experts, and what every rank's launch left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from flymono.reference.ffn import Ffn, FfnCase
from flymono.reference.layer_case import make_ffn_case
from flymono.reference.layer_weights import WholeLayer
from flymono.runtime.plan import FfnPlan, plan_of
from flymono.runtime.run import case_file, ffn, folder
from flymono.runtime.run.bind import DTYPES
from flymono.runtime.run.checks import check_layer
from flymono.runtime.run.command import the_model
from flymono.runtime.run.devices import device_of
from flymono.runtime.run.group import Given, Group, Kernel, Launched
from flymono.runtime.run.layer_options import (
    LayerOptions,
    check_options,
    ffn_key,
    open_folder,
    weights_of,
)
from flymono.runtime.run.result import Ran
from flymono.runtime.run.results import result_of
from flymono.runtime.run.steps import Steps
from flymono.runtime.weights import read_layer, save_layer
from flymono.specs import Specs, load

INPUTS = ("part", "res_in", "post_in", "comb_in", "pre_in")


@dataclass(frozen=True)
class Ready:
    """An FFN launch that only needs a device."""

    plan: FfnPlan
    case: FfnCase
    weights: WholeLayer
    source: str


def run_ffn(options: LayerOptions, specs: Specs | None = None) -> Iterator[Ran]:
    """Run the FFN launch of the options."""
    from flymono.gen import api

    specs, steps = specs or load(), Steps(f"FFN on {options.arch}")
    with steps.step("read specs and weights, plan"):
        ready = prepare_ffn(options, specs)
    plan, key = ready.plan, ready.plan.key
    steps.title = key.id
    with steps.step("generate, compile, check"):
        artefact = api.build(key, specs)
    device = device_of(options, specs, key.tp, steps.count)
    with steps.step(f"execute on {key.tp} ranks and compare with the reference"):
        chosen = selected(ready)
        if options.save is not None:
            save_inputs(options.save, ready, chosen)
        kernel = Kernel(plan, artefact, given(ready, chosen))
        done = Group.of([plan], key.tp, seed=options.seed).launch(device, [kernel])[0]
        if options.save is not None:
            save_outputs(options.save, plan, done)
        own = [ready.weights.ffn(key.tp, r) for r in range(key.tp)]
        verdicts = ffn.judge(plan, ready.case, own, ready.weights.sizes(key.tp), specs, done)
    yield Ran(key.id, (result_of(kernel, device.name, options.seed, ready.source, done, verdicts),))


def prepare_ffn(options: LayerOptions, specs: Specs) -> Ready:
    """Plan, case and weights, nothing built; raises what is wrong with the options or their folder."""
    if options.inputs is not None:
        return _from_folder(options, options.inputs, specs)
    check_options(options, specs, "ffn")
    model, key = the_model(specs), ffn_key(options, specs)
    plan, number = plan_of(specs, key), options.layer_of(model)
    assert isinstance(plan, FfnPlan)
    case = make_ffn_case(model, rows=key.rows, tp=key.tp, fp8=plan.strategy.fp8, seed=options.seed,
                         padded=options.padded)  # fmt: skip
    source = str(options.weights or f"seeded weights of layer {number}")
    return Ready(plan, case, weights_of(options, model, number), source)


def selected(ready: Ready) -> tuple[int, ...]:
    """Experts that the step may take."""
    tp = ready.plan.key.tp
    sizes, own = ready.weights.sizes(tp), [ready.weights.ffn(tp, r) for r in range(tp)]
    routing = Ffn(ready.case, own, replace(sizes, picks=sizes.picks + 1), ffn.order_of(ready.plan)).routes()
    return ffn.selected(routing, sizes.picks, ready.weights)


def given(ready: Ready, chosen: tuple[int, ...]) -> tuple[Given, ...]:
    """What each rank gives to the launch, with the experts `chosen` in place."""
    tp = ready.plan.key.tp
    own = [ready.weights.ffn(tp, r) for r in range(tp)]
    return ffn.arguments_of(ready.plan, ready.case, own, chosen, ready.weights.sizes(tp))


def save_inputs(path: Path, ready: Ready, experts: tuple[int, ...]) -> None:
    """Write the case and the weights with `experts`, each file whole or not at all."""
    case, layer = ready.case, ready.weights.layer
    save_layer(path / folder.WEIGHTS, ready.weights, experts, f"layer {layer}, experts {sorted(experts)}")
    values = {name: getattr(case, name) for name in INPUTS}
    folder.save(path, "inputs", ready.plan.key.id, values, {"seed": case.seed, "layer": layer})


def save_outputs(path: Path, plan: FfnPlan, done: tuple[Launched, ...]) -> None:
    """Write what the launch left on rank 0; all ranks must end alike, which the verdicts say."""
    folder.save(path, "outputs", plan.key.id, done[0].outputs(plan), {})


def _from_folder(options: LayerOptions, path: Path, specs: Specs) -> Ready:
    model = the_model(specs)
    saved, key, number = open_folder(
        options,
        specs,
        "ffn",
        lambda key, _: plan_of(specs, key),
        lambda _, number: check_layer(number, model),
    )
    plan = plan_of(specs, key)
    assert isinstance(plan, FfnPlan)
    case = restore(plan, saved)
    return Ready(plan, case, read_layer(path / folder.WEIGHTS, model, number), str(path))


def restore(plan: FfnPlan, saved: folder.Saved) -> FfnCase:
    """The case of a folder; FolderError lists what is missing or wrong."""
    key = plan.key
    faults = [f for name in INPUTS if (f := _fault(plan, name, saved.values.get(name)))]
    case_file.refuse(key.id, faults)
    tensors = {name: saved.values[name] for name in INPUTS}
    return FfnCase(key.rows, key.tp, plan.strategy.fp8, saved.facts.get("seed", 0), **tensors)  # type: ignore[arg-type]


def _fault(plan: FfnPlan, name: str, value: torch.Tensor | int | None) -> str | None:
    arg = plan.abi[name]
    shape = (plan.key.tp, *arg.shape) if name == "part" else tuple(arg.shape)
    if not isinstance(value, torch.Tensor):
        return f"{name} is missing" if value is None else f"{name}: a tensor is needed"
    if value.dtype != DTYPES[arg.dtype]:
        return f"{name}: {value.dtype}, the ABI says {arg.dtype}"
    return None if tuple(value.shape) == shape else f"{name}: {list(value.shape)}, needed is {list(shape)}"
