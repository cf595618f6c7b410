"""`flymono diff REV`: what the working tree changes in every build, against a revision."""

from __future__ import annotations

import json as json_
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..gen.diff import Change

TITLES = {
    "vgprs": "VGPR",
    "agprs": "AGPR",
    "sgprs": "SGPR",
    "vgpr_spills": "VGPR spills",
    "sgpr_spills": "SGPR spills",
    "lds_bytes": "LDS",
    "scratch_bytes": "scratch",
    "kernarg_bytes": "kernarg",
    "instructions": "instructions",
}


def register(app: typer.Typer) -> None:
    """Add `flymono diff` to the app."""
    app.command("diff")(diff)


def diff(
    rev: Annotated[str, typer.Argument(help="A git revision: HEAD, main, a commit.")],
    filters: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID...]", help="Builds to compare; default: every shipped build."),
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Compilations at a time.")] = None,
    source: Annotated[
        bool, typer.Option("--source", help="Also print the differences of the generated sources.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="The comparison as JSON.")] = False,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 if anything differs.")] = False,
) -> None:
    """Compare every build with REV: source, instructions, registers, LDS."""
    from ..gen.build import Settings, build_all
    from ..gen.diff import build_revision, compare, read_builds, revision
    from ..gen.store import Store
    from ..gen.units import unit_of
    from ..specs.loader import load
    from .build import as_data, default_jobs
    from .keys import selected

    specs = load()
    units = [unit_of(specs, key) for key in selected(specs, filters or ())]
    with revision(rev, Path(__file__).resolve().parent.parent) as tree:
        print(f"building {rev} ...", file=sys.stderr)
        before = build_revision(tree, filters or (), jobs or default_jobs())
        print("building the working tree ...", file=sys.stderr)
        after = read_builds(
            [as_data(o) for o in build_all(units, Settings(Store(), jobs=jobs or default_jobs()))]
        )
    changes = compare(before, after)
    print(json_.dumps([as_json(c) for c in changes], indent=1) if json else report(changes, source))
    if exit_code and any(c.kind != "same" for c in changes):
        raise typer.Exit(1)


def as_json(change: Change) -> dict[str, Any]:
    """One comparison as JSON."""
    return {
        "id": change.id,
        "kind": change.kind,
        "figures": {k: list(v) for k, v in change.figures.items()},
        "error": change.after.error if change.after else "",
        "source": change.source_diff(),
    }


def report(changes: list[Change], source: bool) -> str:
    """Lines for people: builds that differ with their figures, then how many of each kind."""
    from ..gen.text import delta

    lines = []
    for c in changes:
        if c.kind == "same":
            continue
        figures = ", ".join(f"{TITLES[k]} {delta(*v)}" for k, v in c.figures.items())
        text = {
            "added": "new build",
            "removed": "no longer a build",
            "failed": f"fails: {c.after.error if c.after else ''}",
            "fixed": "builds again",
            "source": "source differs, machine code is the same",
            "code": f"machine code differs: {figures or 'same figures'}",
        }[c.kind]
        lines.append(f"{c.id}: {text}")
        if source and (shown := c.source_diff()):
            lines.append(shown)
    kinds = Counter(c.kind for c in changes)
    return "\n".join(
        [*lines, f"{len(changes)} builds: " + ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))]
    )
