"""`flymono demo`: K1, then a whole decoder layer, on every arch of the demo, from specs to judged results."""

from __future__ import annotations

import typer

DEMO = (("gfx942", 4), ("gfx950", 2))  # spec names, not choices: 6 rows is one request with five drafts
ROWS, LAYER = 6, 3


def register(app: typer.Typer) -> None:
    """Add `flymono demo` to the app."""
    app.command("demo")(_demo)


def _demo() -> None:
    """Generate kernels from the specs, compile them, execute them on the emulator and judge them: K1, then a
    whole layer on all ranks, on both archs."""
    from flymono.runtime.heap import keep_heap
    from flymono.runtime.run import command, layer_command
    from flymono.runtime.run.layer_options import LayerOptions

    keep_heap()
    right = [
        command.run_and_print(command.Options(arch=arch, tp=tp, rows=ROWS, verbose=True)) for arch, tp in DEMO
    ]
    right += [
        layer_command.run_and_print(LayerOptions(arch=arch, tp=tp, rows=ROWS, layer=LAYER), "layer")
        for arch, tp in DEMO
    ]
    raise typer.Exit(0 if all(right) else 1)
