"""What vLLM calls in each of its processes: an import hook for one module, and nothing else.

Invariants
 - Registering imports neither vLLM nor torch nor specs; it may happen any number of times.
 - FLYMONO=0 installs nothing: vLLM is as if this package were not there (`--monokernel` is then its own mono
   decode).
 - vLLM's registry, front end and engine core never import the hooked module, so they pay for a list entry
   alone.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from . import log

TARGET = "vllm.models.deepseek_v41.amd.model"
"""The module whose global `MonoDecodeLayer` decoder layers are made with (runtime.md 9.2)."""
SWITCH = "FLYMONO"
MODES = ("", "1", "0", "stock")


def mode() -> str:
    """`on`, `off` or `stock` (every layer vLLM's own), from FLYMONO; `on` for a value that means nothing."""
    value = os.environ.get(SWITCH, "").strip().lower()
    if value not in MODES:
        log.once(logging.WARNING, f"{SWITCH}={value!r} is none of 0, 1, stock: taken as 1")
    return {"0": "off", "stock": "stock"}.get(value, "on")


def register() -> None:
    """Entry point of the group `vllm.general_plugins`."""
    if mode() == "off":
        log.once_a_node(logging.INFO, f"{SWITCH}=0: not loaded, vLLM runs its own decode")
        return
    if any(isinstance(finder, Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, Finder())
    module = sys.modules.get(TARGET)
    if module is not None and hasattr(module, "MonoDecodeLayer"):
        _fit(module)


def unregister() -> None:
    """Take the hook away; a module that was fitted stays so (tests)."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Finder)]


class Finder:
    """Finds `TARGET` as the other finders do, and fits it after it was executed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's own spec with a loader that fits; None for every other module."""
        if name != TARGET:
            return None
        for finder in (f for f in sys.meta_path if f is not self):
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find is not None else None
            if spec is not None and spec.loader is not None:
                _after_execution(spec)
                return spec
        return None


def _after_execution(spec: ModuleSpec) -> None:
    """The loader belongs to this spec alone, so that its method can be replaced on the object."""
    loader = spec.loader
    assert loader is not None
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        _fit(module)

    loader.exec_module = exec_module  # type: ignore[method-assign]


def _fit(module: ModuleType) -> None:
    from .fit import fit

    fit(module)
