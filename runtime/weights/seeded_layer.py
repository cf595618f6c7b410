"""A whole layer's weights from a seed, in memory or as a small file that holds the experts one names.

In memory nothing of the routed experts exists until a step asks for one: a layer of them is gigabytes. The
file is for tests and for handing a case on; a reader takes it as it takes a shard.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from torch import Tensor

from ...reference.layer_weights import WholeLayer, seeded_layer
from ...specs.schema import ModelSpec
from .published import dense_tensors, expert_tensors
from .seeded import as_stored, write_whole

LAYER_RECIPE = "1"  # names the statistics of seeded layers in a file's metadata


def make_layer_file(
    path: Path, model: ModelSpec, layer: int, seed: int = 0, experts: Iterable[int] = ()
) -> Path:
    """Write the published tensors of a seeded layer with the given routed experts. Raises WeightsError."""
    numbers = sorted(set(experts))
    made = f"seed {seed}, layer {layer}, layer recipe {LAYER_RECIPE}, experts {numbers}"
    return save_layer(path, seeded_layer(model, layer, seed), numbers, made)


def save_layer(path: Path, whole: WholeLayer, experts: Iterable[int], made: str) -> Path:
    """Write a layer's published tensors with the given routed experts. Raises WeightsError."""
    model, layer = whole.model, whole.layer
    stored: dict[str, Tensor] = as_stored(dense_tensors(model, layer), whole.dense)
    for number in sorted(set(experts)):
        stored |= as_stored(expert_tensors(model, layer, number), vars(whole.expert(number)))
    size = sum(t.numel() * t.element_size() for t in stored.values())
    fix = f"free some space (this file has {size / 1e6:.0f} MB) or choose another folder"
    return write_whole(path, stored, made, fix)
