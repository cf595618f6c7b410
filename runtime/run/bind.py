"""Binding a case to a launch: one buffer for every launch argument, by its ABI name.

Invariants
 - A buffer has the dtype and shape that the plan's ABI states; a mismatch is an error that lists
   every argument that is wrong, never a silent cast.
 - Outputs start filled with a pattern that no kernel writes (0xCB bytes: a large negative bf16, no
   NaN), so that an output which was not written cannot look right by luck.
 - Scratch, epoch words and peer buffers are the runner's and are given (group.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from flymono.runtime.devices.base import Launch
from flymono.runtime.plan import KernelPlan
from flymono.runtime.plan.abi import Argument
from flymono.specs.findings import UserError

UNWRITTEN = 0xCB
RUNNERS = ("scratch", "epoch", "fault")
"""Buffers that are written, and that mean something before a launch."""

DTYPES: Mapping[str, torch.dtype] = {
    "bf16": torch.bfloat16, "f32": torch.float32, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8,
    "e4m3fn": torch.uint8, "e4m3fnuz": torch.uint8, "fp4x2": torch.uint8,
}  # fmt: skip


class BindError(UserError):
    """Buffers that do not fit the launch ABI; all of them are listed."""


@dataclass(frozen=True)
class Bound:
    """Buffers and scalars of one launch, by ABI name, in ABI order."""

    values: dict[str, torch.Tensor | int]
    writable: frozenset[str]

    def tensor(self, name: str) -> torch.Tensor:
        """The buffer of argument `name`; KeyError for scalars and absent pointers."""
        value = self.values[name]
        if not isinstance(value, torch.Tensor):
            raise KeyError(name)
        return value


def unwritten(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A buffer filled with the pattern of memory that nothing has written."""
    count = torch.empty(shape, dtype=dtype).numel() * dtype.itemsize
    return torch.full((count,), UNWRITTEN, dtype=torch.uint8).view(dtype).reshape(shape)


def _problem(arg: Argument, value: torch.Tensor | int | None) -> str | None:
    """What is wrong with the value given for `arg`, or None."""
    if value is None:
        made = arg.written and arg.name not in RUNNERS
        return None if made or not arg.used else "missing"
    if arg.type != "ptr":
        return None if isinstance(value, int) else f"a number is needed, got {value!r}"
    if not isinstance(value, torch.Tensor):
        return f"a tensor is needed, got {value!r}"
    if value.dtype != DTYPES[arg.dtype]:
        return f"{value.dtype} given, the ABI says {arg.dtype}"
    if not value.is_contiguous():
        return f"not contiguous (shape {tuple(value.shape)}, stride {value.stride()})"
    if arg.used and arg.bytes is not None and value.nbytes < arg.bytes:
        return f"{value.nbytes} bytes given, the ABI says {arg.bytes} (shape {arg.shape})"
    return None


def _buffer(arg: Argument) -> torch.Tensor | int:
    """What the runner allocates for an argument that no case gives."""
    if not arg.used and (arg.type != "ptr" or arg.name == "tl"):
        return 0
    return unwritten(arg.shape, DTYPES[arg.dtype]) if arg.used else torch.zeros(4, dtype=torch.int32)


def bind(plan: KernelPlan, given: Mapping[str, torch.Tensor | int]) -> Bound:
    """Complete `given` (inputs, weights, metadata by ABI name) with outputs, scratch and epoch.

    Raises BindError with every argument whose dtype, layout, size or presence is wrong.
    """
    arguments = plan.abi.arguments
    problems = [f"{a.name}: {p}" for a in arguments if (p := _problem(a, given.get(a.name)))]
    if problems:
        raise BindError("the launch arguments do not fit the ABI:\n  " + "\n  ".join(problems))
    values = {a.name: given[a.name] if a.name in given else _buffer(a) for a in arguments}
    return Bound(values, frozenset(a.name for a in arguments if a.written))


def to_launch(
    plan: KernelPlan, bound: Bound, code: bytes, kernel: str, stages: tuple[tuple[str, int, int], ...],
    shared: Mapping[str, torch.Tensor],
) -> Launch:  # fmt: skip
    """The launch of `bound` on a device, with the plan's region names for messages; `shared` as in Launch."""
    named = [(r.name, r.offset, r.bytes) for r in plan.scratch.regions]
    regions = {"scratch": named} if named else {}
    return Launch(
        code, kernel, plan.grid, tuple(bound.values.items()), bound.writable, regions, stages, shared
    )
