"""`flymono trace`: when each stage ran on every workgroup, by the clock."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .run import Arch, Device, Rows, Seed, Tp, Weights


def register(app: typer.Typer) -> None:
    """Add `flymono trace` to the app."""
    app.command("trace")(trace)


def trace(
    arch: Arch,
    output: Annotated[Path, typer.Option("--output", "-o", help="folder for trace.json and trace.html")],
    tp: Tp = None,
    rows: Rows = None,
    layer: Annotated[int | None, typer.Option(help="layer of the model (default 3)")] = None,
    ffn: Annotated[bool, typer.Option("--ffn", help="the FFN launch alone")] = False,
    draft: Annotated[bool, typer.Option("--draft", help="of the draft layers")] = False,
    weights: Weights = None,
    seed: Seed = 0,
    device: Device = "emulator",
) -> None:
    """Run a layer, or the FFN launch, as builds that note the clock after every stage; write the time lines
    for ui.perfetto.dev (trace.json) and as a page (trace.html)."""
    from flymono.runtime.heap import keep_heap
    from flymono.runtime.run.layer_options import LayerOptions
    from flymono.runtime.run.trace import trace_and_print

    keep_heap()
    options = LayerOptions(
        arch=arch, tp=tp, rows=rows, layer=layer, draft=draft, weights=weights, seed=seed, device=device,
        timeline=True,
    )  # fmt: skip
    raise typer.Exit(0 if trace_and_print(options, "ffn" if ffn else "layer", output) else 1)
