"""`flymono status`: what the ranks of a server said of themselves last (runtime.vllm.watch writes it)."""

from __future__ import annotations

import json as json_
import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ..specs.findings import UserError

VARIABLE = "FLYMONO_STATE"
STALE = 60
"""Seconds after which a rank that writes every 10 is called silent."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("status")(status)


def status(
    folder: Annotated[
        Path | None, typer.Argument(help=f"Folder of the state files; {VARIABLE} by default.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The files as one JSON object, by rank.")] = False,
) -> None:
    """Print what each rank of a running server says: paths, widths, steps by reason, memory, faults."""
    place = folder or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if place is None:
        raise UserError("no folder of state files", fix=f"name one, or set {VARIABLE} as the server has it")
    found = read(place)
    if json:
        typer.echo(json_.dumps({str(one["rank"]): one for one in found}, indent=1))
        return
    for one in found:
        typer.echo("\n".join(lines(one, time.time())))


def read(place: Path) -> list[dict[str, Any]]:
    """Every rank's file, by rank. Raises UserError if there is none or one cannot be read."""
    files = sorted(place.glob("rank*.json"))
    if not files:
        raise UserError(f"{place} has no state files", fix=f"start the server with {VARIABLE}={place}")
    found = []
    for file in files:
        try:
            found.append(json_.loads(file.read_text()))
        except (OSError, ValueError) as error:
            raise UserError(
                f"{file} cannot be read: {error}", fix="delete it; the server writes it anew"
            ) from None
    return sorted(found, key=lambda one: int(one["rank"]))


def lines(one: dict[str, Any], now: float) -> list[str]:
    """A rank in words."""
    age = int(now - one["time"])
    late = f", silent for {age} s" if age > STALE else ""
    paths = ", ".join(f"{count} {path}" for path, count in one["paths"].items())
    state = "on" if one["on"] else "off: " + ", ".join(one["faults"])
    out = [
        f"rank {one['rank']}: {one['model']} on {one['arch']} TP{one['tp']}, {state}{late}",
        f"  layers: {paths}; plan {one['plan']}, bundle {one['bundle']}",
        f"  memory: {one['copies'] >> 20} MiB of weight copies"
        + "".join(f", {nbytes >> 20} MiB of the {name}'s runner" for name, nbytes in one["bytes"].items()),
    ]
    for name, steps in one["steps"].items():
        why = "".join(f", {count} {code}" for code, count in steps["reasons"].items())
        widths = ",".join(map(str, one["widths"].get(name, []))) or "none"
        out.append(
            f"  {name}: widths {widths}; {steps['taken']} of {steps['steps']} steps decided on kernels{why}"
        )
    return [*out, "  (replays of a captured graph are not among these steps)"]
