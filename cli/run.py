"""`flymono run`: compute a kernel on the emulator and judge every output."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add `flymono run` to the app; imports of torch and FlyDSL wait until it is called."""
    run = typer.Typer(no_args_is_help=True, help="Compute a kernel on the emulator and judge every output.")
    app.add_typer(run, name="run")
    run.callback()(_first)
    run.command("k1")(_k1)
    run.command("layer")(_layer)
    run.command("ffn")(_ffn)


Arch = Annotated[str, typer.Option(help="arch spec, e.g. gfx942")]
Tp = Annotated[int | None, typer.Option(help="tensor-parallel size; default: the arch's first")]
Rows = Annotated[int | None, typer.Option(help="tokens of the step; default: 6")]
Weights = Annotated[Path | None, typer.Option(help="safetensors file or folder with the published names")]
Seed = Annotated[int, typer.Option(help="seed of inputs, and of weights where no file is given")]
Order = Annotated[str, typer.Option(help="workgroup order: linear, reversed, random or starve:N")]
Mfma = Annotated[str, typer.Option(help="MFMA arithmetic: exact, fma, cdna3 or perturb")]
Trans = Annotated[str, typer.Option(help="exp, rcp, rsq: exact, or ulp (each off by up to one)")]
Check = Annotated[bool, typer.Option("--check/--no-check", help="track uninitialised values")]
Device = Annotated[str, typer.Option(help="what runs it: emulator, or hip (GPUs of this machine)")]
Inputs = Annotated[Path | None, typer.Option(help="run on a folder written by --save")]
Save = Annotated[Path | None, typer.Option(help="write every launch argument and output to this folder")]
Report = Annotated[Path | None, typer.Option(help="write an HTML report")]
Json = Annotated[bool, typer.Option("--json", help="print the result as JSON")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="bytes of each argument too")]
Padded = Annotated[int | None, typer.Option(help="padded rows at the end of the step")]


def _first() -> None:
    """Before any of them: the reference's large temporaries are to be made of memory that is there."""
    from flymono.runtime.heap import keep_heap

    keep_heap()


def _k1(
    arch: Arch,
    tp: Tp = None,
    rows: Rows = None,
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
    weights: Weights = None,
    seed: Seed = 0,
    order: Order = "linear",
    mfma: Mfma = "exact",
    trans: Trans = "exact",
    check: Check = True,
    device: Device = "emulator",
    inputs: Inputs = None,
    save: Save = None,
    report: Report = None,
    json_: Json = False,
) -> None:
    """K1 (attention seam and front) of one decoder layer, compared with the float64 reference."""
    from flymono.runtime.run.command import Options, run_and_print

    options = Options(
        arch=arch, tp=tp, rows=rows, ratio=ratio, fold=fold, index=index, window=window, timeline=timeline,
        layer=layer, rank=rank, weights=weights, seed=seed, order=order, mfma=mfma, trans=trans, check=check,
        device=device, inputs=inputs, save=save, report=report, json=json_,
    )  # fmt: skip
    raise typer.Exit(0 if run_and_print(options) else 1)


def _layer(
    arch: Arch,
    tp: Tp = None,
    rows: Rows = None,
    layer: Annotated[
        int | None, typer.Option(help="layer of the model (default 3); draft layers follow the backbone's")
    ] = None,
    chain: Annotated[int, typer.Option(help="layers in a row, each fed by the one before it")] = 1,
    steps: Annotated[
        int, typer.Option(help="decode steps in a row, each on the caches of the one before")
    ] = 1,
    contexts: Annotated[str, typer.Option(help="tokens that requests have seen, in turn: 1,130,4000")] = "",
    padded: Padded = None,
    weights: Weights = None,
    seed: Seed = 0,
    order: Order = "linear",
    mfma: Mfma = "exact",
    trans: Trans = "exact",
    check: Check = True,
    device: Device = "emulator",
    inputs: Inputs = None,
    save: Save = None,
    report: Report = None,
    json_: Json = False,
    verbose: Verbose = False,
) -> None:
    """A whole decoder layer on all ranks, as K1 and K2, each stage compared with the float64 reference."""
    from flymono.runtime.run.layer_command import run_and_print
    from flymono.runtime.run.layer_options import LayerOptions, parse_contexts

    lengths, wrong = parse_contexts(contexts)
    options = LayerOptions(
        arch=arch, tp=tp, rows=rows, layer=layer, chain=chain, steps=steps, contexts=lengths,
        not_contexts=wrong, padded=padded, weights=weights, seed=seed, order=order, mfma=mfma,
        trans=trans, check=check, device=device, inputs=inputs, save=save, report=report, json=json_,
        verbose=verbose,
    )  # fmt: skip
    raise typer.Exit(0 if run_and_print(options, "layer") else 1)


def _ffn(
    arch: Arch,
    tp: Tp = None,
    rows: Rows = None,
    draft: Annotated[bool, typer.Option("--draft", help="the draft layers' mixture of experts")] = False,
    layer: Annotated[int | None, typer.Option(help="take the weights of this layer")] = None,
    padded: Padded = None,
    weights: Weights = None,
    seed: Seed = 0,
    order: Order = "linear",
    mfma: Mfma = "exact",
    trans: Trans = "exact",
    check: Check = True,
    device: Device = "emulator",
    inputs: Inputs = None,
    save: Save = None,
    report: Report = None,
    json_: Json = False,
    verbose: Verbose = False,
) -> None:
    """The FFN launch on all ranks, each stage compared with the float64 reference."""
    from flymono.runtime.run.layer_command import run_and_print
    from flymono.runtime.run.layer_options import LayerOptions

    options = LayerOptions(
        arch=arch, tp=tp, rows=rows, draft=draft, layer=layer, padded=padded, weights=weights, seed=seed,
        order=order, mfma=mfma, trans=trans, check=check, device=device, inputs=inputs, save=save,
        report=report, json=json_, verbose=verbose,
    )  # fmt: skip
    raise typer.Exit(0 if run_and_print(options, "ffn") else 1)
