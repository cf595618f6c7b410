"""What is bound to a launch's arguments, read under their ABI names: typed, large enough, or a finding.

Invariants
 - An argument counts as input if a launch of the step reads it and neither that launch nor an earlier one
   writes it (a key table is made by K1, by a key-list launch or by K2 itself, and is then no input).
 - A rule sees a tensor only if its dtype, size and strides are what the kernel takes them for; what is not is
   a finding here, and rules that need it say nothing.
 - Caches are looked up in any case: K1 makes a key table of compressed rows without having the cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ..plan import Argument, KernelPlan
from .codes import StepCode
from .findings import StepFinding

DTYPES: Mapping[str, torch.dtype] = {
    "bf16": torch.bfloat16, "f32": torch.float32, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8,
}  # fmt: skip
CACHES = ("swa", "comp")
STRIDED = (*CACHES, "comp_bt")  # their strides are arguments of their own


def extent(tensor: Tensor) -> int:
    """Bytes from a tensor's first element to the end of its last one."""
    if not tensor.numel():
        return 0
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def _describes_a_cache(name: str, value: Tensor | int) -> bool:
    """Whether `value` is usable as a cache (or its stride or block) that no launch of the step asks for."""
    if name in CACHES:
        return isinstance(value, Tensor) and value.dtype == torch.uint8
    return name.removesuffix("_stride").removesuffix("_block") in CACHES and isinstance(value, int)


class Given:
    """The arguments of one step; `findings` are those of arguments that no rule can read."""

    def __init__(self, plans: Sequence[KernelPlan], arguments: Mapping[str, Tensor | int]) -> None:
        self.plans, self.arguments, self.dims = tuple(plans), arguments, plans[0].dims
        self.findings: list[StepFinding] = []
        self.rows, self.ratio = plans[0].key.rows, plans[0].key.ratio
        self._inputs = self._find_inputs()
        self._usable: dict[str, Tensor | int] = {}

    def _find_inputs(self) -> dict[str, Argument]:
        inputs: dict[str, Argument] = {}
        made: set[str] = set()
        for plan in self.plans:
            for a in plan.abi.arguments:
                is_input = a.used if a.name in CACHES else a.read and not a.written and a.name not in made
                if is_input and a.name not in inputs:
                    inputs[a.name] = a
            made |= {a.name for a in plan.abi.arguments if a.written}
        return inputs

    def admit(self, names: Sequence[str]) -> None:
        """Look at the arguments `names`, as far as they are inputs, and note what is wrong with them."""
        for name in names:
            value, argument = self.arguments.get(name), self._inputs.get(name)
            if argument is None:
                if value is not None and _describes_a_cache(name, value):
                    self._usable[name] = value
                continue
            found = self._fault(argument, value)
            if found is not None:
                self.findings.append(found)
            elif value is not None:
                self._usable[name] = value

    def _fault(self, a: Argument, value: Tensor | int | None) -> StepFinding | None:
        fix = f"bind {a.doc}"
        if value is None:
            what = f"the launch reads it ({a.dtype} {list(a.shape)})"
            return StepFinding(StepCode.MISSING, a.name, "not given", what, fix)
        if a.type != "ptr":
            plain = isinstance(value, int) and not isinstance(value, bool)
            got = f"{type(value).__name__} given"
            return None if plain else StepFinding(StepCode.TYPE, a.name, got, "a whole number is needed", fix)
        if not isinstance(value, Tensor) or value.dtype != DTYPES[a.dtype]:
            got = f"{value.dtype if isinstance(value, Tensor) else type(value).__name__} given"
            return StepFinding(StepCode.TYPE, a.name, got, f"a tensor of {a.dtype} is needed", fix)
        return self._tensor_fault(a, value, fix)

    def _tensor_fault(self, a: Argument, value: Tensor, fix: str) -> StepFinding | None:
        if a.name not in STRIDED and not value.is_contiguous():
            got = f"shape {list(value.shape)}, strides {list(value.stride())}"
            return StepFinding(StepCode.LAYOUT, a.name, got, "it must be contiguous", fix)
        if a.bytes is not None and value.nbytes < a.bytes:
            limit = f"the launch reads {a.bytes:,} ({list(a.shape)})"
            return StepFinding(StepCode.SIZE, a.name, f"{value.nbytes:,} bytes", limit, fix)
        return None

    def is_input(self, name: str) -> bool:
        """Whether the launches take `name` from outside."""
        return name in self._inputs

    def number(self, name: str) -> int | None:
        """The number `name`, None if it is no input or not usable."""
        value = self._usable.get(name)
        return value if isinstance(value, int) else None

    def tensor(self, name: str) -> Tensor | None:
        """The tensor `name` as it is, None if it is no input or not usable."""
        value = self._usable.get(name)
        return value if isinstance(value, Tensor) else None

    def of_rows(self, name: str, width: int = 1) -> Tensor | None:
        """int64 [S] of `name` (or [S, width]), None as for `tensor`; a buffer may have more rows."""
        value = self.tensor(name)
        if value is None:
            return None
        flat = value.reshape(-1)[: self.rows * width].to(torch.int64)
        return flat if width == 1 else flat.reshape(self.rows, width)

    def width(self, name: str) -> int:
        """Entries a row of the input `name`, from the ABI."""
        shape = self._inputs[name].shape
        return shape[-1] if len(shape) > 1 else 1
