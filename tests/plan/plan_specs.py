"""Specs with a value changed, for tests."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from flymono.specs.schema import ArchSpec, ModelSpec


def arch_with(arch: ArchSpec, **values: Any) -> ArchSpec:
    """A copy of `arch`; `lds`, `units`, `width` and `limit` stand for the nested values they name."""
    nested: dict[str, Callable[[Any], dict[str, Any]]] = {
        "lds": lambda v: {"workgroup": arch.workgroup.model_copy(update={"lds_bytes": v})},
        "units": lambda v: {"machine": arch.machine.model_copy(update={"compute_units": {"X": v}})},
        "width": lambda v: {"gemv": arch.gemv.model_copy(update={"pass_width": v})},
        "limit": lambda v: {"rows": arch.rows.model_copy(update={"limit": v})},
    }
    update: dict[str, Any] = {}
    for name, value in values.items():
        update |= nested[name](value) if name in nested else {name: value}
    return arch.model_copy(update=update)


def spec_set(model: ModelSpec, *archs: ArchSpec) -> Any:
    """What `plan_k1` needs of specs, for one model and some archs."""
    return SimpleNamespace(arch={a.name: a for a in archs}, model={model.name: model})
