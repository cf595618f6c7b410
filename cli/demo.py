"""`flymono demo`: K1 on every arch of the demo, from specs to a judged result."""

from __future__ import annotations

import typer

DEMO = (("gfx942", 4), ("gfx950", 2))  # spec names, not choices: 6 rows is one request with five drafts
ROWS = 6


def register(app: typer.Typer) -> None:
    """Add `flymono demo` to the app."""
    app.command("demo")(_demo)


def _demo() -> None:
    """Generate K1 from the specs, compile it, execute it on the emulator and judge it, on both archs."""
    from flymono.runtime.run.command import Options, run_and_print

    right = [run_and_print(Options(arch=arch, tp=tp, rows=ROWS, verbose=True)) for arch, tp in DEMO]
    raise typer.Exit(0 if all(right) else 1)
