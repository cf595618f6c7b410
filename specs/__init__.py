"""YAML specs and their strict loader.

What is true of a GPU (`arch/`), of a model (`model/`), which builds ship (`build/`) and how large an error
may be (`numerics/`). `load()` returns frozen models of `schema.py` or raises `SpecError` with every finding
of every file at once. Names are imported on first use: a command that needs no spec does not pay for one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from .. import __version__ as __version__  # a bare "import specs" fails here on purpose

if TYPE_CHECKING:
    from .findings import Code, Finding, SpecError, UserError, Where
    from .loader import Origin, Specs, UnknownSpec, default_root, inspect, load
    from .schema import ArchSpec, BuildSpec, ModelSpec, NumericsSpec

__all__ = [
    "ArchSpec", "BuildSpec", "Code", "Finding", "ModelSpec", "NumericsSpec", "Origin", "SpecError", "Specs",
    "UnknownSpec", "UserError", "Where", "default_root", "inspect", "load",
]  # fmt: skip

_HOME = {
    **dict.fromkeys(("Code", "Finding", "SpecError", "UserError", "Where"), "findings"),
    **dict.fromkeys(("Origin", "Specs", "UnknownSpec", "default_root", "inspect", "load"), "loader"),
    **dict.fromkeys(("ArchSpec", "BuildSpec", "ModelSpec", "NumericsSpec"), "schema"),
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)
