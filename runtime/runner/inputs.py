"""What a host gives to a layer, and whether it is what the launches read.

Invariants
 - A tensor's dtype, place, size and layout are looked at in every step, at the price of a few comparisons;
   what does not fit is copied if only its strides are wrong, and an InputError with all findings otherwise.
 - Kernels read without bounds: a tensor that is too short is refused, one that is longer is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from flymono.runtime.plan.abi import RUNTIME, Argument
from flymono.runtime.runner.errors import InputError

DTYPES: Mapping[str, tuple[torch.dtype, ...]] = {
    "bf16": (torch.bfloat16,), "f32": (torch.float32,), "i32": (torch.int32,), "i64": (torch.int64,),
    "u8": (torch.uint8, torch.float8_e8m0fnu), "e4m3fn": (torch.uint8, torch.float8_e4m3fn),
    "e4m3fnuz": (torch.uint8, torch.float8_e4m3fnuz), "fp4x2": (torch.uint8, torch.float4_e2m1fn_x2),
}  # fmt: skip
"""Torch's dtypes that hold an ABI dtype's bytes."""


class Seam(NamedTuple):
    """What a layer takes and hands on, in vLLM's order. S rows, C streams, D columns; with another first
    extent or trailing ones of 1 the tensors serve as well.

    As input of a layer that folds nothing in (first, after an engram), `x`, `post` and `comb` may be None;
    `pre` of None stands for 1, 0, 0, 0 in every row (the first layer).
    """

    x: Tensor | None  # bf16 [S, D]: the previous FFN's output; of the FFN launch: this rank's partial
    residual: Tensor  # bf16 [S, C, D]
    post: Tensor | None  # f32 [S, C, 1]
    comb: Tensor | None  # f32 [S, C, C]
    pre: Tensor | None  # f32 [S, C]


SEAM = ("pend", "res_in", "post_in", "comb_in", "pre_in")
"""Launch arguments of a layer's Seam."""
FFN_SEAM = ("part", *SEAM[1:])
OUTPUTS = ("out", "res_out", "post_out", "comb_out", "pre_out")


@dataclass(slots=True, eq=False)
class Step:
    """A step's metadata and a layer's caches. Caches are uint8 [blocks, rows a block, record], of which only
    the blocks may lie apart. What a layer does not read may be None."""

    pos: Tensor  # int64 [S]
    slot: Tensor  # int64 [S], -1 for a padded row
    swa: Tensor  # the window cache
    swa_idx: Tensor | None = None  # int32 [S, window]
    swa_lens: Tensor | None = None  # int32 [S]
    t2r: Tensor | None = None  # int32 [S]
    comp: Tensor | None = None  # the compressed cache that the layer reads
    comp_bt: Tensor | None = None  # int32 [requests, blocks], requests may lie apart
    topk: Tensor | None = None  # int32 [S, topk]


ROWS = ("pos", "slot", "swa_idx", "swa_lens", "t2r", "topk")
CACHES = ("swa", "comp")


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """A layer's weights by launch argument (`runtime.weights.LayerCopies`). Their addresses are packed at the
    first step of each width; new values in the same tensors need nothing, other tensors another object."""

    layer: int
    k1: Mapping[str, Tensor] = field(default_factory=dict)
    back: Mapping[str, Tensor] = field(default_factory=dict)
    ffn: Mapping[str, Tensor] = field(default_factory=dict)
    cos_sin: Tensor | None = None  # f32 [positions, rope]

    def of(self, kind: str) -> dict[str, Tensor]:
        """Weights of a launch of `kind`."""
        parts = {"k1": (self.k1,), "k2": (self.back, self.ffn), "ffn": (self.ffn,)}
        found = {n: t for part in parts.get(kind, ()) for n, t in part.items()}
        return found if self.cos_sin is None else {"cos_sin": self.cos_sin, **found}


def tensor_fault(
    name: str, value: object, argument: Argument, device: torch.device, exact: bool
) -> str | None:
    """What is wrong with the tensor of an argument; a size that is known at run time only is not."""
    if not isinstance(value, Tensor):
        return f"{name}: a tensor is needed, got {value!r}"
    wanted = DTYPES[argument.dtype]
    if value.dtype not in wanted:
        return f"{name}: {value.dtype} given, {argument.dtype} is read"
    if value.device.type != device.type:
        return f"{name}: on {value.device}, the kernels run on {device}"
    if argument.bytes is not None and (
        value.nbytes != argument.bytes if exact else value.nbytes < argument.bytes
    ):
        return f"{name}: {list(value.shape)} given, {list(argument.shape)} is read"
    return None


def weight_faults(
    weights: Mapping[str, Tensor], arguments: Sequence[Argument], device: torch.device
) -> list[str]:
    """Everything that is wrong with a launch's weights."""
    found = []
    for a in (a for a in arguments if a.owner == "layer" and a.used):
        value = weights.get(a.name)
        fault = tensor_fault(a.name, value, a, device, True)
        if fault is None and isinstance(value, Tensor) and not value.is_contiguous():
            fault = f"{a.name}: not contiguous (stride {value.stride()})"
        found += [fault] if fault else []
    return found


class Rule(NamedTuple):
    """How one input is looked at in every step."""

    argument: Argument
    dtype: torch.dtype
    elements: int
    exact: bool


def rule_of(argument: Argument, exact: bool) -> Rule:
    """The rule of an argument whose size is known."""
    count = 1
    for extent in argument.shape:
        count *= max(extent, 0 if extent == RUNTIME else extent)
    return Rule(argument, DTYPES[argument.dtype][0], count, exact)


def mended(rule: Rule, value: Tensor | None, device: torch.device) -> Tensor:
    """A contiguous tensor of what `rule` asks for, or InputError."""
    fault = tensor_fault(rule.argument.name, value, rule.argument, device, rule.exact)
    if fault is not None or value is None:
        raise InputError("an input of the step is not what the kernels read", [fault or "nothing given"])
    return value if value.is_contiguous() else value.contiguous()


def cache_fault(name: str, cache: object, record: int, device: torch.device) -> str | None:
    """What is wrong with a cache's view."""
    if not isinstance(cache, Tensor):
        return f"{name}: a tensor is needed, got {cache!r}"
    if cache.dtype != torch.uint8 or cache.dim() != 3 or cache.shape[2] != record:
        return f"{name}: {cache.dtype} {list(cache.shape)} given, uint8 [blocks, rows, {record}] is read"
    if cache.stride(1) != record or cache.stride(2) != 1 or cache.device.type != device.type:
        return f"{name}: strides {cache.stride()} on {cache.device}; records must lie next to one another"
    return None


def span(value: Tensor) -> int:
    """Bytes from a tensor's first element to the end of its last."""
    if value.is_contiguous():
        return value.nbytes
    last = sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True))
    return (last + 1) * value.element_size() if value.numel() else 0
