"""`flymono emulate`: look into a code object, or at what the emulator implements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add `flymono emulate` to the app."""
    app.command("emulate")(_emulate)


def _emulate(
    kernel: Annotated[Path | None, typer.Argument(help="a linked code object (.hsaco)")] = None,
    list_opcodes: Annotated[
        bool, typer.Option("--list-opcodes", help="what the emulator implements")
    ] = False,
    opcodes: Annotated[bool, typer.Option("--opcodes", help="what the kernel contains, with counts")] = False,
    disassemble: Annotated[bool, typer.Option("--disassemble", help="print the code")] = False,
) -> None:
    """Inspect a code object without running it."""
    from flymono.runtime.run import inspect_code

    if list_opcodes:
        inspect_code.list_opcodes()
    elif kernel is None:
        raise typer.BadParameter("name a .hsaco file, or use --list-opcodes")
    elif not inspect_code.show(kernel, opcodes, disassemble):
        raise typer.Exit(1)
