"""A case in a folder: the launch arguments as the kernel gets them, and the published weights beside them.

The reference needs the published form of the weights (OCP bytes), which a device copy may have
re-encoded; where it differs it is saved under `published.<name>`, so that a folder is complete anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

import torch

from flymono.reference.case import K1Case
from flymono.reference.weights import K1Weights
from flymono.runtime.plan import K1Plan
from flymono.runtime.run import folder
from flymono.runtime.run.bind import DTYPES
from flymono.runtime.step import check_step

_PUBLISHED = "published."


def save_inputs(
    path: Path, plan: K1Plan, case: K1Case, weights: K1Weights, given: Mapping[str, torch.Tensor | int]
) -> None:
    """Write `path/inputs.safetensors`: every argument before the launch, by its ABI name."""
    values = dict(given)
    values.update({_PUBLISHED + n: v for n, v in weights.tensors().items() if not _same(v, given[n])})
    facts = {"seed": case.seed, "rank": case.rank}
    folder.save(path, "inputs", plan.key.id, values, facts)


def _same(published: torch.Tensor, copy: torch.Tensor | int) -> bool:
    return isinstance(copy, torch.Tensor) and published.shape == copy.shape and torch.equal(published, copy)


def restore(plan: K1Plan, saved: folder.Saved) -> tuple[K1Case, K1Weights]:
    """The case and the weights of a folder; FolderError lists what is missing."""
    published = {f.name: f.name for f in fields(K1Weights) if f.name != "block"}
    published = {n: _PUBLISHED + n if _PUBLISHED + n in saved.values else n for n in published}
    case = restore_case(plan, saved, published)
    return case, K1Weights(**{n: saved.values[stored] for n, stored in published.items()})  # type: ignore[arg-type]


def restore_case(plan: K1Plan, saved: folder.Saved, also: Mapping[str, str] | None = None) -> K1Case:
    """The case of a folder. FolderError lists everything that is missing or wrong, in the values `also`
    ({argument: stored name}) too, StepError what the launch would read out of bounds."""
    key = plan.key
    stated = {
        "rows": key.rows, "tp": key.tp, "ratio": key.ratio, "fold": key.fold, "index": key.index,
        "window": key.window, "fp8": plan.strategy.fp8,
        "rank": saved.facts.get("rank", 0), "seed": saved.facts.get("seed", 0),
    }  # fmt: skip
    names = [f.name for f in fields(K1Case) if f.name not in stated]
    wanted = {n: n for n in names} | dict(also or {})
    faults = [f"{n} is missing" for n in wanted.values() if n not in saved.values]
    faults += [
        f"{stored}: {fault}"
        for name, stored in wanted.items()
        if stored in saved.values and (fault := _fault(plan, name, saved.values[stored]))
    ]
    refuse(key.id, faults or _geometry(plan, saved))
    check_step(plan, saved.values)  # what a launch would refuse is told before anything is compiled
    return K1Case(**stated, **{n: saved.values[n] for n in names})  # type: ignore[arg-type]


def refuse(build: str, faults: list[str]) -> None:
    """FolderError with every fault, if there is any."""
    if faults:
        what = f"the inputs are not those of {build}:" + "".join(f"\n  {fault}" for fault in faults)
        raise folder.FolderError(what, fix="write the folder again with --save")


def _fault(plan: K1Plan, name: str, value: torch.Tensor | int) -> str | None:
    """What is wrong with a value by itself: kind, dtype, and shape where the ABI states one."""
    arg = plan.abi[name]
    if arg.type != "ptr" or not isinstance(value, torch.Tensor):
        right = arg.type != "ptr" and isinstance(value, int)
        return None if right else f"a {'tensor' if arg.type == 'ptr' else 'number'} is needed"
    if value.dtype != DTYPES[arg.dtype]:
        return f"{value.dtype}, the ABI says {arg.dtype}"
    stated = -1 not in arg.shape or name == "cos_sin"
    fits = len(value.shape) == len(arg.shape) and all(
        want in (-1, got) for want, got in zip(arg.shape, value.shape, strict=True)
    )
    return (
        None if fits or not stated or not arg.used else f"{list(value.shape)}, the ABI says {list(arg.shape)}"
    )


def _geometry(plan: K1Plan, saved: folder.Saved) -> list[str]:
    """What does not fit together: cache and strides, block table and its stride, rank and TP size."""
    values, out = saved.values, []
    record = plan.abi["swa"].shape[-1]
    stride, block = int(values["swa_stride"]), int(values["swa_block"])
    if block < 1 or stride < block * record:
        out.append(f"swa_stride {stride} does not hold swa_block {block} records of {record} bytes")
    elif _numel(values["swa"]) % stride or not _numel(values["swa"]):
        out.append(f"swa has {_numel(values['swa'])} bytes, which is no multiple of swa_stride {stride}")
    table, width = values["comp_bt"], int(values["bt_stride"])
    if plan.abi["comp_bt"].used and isinstance(table, torch.Tensor):
        if table.dim() != 2 or table.shape[1] != width:
            out.append(f"comp_bt is {list(table.shape)}, bt_stride is {width}")
        if int(values["comp_block"]) < 1:
            out.append(f"comp_block is {values['comp_block']}")
    rank = saved.facts.get("rank", 0)
    return out if 0 <= rank < plan.key.tp else [*out, f"rank {rank} of TP{plan.key.tp}"]


def _numel(value: torch.Tensor | int) -> int:
    return value.numel() if isinstance(value, torch.Tensor) else 0
