"""`flymono plan k1|show`: every number of a build, for people (tables) or for programs (`--json`).

A refused key is an answer: all reasons and the nearest supported build are printed, with exit code 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..runtime.plan import BuildKey


def register(app: typer.Typer) -> None:
    """Add the `plan` command group."""
    group = typer.Typer(no_args_is_help=True, help="Print the plan of a kernel build.")
    group.callback()(_group)
    group.command("k1")(k1)
    group.command("show")(show_build)
    app.add_typer(group, name="plan")


def _group() -> None:
    """Print the plan of a kernel build: every number that its generated source carries."""


def k1(
    arch: Annotated[str, typer.Option(help="Arch spec, for example gfx942.")],
    rows: Annotated[int, typer.Option(help="Rows of the step.")],
    tp: Annotated[int | None, typer.Option(help="Tensor-parallel size; default: the arch's first.")] = None,
    ratio: Annotated[int, typer.Option(help="Compress ratio of the layer: 0, 1 or 2.")] = 2,
    no_fold: Annotated[bool, typer.Option("--no-fold", help="The residual arrives folded.")] = False,
    index: Annotated[bool, typer.Option("--index", help="An index-source layer.")] = False,
    window: Annotated[int, typer.Option(help="Width of the window list.")] = 128,
    timeline: Annotated[bool, typer.Option("--timeline", help="A build that records times.")] = False,
    json: Annotated[bool, typer.Option("--json", help="The whole plan as JSON.")] = False,
) -> None:
    """Print the plan of one K1 build."""
    from ..runtime.plan import BuildKey

    key = BuildKey("k1", arch, tp or 0, rows, ratio, not no_fold, index, window, timeline)
    print_key(key, default_tp=tp is None, json=json)


def show_build(
    build: Annotated[str, typer.Argument(help="Build id, for example dsv41_k1-gfx942-tp4-s6-r2.")],
    json: Annotated[bool, typer.Option("--json", help="The whole plan as JSON.")] = False,
) -> None:
    """Print the plan of a build by its id."""
    from ..runtime.plan import BuildKey

    print_key(BuildKey.parse(build), default_tp=False, json=json)


def print_key(key: BuildKey, *, default_tp: bool, json: bool) -> None:
    """Plan `key` and print it; a refusal goes to stderr (as JSON to stdout) with exit code 2."""
    from dataclasses import replace

    from ..runtime.plan import Unsupported, plan_k1, refusal_json, to_json
    from ..specs import load

    specs = load()
    offered = specs.arch.get(key.arch)
    if default_tp:
        key = replace(
            key, tp=offered.tp[0] if offered else 1
        )  # an unknown arch is refused with its own reason
    try:
        plan = plan_k1(specs, key)
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
