"""Which extra of the installation brings a package that is absent.

The wheel requires what serving needs and no more; what a command needs beyond that is an extra of
pyproject.toml (a test compares this table with it).
"""

from __future__ import annotations

from ..specs.findings import UserError

EXTRAS: dict[str, tuple[str, ...]] = {
    "cli": ("typer", "rich"),
    "gen": ("flydsl", "jinja2", "ruff", "ziglang", "filelock", "platformdirs", "pyelftools", "msgpack"),
    "hip": ("rocm-bindings-hip",),
    "all": ("torch", "ml-dtypes", "safetensors", "plotly"),
}
"""Extra -> the packages that it names itself; `gen` has those of `cli` too, `all` those of `gen`."""
MODULES = {
    "elftools": "pyelftools", "ml_dtypes": "ml-dtypes", "rocm": "rocm-bindings-hip", "markupsafe": "jinja2",
}  # fmt: skip
"""Modules that are not named like their package, or come with another one."""


def extra_of(module: str) -> str | None:
    """The smallest extra that brings `module` (a dotted name); None if no extra does."""
    top = module.partition(".")[0]
    package = MODULES.get(top, top)
    return next((extra for extra, packages in EXTRAS.items() if package in packages), None)


def missing(error: BaseException) -> UserError | None:
    """What to install, if `error` says that a module of an extra is absent; else None."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    if (extra := extra_of(error.name)) is None:
        return None
    text = f"this needs the package {error.name.partition('.')[0]}, which comes with the extra `{extra}`"
    return UserError(text, fix=f"pip install 'flymono[{extra}]'")
