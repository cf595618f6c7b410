"""`flymono run`: compute a kernel on the emulator and judge every output."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add `flymono run` to the app; imports of torch and FlyDSL wait until it is called."""
    run = typer.Typer(no_args_is_help=True, help="Compute a kernel on the emulator and judge every output.")
    app.add_typer(run, name="run")
    run.command("k1")(_k1)


def _k1(
    arch: Annotated[str, typer.Option(help="arch spec, e.g. gfx942")],
    tp: Annotated[int | None, typer.Option(help="tensor-parallel size; default: the arch's first")] = None,
    rows: Annotated[int, typer.Option(help="tokens of the step")] = 6,
    ratio: Annotated[
        int | None, typer.Option(help="compress ratio 0, 1 or 2; default: the layer's, else 2")
    ] = None,
    fold: Annotated[
        bool | None, typer.Option("--fold/--no-fold", help="fold the previous sublayer's output in")
    ] = None,
    index: Annotated[bool | None, typer.Option("--index/--no-index", help="an index source layer")] = None,
    window: Annotated[int | None, typer.Option(help="width of the window list")] = None,
    timeline: Annotated[bool, typer.Option("--timeline", help="a build that records a time line")] = False,
    layer: Annotated[
        int | None, typer.Option(help="take ratio, fold and index from this layer of the model")
    ] = None,
    rank: Annotated[int, typer.Option(help="tensor-parallel rank whose weights are used")] = 0,
    weights: Annotated[
        Path | None, typer.Option(help="safetensors file or folder with the published names")
    ] = None,
    seed: Annotated[int, typer.Option(help="seed of inputs, and of weights where no file is given")] = 0,
    order: Annotated[
        str, typer.Option(help="workgroup order: linear, reversed, random or starve:N")
    ] = "linear",
    mfma: Annotated[str, typer.Option(help="MFMA arithmetic: exact, fma, cdna3 or perturb")] = "exact",
    trans: Annotated[
        str, typer.Option(help="exp, rcp, rsq: exact, or ulp (each off by up to one)")
    ] = "exact",
    check: Annotated[bool, typer.Option("--check/--no-check", help="track uninitialised values")] = True,
    inputs: Annotated[Path | None, typer.Option(help="run on a folder written by --save")] = None,
    save: Annotated[
        Path | None, typer.Option(help="write every launch argument and output to this folder")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="write an HTML report")] = None,
    json_: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
) -> None:
    """K1 (attention seam and front) of one decoder layer, compared with the float64 reference."""
    from flymono.runtime.run.command import Options, run_and_print

    options = Options(
        arch=arch, tp=tp, rows=rows, ratio=ratio, fold=fold, index=index, window=window, timeline=timeline,
        layer=layer, rank=rank, weights=weights, seed=seed, order=order, mfma=mfma, trans=trans, check=check,
        inputs=inputs, save=save, report=report, json=json_,
    )  # fmt: skip
    raise typer.Exit(0 if run_and_print(options) else 1)
