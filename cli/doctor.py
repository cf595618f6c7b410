"""`flymono doctor`: what works here and what does not, each with what to do about it.

Every probe is guarded: one that fails, in whatever way, becomes a line of the report, and the next one runs.
Nothing but the standard library and typer is imported before the probes run.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json as json_
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

PINNED = {"flydsl": "0.5.0"}
NEEDED = (
    "flydsl",
    "torch",
    "pydantic",
    "pyyaml",
    "jinja2",
    "typer",
    "rich",
    "numpy",
    "ml-dtypes",
    "safetensors",
    "filelock",
    "platformdirs",
    "plotly",
    "pyelftools",
    "msgpack",
    "ruff",
)
MODULES = {"yaml": "pyyaml", "ml_dtypes": "ml-dtypes", "elftools": "pyelftools"} | {
    name: name for name in NEEDED if name not in ("pyyaml", "ml-dtypes", "pyelftools", "ruff")
}
"""Module -> the package that it comes from."""
_IMPORT_EACH = """
import importlib, sys
for name in sys.argv[1:]:
    print("try", name, flush=True)
    try:
        importlib.import_module(name)
    except BaseException as error:
        said = (str(error).splitlines() or [""])[0]
        print("bad", name, f"{type(error).__name__}: {said}", flush=True)
