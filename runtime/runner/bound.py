"""A layer at a step width, ready to be launched: its calls in order and how a step's inputs are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from operator import attrgetter
from typing import NamedTuple

import torch
from torch import Tensor

from flymono.runtime.plan.dims import Dims
from flymono.runtime.runner.calls import Call, Held
from flymono.runtime.runner.errors import InputError
from flymono.runtime.runner.inputs import (
    FFN_SEAM,
    OUTPUTS,
    ROWS,
    SEAM,
    LayerWeights,
    Rule,
    Seam,
    Step,
    cache_fault,
    mended,
    rule_of,
)

Read = tuple[dict[str, int], dict[str, Held]]


class Output(NamedTuple):
    """A tensor that a layer makes."""

    name: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


class Bound:
    """The launches of one layer. `first_pre` stands for a pre gate that is not given."""

    def __init__(
        self, weights: LayerWeights, calls: Sequence[Call], d: Dims, rows: int, device: torch.device,
        first_pre: Tensor, selected: tuple[Tensor, Tensor] | None = None,
    ) -> None:  # fmt: skip
        self.weights, self.calls, self.rows = weights, tuple(calls), rows
        self.selected = selected
        """An index layer's inputs of the host's selection: normed input and q-LoRA row."""
        self._device, self._record, self._first_pre = device, d.record_bytes, first_pre
        used = {a.name: a for c in calls for a in c.plan.abi.arguments if a.owner == "vllm" and a.used}
        own = {n: rule_of(a, n in (*SEAM, *FFN_SEAM, *OUTPUTS)) for n, a in used.items() if a.type == "ptr"}
        seam = FFN_SEAM if "part" in own else SEAM
        names = [n for n in ROWS if n in own]
        self._seam: tuple[tuple[str, Rule | None], ...] = tuple((n, own.get(n)) for n in seam)
        self._rows = tuple((n, own[n]) for n in names)
        self._get: Callable[[Step], tuple[Tensor | None, ...]] = _getter(names)
        self._swa, self._comp, self._table = "swa" in own, "comp" in own, "comp_bt" in own
        self._out_rules = tuple(own[n] for n in OUTPUTS)
        h, c = d.streams, d.hidden
        shapes = ((rows, c), (rows, h, c), (rows, h, 1), (rows, h, h), (rows, h))
        strides = [tuple(prod(shape[n + 1 :]) for n in range(len(shape))) for shape in shapes]
        dtypes = (torch.bfloat16,) * 2 + (torch.float32,) * 3
        self._outs = tuple(map(Output, OUTPUTS, shapes, strides, dtypes))

    def read(self, given: Seam, step: Step | None) -> Read:
        """The step's arguments and the tensors behind them. Raises InputError with the input that is
        wrong."""
        values, tensors = dict[str, int](), dict[str, Held]()
        for (name, rule), value in zip(self._seam, given, strict=True):
            if rule is not None:
                tensor = self._first_pre if value is None and name == "pre_in" else self._checked(rule, value)
                values[name], tensors[name] = tensor.data_ptr(), tensor
        if step is not None:
            for (name, rule), value in zip(self._rows, self._get(step), strict=True):
                tensor = self._checked(rule, value)
                values[name], tensors[name] = tensor.data_ptr(), tensor
            self._read_caches(step, values, tensors)
        return values, tensors

    def _checked(self, rule: Rule, value: Tensor | None) -> Tensor:
        _, dtype, elements, exact = rule
        if value is None or value.dtype is not dtype or not value.is_contiguous():
            return mended(rule, value, self._device)
        count = value.numel()
        if count < elements or (exact and count != elements):
            return mended(rule, value, self._device)
        return value

    def _read_caches(self, step: Step, values: dict[str, int], tensors: dict[str, Held]) -> None:
        if self._swa:
            self._read_cache("swa", step.swa, values, tensors)
        if self._comp:
            self._read_cache("comp", step.comp, values, tensors)
        table = step.comp_bt
        if self._table:
            if table is None or table.dtype is not torch.int32 or table.dim() != 2 or table.stride(1) != 1:
                fault = f"comp_bt: int32 [requests, blocks] is read, got {_shown(table)}"
                raise InputError("an input of the step is not what the kernels read", [fault])
            values["comp_bt"], values["bt_stride"] = table.data_ptr(), table.stride(0)
            tensors["comp_bt"] = table

    def _read_cache(
        self, name: str, cache: Tensor | None, values: dict[str, int], tensors: dict[str, Held]
    ) -> None:
        if (
            cache is None
            or cache.dim() != 3
            or cache.stride(1) != self._record
            or cache.dtype is not torch.uint8
        ):
            fault = cache_fault(name, cache, self._record, self._device)
            raise InputError("a cache is not what the kernels read", [fault or f"{name}: {_shown(cache)}"])
        values[name], tensors[name] = cache.data_ptr(), cache
        values[f"{name}_stride"], values[f"{name}_block"] = cache.stride(0), cache.shape[1]

    def outputs(self, outs: Seam | None, values: dict[str, int], tensors: dict[str, Held]) -> Seam:
        """The layer's outputs, new ones or the caller's, added to the step's arguments."""
        if outs is None:
            empty, device = torch.empty_strided, self._device  # in half the time that torch.empty takes
            made = [empty(o.shape, o.stride, dtype=o.dtype, device=device) for o in self._outs]
        else:
            made = [self._own(rule, value) for rule, value in zip(self._out_rules, outs, strict=True)]
        for name, tensor in zip(OUTPUTS, made, strict=True):
            values[name], tensors[name] = tensor.data_ptr(), tensor
        return Seam(*made)

    def _own(self, rule: Rule, value: Tensor | None) -> Tensor:
        if value is not None and not value.is_contiguous():
            raise InputError(
                "an output is not what the kernels write", [f"{rule.argument.name}: not contiguous"]
            )
        return self._checked(rule, value)


def _getter(names: Sequence[str]) -> Callable[[Step], tuple[Tensor | None, ...]]:
    """Fields of a step as a tuple, however many there are."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda step: tuple(getattr(step, n) for n in names)


def _shown(value: Tensor | None) -> str:
    return "nothing" if value is None else f"{value.dtype} {list(value.shape)}, stride {value.stride()}"
