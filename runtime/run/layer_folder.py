"""A layer's case in a folder: inputs and caches, published weights with the step's experts, outputs of every
launch.

`inputs.safetensors` holds what K1 and K2 read, the same on all ranks; `weights.safetensors` is a shard with
the layer's published names, so that it serves anywhere that a shard does.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from torch import Tensor

from flymono.reference.layer_case import LayerCase
from flymono.runtime.plan import K1Plan
from flymono.runtime.run import case_file, folder
from flymono.runtime.run.layer import Layer, LayerDone
from flymono.runtime.weights import save_layer
from flymono.specs.schema import ModelSpec


def save_inputs(path: Path, layer: Layer, experts: Iterable[int]) -> None:
    """Write the case and the weights with `experts`, each file whole or not at all."""
    case = layer.case
    values: dict[str, Tensor | int] = dict(case.k1.tensors())
    values |= {n: int(getattr(case.k1, n)) for n in ("swa_stride", "swa_block", "comp_block", "bt_stride")}
    values |= {"comp": case.comp, "comp_stride": case.comp_stride}
    facts = {"seed": case.k1.seed, "layer": case.layer, "rank": 0}
    numbers = sorted(set(experts))
    save_layer(path / folder.WEIGHTS, layer.weights, numbers, f"layer {case.layer}, experts {numbers}")
    folder.save(path, "inputs", layer.k1.key.id, values, facts)


def save_outputs(path: Path, done: LayerDone) -> None:
    """Write what every launch left: rank 0's outputs by name, of the other ranks what is their own."""
    for step in done.steps:
        plan, values = step.kernel.plan, dict[str, Tensor | int]()
        values |= step.done[0].outputs(plan)
        if "q" in values:
            values |= {f"q.rank{r}": d.outputs(plan)["q"] for r, d in enumerate(step.done) if r}
        name = f"outputs-layer{done.layer.case.layer}-{plan.key.kind}"
        folder.save(path, name, plan.key.id, values, {})


def restore(plan: K1Plan, model: ModelSpec, saved: folder.Saved) -> LayerCase:
    """The case of a folder; FolderError lists what is missing or wrong."""
    case, faults = case_file.restore_case(plan, saved), list[str]()
    comp, stride = saved.values.get("comp"), saved.values.get("comp_stride")
    if not isinstance(comp, Tensor) or comp.dtype.itemsize != 1:
        faults.append("comp is missing, or no bytes")
    if not isinstance(stride, int):
        faults.append("comp_stride is missing")
    elif isinstance(comp, Tensor) and case.ratio and (stride < 1 or comp.numel() % stride):
        faults.append(f"comp has {comp.numel()} bytes, which is no multiple of comp_stride {stride}")
    case_file.refuse(plan.key.id, faults)
    assert isinstance(comp, Tensor) and isinstance(stride, int)
    return LayerCase(model, saved.facts["layer"], case, comp, stride)
