"""`flymono gen`: print, write or compare the generated module of a build."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..specs.findings import UserError

_WHICH = "flymono gen --build ID, flymono gen k1 --arch ARCH, or -o DIR for all shipped builds"


def register(app: typer.Typer) -> None:
    """Add `flymono gen` to the app."""
    app.command("gen")(gen)


def gen(
    kernel: Annotated[str | None, typer.Argument(help="Kernel kind (k1), with --arch.")] = None,
    build: Annotated[
        list[str] | None,
        typer.Option("--build", metavar="ID", help="Build id, part of one, or glob; repeatable."),
    ] = None,
    arch: Annotated[str | None, typer.Option(help="Arch spec, for example gfx942.")] = None,
    tp: Annotated[int | None, typer.Option(help="Tensor-parallel size; default: the arch's first.")] = None,
    rows: Annotated[int, typer.Option(help="Rows of the step.")] = 6,
    ratio: Annotated[int, typer.Option(help="Compress ratio of the layer: 0, 1 or 2.")] = 2,
    no_fold: Annotated[bool, typer.Option("--no-fold", help="The residual arrives folded.")] = False,
    index: Annotated[bool, typer.Option("--index", help="An index-source layer.")] = False,
    window: Annotated[int, typer.Option(help="Width of the window list.")] = 128,
    timeline: Annotated[bool, typer.Option("--timeline", help="A build that records times.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="Write DIR/<id>.py instead of printing."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; fail if a file of DIR differs.")
    ] = False,
) -> None:
    """Generate kernel sources: one flat FlyDSL module a build."""
    from ..gen.api import render
    from ..specs.loader import load
    from .keys import key_of, selected

    if check and output is None:
        raise UserError("--check compares with files", fix="name their folder: -o DIR")
    if build and (kernel or arch):
        raise UserError("--build and a kernel with --arch exclude each other", fix="use one of them")
    specs = load()
    if kernel == "k1" and arch:
        rest = {"ratio": ratio, "fold": not no_fold, "index": index, "window": window, "timeline": timeline}
        keys = [key_of(specs, arch, tp, rows, **rest)]
    elif build or (kernel is None and arch is None and output is not None):
        keys = selected(specs, build or ())
    elif arch and kernel is None:
        raise UserError("which kernel?", fix=f"flymono gen k1 --arch {arch}")
    else:
        raise UserError("which build?", fix=_WHICH)
    sources = {key.id: render(key, specs).source for key in keys}
    if output is None:
        print("\n".join(sources.values()), end="")
    elif check:
        _compare(sources, output)
    else:
        _write(sources, output)


def _write(sources: dict[str, str], folder: Path) -> None:
    from ..gen.store import disk_errors

    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, source in sources.items():
            fresh = folder / f".{name}.py.part"
            fresh.write_text(source)
            fresh.replace(folder / f"{name}.py")
            print(folder / f"{name}.py")


def _compare(sources: dict[str, str], folder: Path) -> None:
    from ..gen.text import unified

    stale = []
    for name, source in sources.items():
        path = folder / f"{name}.py"
        there = path.read_text() if path.is_file() else ""
        if there != source:
            stale.append(name)
            print(
                unified(there, source, str(path), "generated now") if there else f"{path}: missing",
                file=sys.stderr,
            )
    if stale:
        raise UserError(
            f"{len(stale)} of {len(sources)} files in {folder} are not current",
            fix=f"flymono gen ... -o {folder}",
        )
    print(f"{len(sources)} files in {folder} are current")
