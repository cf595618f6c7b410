"""`flymono build`: compile shipped builds, show their figures, fail if one fails."""

from __future__ import annotations

import json as json_
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..gen.build import Outcome
    from ..gen.unit import Unit


def register(app: typer.Typer) -> None:
    """Add `flymono build` to the app."""
    app.command("build")(build)


def build(
    filters: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID...]", help="Build ids, parts of ids, or globs; default: every shipped build."
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, help="Compilations at a time; default: CPUs, at most 4."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON list on stdout.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Artefact folder; default: FLYMONO_CACHE, else the user's cache."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Compile again what is there.")] = False,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="Deadline of one compilation.")
    ] = 600.0,
    list_: Annotated[bool, typer.Option("--list", help="Only print the ids.")] = False,
) -> None:
    """Build kernels: registers, spills, LDS and instructions of each. Exit code 1 if any fails."""
    from ..gen.build import Settings, build_all
    from ..gen.probes import require
    from ..gen.store import Store
    from ..gen.units import unit_of
    from ..specs.findings import check_all
    from ..specs.loader import load
    from .keys import selected

    specs = load()
    keys = selected(specs, filters or ())
    if list_:
        print("\n".join(key.id for key in keys))
        return
    units: list[Unit] = []
    check_all(*(lambda key=key: units.append(unit_of(specs, key)) for key in keys))
    settings = Settings(Store(out), jobs=jobs or default_jobs(), seconds=timeout, force=force)
    for arch in sorted({key.arch for key in keys}):
        require(specs.arch[arch], settings.store.root)
    with progress(len(units), quiet=json) as advance:
        outcomes = build_all(units, settings, advance or (lambda outcome: None))
    print(
        json_.dumps([as_data(o) for o in outcomes], indent=1)
        if json
        else _table(outcomes, settings.store.root),
        end="\n" if json else "",
    )
    complain(outcomes)


def default_jobs() -> int:
    """One compilation a CPU that this process may use, at most 4: each takes about 1 GB of memory."""
    return max(1, min(len(os.sched_getaffinity(0)), 4))


def as_data(outcome: Outcome) -> dict[str, Any]:
    """One build as JSON: figures, or what went wrong."""
    from dataclasses import asdict

    base: dict[str, Any] = {
        "id": outcome.unit.id,
        "ok": outcome.artefact is not None,
        "cached": outcome.cached,
    }
    if outcome.artefact is None:
        return {**base, "findings": [f.to_json() for f in outcome.error.findings] if outcome.error else []}
    a = outcome.artefact
    figures = asdict(a.resources)
    return {
        **base,
        "kernel": figures.pop("name"),
        **figures,
        "key": a.key,
        "folder": str(a.folder),
        "hsaco_bytes": len(a.hsaco),
        "mfma": dict(a.manifest["mfma_by_stage"]),
        "unchecked": a.manifest["unchecked"],
    }


class Progress(AbstractContextManager[Any]):
    """A rich progress bar on stderr that is told each outcome."""

    def __init__(self, total: int) -> None:
        from rich import progress as shown
        from rich.console import Console

        self.bar = shown.Progress(
            shown.TextColumn("{task.description}"),
            shown.BarColumn(),
            shown.MofNCompleteColumn(),
            shown.TimeElapsedColumn(),
            shown.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self.task = self.bar.add_task("building", total=total)

    def __enter__(self) -> Any:
        self.bar.start()
        return self.advance

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def advance(self, outcome: Outcome) -> None:
        """Count one outcome; a failure is printed at once."""
        if outcome.error is not None:
            self.bar.console.print(f"FAILED {outcome.unit.id}", style="red", highlight=False)
        self.bar.update(self.task, advance=1, description=outcome.unit.id)


def progress(total: int, quiet: bool) -> AbstractContextManager[Any]:
    """What `build_all` tells each outcome: a bar on a terminal, else None."""
    return nullcontext(None) if quiet or not sys.stderr.isatty() else Progress(total)


def _table(outcomes: list[Outcome], root: Path) -> str:
    """Plain text, one line a build, aligned; wide enough ids are never cut."""
    width = max((len(o.unit.id) for o in outcomes), default=5)
    lines = [
        f"{'build':<{width}}  {'VGPR':>5} {'SGPR':>5} {'spills':>6} {'LDS':>8} {'instructions':>12}  state"
    ]
    for o in outcomes:
        if o.artefact is None:
            lines.append(f"{o.unit.id:<{width}}  {'-':>5} {'-':>5} {'-':>6} {'-':>8} {'-':>12}  FAILED")
            continue
        r = o.artefact.resources
        state = "cached" if o.cached else f"built in {o.seconds:.1f} s"
        figures = f"{r.vgprs:>5} {r.sgprs:>5} {r.vgpr_spills + r.sgpr_spills:>6} {r.lds_bytes:>8,}"
        lines.append(f"{o.unit.id:<{width}}  {figures} {r.instructions:>12,}  {state}")
    return "\n".join(lines) + f"\nartefacts: {root}\n"


def complain(outcomes: list[Outcome]) -> None:
    """Print every finding of every failure; exit 1 if there was one, 2 if only the store was at fault."""
    from ..gen.findings import StoreError

    failed = [o for o in outcomes if o.error is not None]
    for outcome in failed:
        print(f"\n{outcome.unit.id} failed:\n{outcome.error}", file=sys.stderr)
    if failed:
        print(f"\nerror: {len(failed)} of {len(outcomes)} builds failed", file=sys.stderr)
        raise typer.Exit(2 if all(isinstance(o.error, StoreError) for o in failed) else 1)
