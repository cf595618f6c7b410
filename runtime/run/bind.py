"""Binding a case to a launch: one buffer for every launch argument, by its ABI name.

Invariants
 - A buffer has the dtype and shape that the plan's ABI states; a mismatch is an error that lists
   every argument that is wrong, never a silent cast.
 - Outputs start filled with a pattern that no kernel writes (0xCB bytes: a large negative bf16, no
   NaN), so that an output which was not written cannot look right by luck.
 - Scratch and the epoch buffer start as the runner leaves them: zero, with the epoch of the case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from flymono.runtime.devices.base import Launch
from flymono.runtime.plan.k1 import K1Plan
from flymono.specs.findings import UserError

UNWRITTEN = 0xCB

DTYPES: Mapping[str, torch.dtype] = {
    "bf16": torch.bfloat16, "f32": torch.float32, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8,
    "e4m3": torch.uint8, "e8m0": torch.uint8,
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


def _problems(plan: K1Plan, given: Mapping[str, torch.Tensor | int]) -> list[str]:
    found = []
    for arg in plan.abi:
        value = given.get(arg.name)
        if arg.ctype == "ptr" and isinstance(value, torch.Tensor) and value.numel():
            if value.dtype != DTYPES[arg.dtype]:
                found.append(f"{arg.name}: {value.dtype} given, the ABI says {arg.dtype}")
            if not value.is_contiguous():
                found.append(f"{arg.name}: not contiguous (shape {tuple(value.shape)}, stride {value.stride()})")
        elif arg.ctype != "ptr" and not isinstance(value, int):
            found.append(f"{arg.name}: a number is needed, got {value!r}")
        elif arg.ctype == "ptr" and value is None and not arg.writes:
            found.append(f"{arg.name}: missing")
    return found


def bind(plan: K1Plan, given: Mapping[str, torch.Tensor | int]) -> Bound:
    """Complete `given` (inputs, weights, metadata by ABI name) with outputs, scratch and epoch.

    Raises BindError with every argument whose dtype, layout or presence is wrong.
    """
    values: dict[str, torch.Tensor | int] = {}
    if problems := _problems(plan, given):
        raise BindError("the launch arguments do not fit the ABI:\n  " + "\n  ".join(problems))
    for arg in plan.abi:
        if arg.name in given:
            values[arg.name] = given[arg.name]
        elif arg.name == "scratch":
            values[arg.name] = torch.zeros(max(plan.scratch.nbytes, 1), dtype=torch.uint8)
        else:
            values[arg.name] = unwritten(tuple(arg.shape), DTYPES[arg.dtype])
    return Bound(values, frozenset(arg.name for arg in plan.abi if arg.writes))


def to_launch(plan: K1Plan, bound: Bound, code: bytes, kernel: str, stages: tuple[tuple[str, int, int], ...]) -> Launch:
    """The launch of `bound` on a device, with the plan's region names for messages."""
    regions = {"scratch": [(r.name, r.offset, r.nbytes) for r in plan.scratch.regions]}
    return Launch(code, kernel, plan.grid, tuple(bound.values.items()), bound.writable, regions, stages)
