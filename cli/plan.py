"""`flymono plan k1|k2|ffn|keylist|layer|memory|model|show`: every number of a build, a layer, a rank or a
server, for people or for programs (`--json`).

A refused key is an answer: all reasons and the nearest supported build are printed, with exit code 2.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .plan_model import model

if TYPE_CHECKING:
    from ..runtime.plan import BuildKey
    from ..specs import Specs

Arch = Annotated[str, typer.Option(help="Arch spec, for example gfx942.")]
Rows = Annotated[int, typer.Option(help="Rows of the step.")]
Tp = Annotated[int | None, typer.Option(help="Tensor-parallel size; default: the arch's first.")]
Ratio = Annotated[int, typer.Option(help="Compress ratio of the layer: 0, 1 or 2.")]
Index = Annotated[bool, typer.Option("--index", help="An index-source layer.")]
DraftFlag = Annotated[bool, typer.Option("--draft", help="The expert mixture of a draft layer.")]
Timeline = Annotated[bool, typer.Option("--timeline", help="A build that records times.")]
Json = Annotated[bool, typer.Option("--json", help="The whole plan as JSON.")]


def register(app: typer.Typer) -> None:
    """Add the `plan` command group."""
    group = typer.Typer(
        no_args_is_help=True, help="Print the plan of a build, a layer, a rank's memory or a server."
    )
    group.callback()(_group)
    commands: tuple[Callable[..., None], ...] = (k1, k2, ffn, keylist, layer, memory)
    for command in commands:
        group.command(command.__name__)(command)
    group.command("model")(model)
    group.command("show")(show_build)
    app.add_typer(group, name="plan")


def _group() -> None:
    """Print the plan of a kernel build: every number that its generated source carries."""


def k1(
    arch: Arch,
    rows: Rows,
    tp: Tp = None,
    ratio: Ratio = 2,
    no_fold: Annotated[bool, typer.Option("--no-fold", help="The residual arrives folded.")] = False,
    index: Index = False,
    window: Annotated[int, typer.Option(help="Width of the window list.")] = 128,
    timeline: Timeline = False,
    json: Json = False,
) -> None:
    """Print the plan of one K1 build."""
    from ..runtime.plan import BuildKey

    key = BuildKey("k1", arch, tp or 0, rows, ratio, not no_fold, index, window, timeline)
    print_key(key, default_tp=tp is None, json=json)


def k2(
    arch: Arch,
    rows: Rows,
    tp: Tp = None,
    ratio: Ratio = 2,
    index: Index = False,
    draft: DraftFlag = False,
    timeline: Timeline = False,
    json: Json = False,
) -> None:
    """Print the plan of one K2 build."""
    from ..runtime.plan import BuildKey

    key = BuildKey("k2", arch, tp or 0, rows, ratio, index=index, draft=draft, timeline=timeline)
    print_key(key, default_tp=tp is None, json=json)


def ffn(
    arch: Arch,
    rows: Rows,
    tp: Tp = None,
    draft: DraftFlag = False,
    timeline: Timeline = False,
    json: Json = False,
) -> None:
    """Print the plan of one FFN launch."""
    from ..runtime.plan import BuildKey

    key = BuildKey("ffn", arch, tp or 0, rows, draft=draft, timeline=timeline)
    print_key(key, default_tp=tp is None, json=json)


def keylist(arch: Arch, rows: Rows, tp: Tp = None, ratio: Ratio = 2, json: Json = False) -> None:
    """Print the plan of one key-list launch."""
    from ..runtime.plan import BuildKey

    print_key(BuildKey("keylist", arch, tp or 0, rows, ratio), default_tp=tp is None, json=json)


def layer(
    arch: Arch,
    rows: Rows,
    number: Annotated[int, typer.Option("--layer", help="Layer of the model; draft layers come last.")] = 3,
    tp: Tp = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Also write it, and more, as one HTML file that opens offline."),
    ] = None,
    json: Json = False,
) -> None:
    """Draw a layer: its launches, workgroups x stages, hand-offs and bytes."""
    from ..runtime.plan import Unsupported, plan_layer
    from ..runtime.plan.export import refusal_json, to_json
    from ..specs import load

    specs = load()
    try:
        plan = plan_layer(specs, arch, _tp(specs, arch, tp), rows, number)
    except Unsupported as refused:
        if not json:
            raise
        typer.echo(refusal_json(refused), nl=False)
        raise typer.Exit(refused.exit_code) from None
    if html is not None:
        from ..runtime.files import write_atomically
        from ..runtime.report.layer import layer_html

        write_atomically(html, layer_html(plan).encode())
    if json:
        typer.echo(to_json(plan), nl=False)
    else:
        from .plan_layer import print_layer

        print_layer(plan)


def memory(
    arch: Arch,
    tp: Tp = None,
    rows: Annotated[
        str, typer.Option(help="Step widths that get a scratch buffer, by commas.")
    ] = "6,12,18,24,36,42",
    stock_drafts: Annotated[
        bool, typer.Option("--stock-drafts", help="Draft layers take the FFN launch instead of whole layers.")
    ] = False,
    percent: Annotated[int, typer.Option(min=1, max=100, help="Share of the GPU that vLLM may use.")] = 90,
    loaded_gib: Annotated[float | None, typer.Option(help="GiB of vLLM's own weights on a rank.")] = None,
    json: Json = False,
) -> None:
    """Print the bytes of a rank: weight copies, buffers, and what is left for the KV cache."""
    from ..runtime.plan.export import to_json
    from ..specs import load
    from .plan_memory import print_memory, statement

    specs = load()
    done = statement(
        specs, arch, _tp(specs, arch, tp), rows, whole_drafts=not stock_drafts, percent=percent,
        loaded_gib=loaded_gib,
    )  # fmt: skip
    if json:
        typer.echo(to_json(done), nl=False)
    else:
        print_memory(done)


def show_build(
    build: Annotated[str, typer.Argument(help="Build id, for example dsv41_k1-gfx942-tp4-s6-r2.")],
    json: Json = False,
) -> None:
    """Print the plan of a build by its id."""
    from ..runtime.plan import BuildKey

    print_key(BuildKey.parse(build), default_tp=False, json=json)


def _tp(specs: Specs, arch: str, tp: int | None) -> int:
    """The TP size asked for, else the arch's first; an unknown arch is refused later, with its own reason."""
    offered = specs.arch.get(arch)
    return tp if tp is not None else (offered.tp[0] if offered else 1)


def print_key(key: BuildKey, *, default_tp: bool, json: bool) -> None:
    """Plan `key` and print it; a refusal goes to stderr (as JSON to stdout) with exit code 2."""
    from dataclasses import replace

    from ..runtime.plan import Unsupported, plan_of, refusal_json, to_json
    from ..specs import load

    specs = load()
    if default_tp:
        key = replace(key, tp=_tp(specs, key.arch, None))
    try:
        plan = plan_of(specs, key)
    except Unsupported as refused:
        if not json:
            raise
        typer.echo(refusal_json(refused), nl=False)
        raise typer.Exit(refused.exit_code) from None
    if json:
        typer.echo(to_json(plan), nl=False)
    else:
        from .plan_tables import print_plan

        print_plan(plan)
