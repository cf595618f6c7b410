"""`flymono verify`: kernels on the GPUs of this machine, and a report to send back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .run import Arch, Tp


def register(app: typer.Typer) -> None:
    """Add `flymono verify` to the app."""
    app.command("verify")(verify)


def verify(
    arch: Arch,
    output: Annotated[Path, typer.Option("--output", "-o", help="folder for report.json and report.txt")],
    tp: Tp = None,
    rows: Annotated[str, typer.Option(help="row counts of the steps, by commas")] = "1,6",
    layers: Annotated[
        str, typer.Option(help="layers of the model, by commas; none: an empty text")
    ] = "3,2,40",  # a plain one, one that selects keys, a draft layer
    device: Annotated[str, typer.Option(help="hip (GPUs of this machine), or emulator")] = "hip",
    emulator: Annotated[
        bool, typer.Option("--emulator/--no-emulator", help="compare bits with the emulator's too (slow)")
    ] = True,
) -> None:
    """Run K1, whole layers and the FFN launch on GPUs; judge every stage by the float64 reference and compare
    bits with the emulator. Exit code 0: all right, 1: something is wrong, 2: no such GPU, or bad input."""
    from flymono.runtime.heap import keep_heap
    from flymono.runtime.run import verify as verifying
    from flymono.specs import load

    keep_heap()
    specs = load()
    wanted = verifying.Wanted(
        arch, tp, _numbers("--rows", rows), _numbers("--layers", layers, none=True), device, emulator
    )
    name = verifying.check(wanted, specs, output)
    done = verifying.verify(wanted, specs, lambda one: typer.echo("\n".join(verifying.lines_of(one))))
    found = verifying.report(wanted, name, done)
    verifying.write(output, found, done)
    verdict = "right" if found["ok"] else "WRONG"
    typer.echo(f"{verdict} on {name}: {' and '.join(verifying.FILES)} in {output}")
    raise typer.Exit(0 if found["ok"] else 1)


def _numbers(option: str, text: str, none: bool = False) -> tuple[int, ...]:
    from flymono.specs.findings import UserError

    parts = [p.strip() for p in text.split(",") if p.strip()]
    if not (parts or none) or not all(p.isascii() and p.isdigit() for p in parts):
        raise UserError(f"{option} is {text!r}", fix="write numbers by commas, for example 1,6")
    return tuple(map(int, parts))