"""
FREE_BYTES = 1 << 30


@dataclass(frozen=True)
class Line:
    """One line of the report. `state`: ok, note (works, but read this) or bad."""

    name: str
    state: str
    text: str
    fix: str = ""


def register(app: typer.Typer) -> None:
    """Add `flymono doctor` to the app."""
    app.command("doctor")(doctor)


def doctor(
    json: Annotated[bool, typer.Option("--json", help="The report as JSON.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out the trial compilations.")] = False,
    serve: Annotated[bool, typer.Option("--serve", help="What serving in vLLM needs, instead.")] = False,
    tp: Annotated[int, typer.Option("--tp", help="Tensor-parallel size, with --serve.")] = 4,
    bundle: Annotated[str | None, typer.Option("--bundle", help="Bundle folder, with --serve.")] = None,
) -> None:
    """Report on everything flymono needs: Python, packages, compiler, linker, emulator, cache."""
    if serve:
        from .doctor_serve import Wanted, report

        named = report(Wanted(tp, bundle))
    else:
        named = [(_name(p), p) for p in PROBES if not (quick and p in (_compiler,))]
    lines = [line for name, probe in named for line in guarded(probe, name)]
    if json:
        print(json_.dumps([asdict(line) for line in lines], indent=1))
    else:
        width = max(len(line.name) for line in lines)
        for line in lines:
            print(
                f"{line.state:<5} {line.name:<{width}}  {line.text}"
                + (f"\n      {'':<{width}}  fix: {line.fix}" if line.fix else "")
            )
    if any(line.state == "bad" for line in lines):
        raise typer.Exit(1)


def _name(probe: Callable[[], list[Line]]) -> str:
    return probe.__name__.strip("_").replace("_", " ")


def guarded(probe: Callable[[], list[Line]], name: str = "") -> list[Line]:
    """Run a probe; whatever it raises becomes a line."""
    name = name or _name(probe)
    try:
        return probe()
    except Exception as error:  # a broken installation can raise anything
        first = (str(error).strip().splitlines() or [""])[0]
        return [
            Line(
                name,
                "bad",
                f"{type(error).__name__}: {first}",
                str(getattr(error, "fix", "")) or "see the lines above",
            )
        ]
    except SystemExit as error:
        return [Line(name, "bad", f"a package ended the program: {error}", "reinstall it")]


def _python() -> list[Line]:
    text = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {sys.executable}"
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return [
            Line(
                "python",
                "note",
                text,
                "FlyDSL has wheels for Linux x86-64 only: plan and reference work, builds do not",
            )
        ]
    return [Line("python", "ok", text)]


def _packages() -> list[Line]:
    found, lines = [], []
    for name in NEEDED:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            lines.append(
                Line(
                    "package",
                    "bad",
                    f"{name} is not installed",
                    f"pip install {name}" + (f"=={PINNED[name]}" if name in PINNED else ""),
                )
            )
            continue
        if PINNED.get(name, version) != version:
            lines.append(
                Line(
                    "package",
                    "bad",
                    f"{name} is {version}, but {PINNED[name]} is needed exactly",
                    f"pip install {name}=={PINNED[name]}",
                )
            )
        found.append(f"{name} {version}")
    return [Line("packages", "ok", ", ".join(found)), *lines]


def _imports() -> list[Line]:
    """What is installed must also load; in a child, since a broken package may take its process along."""
    call = [sys.executable, "-c", _IMPORT_EACH, *MODULES]
    run = subprocess.run(call, capture_output=True, text=True, errors="replace", timeout=300)
    told = [line.split(" ", 2) for line in run.stdout.splitlines() if line.startswith(("try ", "bad "))]
    faults = {name: reason for word, name, *rest in told if word == "bad" for reason in rest}
    if run.returncode and told:
        faults[told[-1][1]] = f"importing it ended Python with exit code {run.returncode}"
    if not faults and not run.returncode:
        return [Line("imports", "ok", "every package loads")]
    lines = [
        Line("imports", "bad", f"{n}: {said}", f"pip install --force-reinstall {MODULES[n]}")
        for n, said in faults.items()
    ]
    return lines or [Line("imports", "bad", "Python could not be started again", "reinstall Python")]


def _mlir_bindings() -> list[Line]:
    spec = importlib.util.find_spec("flydsl")
    if spec is None:
        return [
            Line(
                "MLIR bindings",
                "bad",
                "flydsl is missing, and the bindings with it",
                f"pip install flydsl=={PINNED['flydsl']}",
            )
        ]
    lines = [Line("MLIR bindings", "ok", "those that flydsl embeds (flydsl._mlir)")]
    if any(
        d.name.lower().replace("_", "-") == "mlir-python-bindings"
        for d in importlib.metadata.distributions()
        if d.name
    ):
        lines.append(
            Line(
                "MLIR bindings",
                "note",
                "the PyPI package mlir-python-bindings is installed: it is an empty placeholder",
                "pip uninstall mlir-python-bindings",
            )
        )
    return lines


def _specs() -> list[Line]:
    from ..specs.loader import default_root, inspect

    specs, findings = inspect()
    if specs is None:
        return [
            Line(
                "specs",
                "bad",
                f"{len(findings)} findings in {default_root()}",
                "flymono spec check prints them",
            )
        ]
    return [Line("specs", "ok", f"{', '.join(specs.names())} in {specs.root}")]


def _formatter() -> list[Line]:
    from ..gen.fmt import format_python, ruff_command

    format_python("x = 1\n")
    return [Line("formatter", "ok", ruff_command()[0])]


def _cache() -> list[Line]:
    from ..gen.store import default_root

    root = default_root()
    there = next(p for p in (root, *root.absolute().parents) if p.exists())
    if not os.access(there, os.W_OK):
        return [Line("cache", "bad", f"{root} cannot be written", "set FLYMONO_CACHE to a folder of yours")]
    free, count = shutil.disk_usage(there).free, len(list(root.glob("*/manifest.json")))
    state, fix = ("ok", "") if free > FREE_BYTES else ("note", "free some space, or set FLYMONO_CACHE")
    return [Line("cache", state, f"{root}: {count} artefacts, {free / 1e9:.1f} GB free", fix)]


def _linker() -> list[Line]:
    from ..gen.linker import find_linker
    from ..gen.store import default_root

    linker = find_linker(default_root())
    return [Line("linker", "ok", f"{linker.kind}: {linker.version} ({' '.join(linker.command)})")]


def _compiler() -> list[Line]:
    from ..gen.compiler import Compiler
    from ..gen.linker import find_linker
    from ..gen.probes import trial
    from ..gen.store import default_root
    from ..specs.loader import load

    root, lines = default_root(), []
    with Compiler(find_linker(root), 120) as compiler:
        for arch in load().arch.values():
            reason = trial(arch, root, compiler)
            lines.append(
                Line(
                    f"compiler {arch.name}",
                    "bad" if reason else "ok",
                    reason or f"FlyDSL {compiler.flydsl} compiles and links for it",
                    "see the linker's line" if reason else "",
                )
            )
    return lines


def _emulator() -> list[Line]:
    try:
        core = importlib.import_module("..emulator._core", __package__)
    except ImportError as error:
        compiler = next((c for c in ("c++", "g++", "clang++") if shutil.which(c)), None)
        fix = (
            "pip install . builds it"
            if compiler
            else "install a C++20 compiler (g++ 11 or clang 14), then pip install ."
        )
        return [
            Line("emulator", "bad", f"the C++ core cannot be imported: {str(error).splitlines()[0]}", fix)
        ]
    return [Line("emulator", "ok", str(getattr(core, "__file__", core)))]


def _environment() -> list[Line]:
    ours = {k: v for k, v in os.environ.items() if k.startswith("FLYMONO_")}
    foreign = sorted(
        k for k in os.environ if k.startswith("FLYDSL_") or k in ("ARCH", "HSA_OVERRIDE_GFX_VERSION")
    )
    lines = [
        Line(
            "environment",
            "ok",
            ", ".join(f"{k}={v}" for k, v in sorted(ours.items())) or "no FLYMONO_ variable is set",
        )
    ]
    if foreign:
        lines.append(Line("environment", "note", f"{', '.join(foreign)} set: flymono's builds ignore them"))
    return lines


def _gpu() -> list[Line]:
    if not Path("/dev/kfd").exists():
        return [Line("gpu", "ok", "no AMD GPU here; the emulator is the device")]
    return [Line("gpu", "ok", "/dev/kfd is there")]


PROBES: tuple[Callable[[], list[Line]], ...] = (
    _python,
    _packages,
    _imports,
    _mlir_bindings,
    _specs,
    _formatter,
    _cache,
    _linker,
    _compiler,
    _emulator,
    _environment,
    _gpu,
)
