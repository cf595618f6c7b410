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
    key = plan.key
    stated = {
        "rows": key.rows, "tp": key.tp, "ratio": key.ratio, "fold": key.fold, "index": key.index,
        "window": key.window, "fp8": plan.strategy.fp8,
        "rank": saved.facts.get("rank", 0), "seed": saved.facts.get("seed", 0),
    }  # fmt: skip
    names = [f.name for f in fields(K1Case) if f.name not in stated]
    published = {f.name: f.name for f in fields(K1Weights) if f.name != "block"}
    published = {n: _PUBLISHED + n if _PUBLISHED + n in saved.values else n for n in published}
    missing = [n for n in (*names, *published.values()) if n not in saved.values]
    if missing:
        raise folder.FolderError("the folder lacks " + ", ".join(missing))
    case = K1Case(**stated, **{n: saved.values[n] for n in names})  # type: ignore[arg-type]
    return case, K1Weights(**{n: saved.values[stored] for n, stored in published.items()})  # type: ignore[arg-type]
