<<<<<<< HEAD
"""`flymono status`: what the ranks of a server say of themselves, in files of the folder FLYMONO_STATE."""
=======
"""`flymono status`: what the ranks of a server said of themselves last (runtime.vllm.watch writes it)."""
>>>>>>> vllm

from __future__ import annotations

import json as json_
import os
import time
<<<<<<< HEAD
from collections.abc import Mapping
=======
>>>>>>> vllm
from pathlib import Path
from typing import Annotated, Any

import typer

<<<<<<< HEAD
OLD_SECONDS = 60
"""A rank writes every 10 s while it serves; a file much older than that is of one that rests or died."""


def register(app: typer.Typer) -> None:
    """Add `flymono status` to the app."""
=======
from ..specs.findings import UserError

VARIABLE = "FLYMONO_STATE"
STALE = 60
"""Seconds after which a rank that writes every 10 is called silent."""


def register(app: typer.Typer) -> None:
    """Add the command."""
>>>>>>> vllm
    app.command("status")(status)


def status(
    folder: Annotated[
<<<<<<< HEAD
        Path | None, typer.Argument(help="folder of the server's FLYMONO_STATE; default: the variable's")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="the ranks' files as one list")] = False,
) -> None:
    """Paths by layer, widths, steps by reason, faults and memory of every rank of a server."""
    from ..specs.findings import UserError

    place = folder or (Path(v) if (v := os.environ.get("FLYMONO_STATE")) else None)
    if place is None:
        fix = "flymono status FOLDER, or set FLYMONO_STATE as the server has it"
        raise UserError("no folder of a server's state is named", fix=fix)
    ranks = read(place)
    if json:
        print(json_.dumps(ranks, indent=1))
    else:
        print("\n".join(line for rank in ranks for line in told(rank, time.time())))
    raise typer.Exit(1 if any(r["faults"] or not r["on"] for r in ranks) else 0)


def read(place: Path) -> list[dict[str, Any]]:
    """Every rank's state, by rank. UserError for a folder without one, or with a file that is none."""
    from ..specs.findings import UserError

    ranks = list[dict[str, Any]]()
    for path in sorted(place.glob("rank*.json")):
        try:
            state = json_.loads(path.read_text())
            ranks.append({**state, "rank": int(state["rank"])})
        except (ValueError, KeyError, TypeError) as error:
            what = f"{path} is not a rank's state: {type(error).__name__} {error}"
            raise UserError(what, fix="remove it; a running server writes it anew") from None
    if not ranks:
        fix = "start the server with FLYMONO_STATE set to that folder, and let it take a step"
        raise UserError(f"no rank has written its state to {place}", fix=fix)
    return sorted(ranks, key=lambda r: r["rank"])


def told(state: Mapping[str, Any], now: float) -> list[str]:
    """Lines of one rank."""
    age = max(0, int(now - state["time"]))
    alive = _alive(int(state["pid"]))
    head = f"rank {state['rank']} of TP{state['tp']} on {state['arch']}, process {state['pid']}"
    head += "" if alive else " (gone)"
    head += f", {age} s ago" + (": it rests, or died" if age > OLD_SECONDS and alive else "")
    paths = ", ".join(f"{count} {path}" for path, count in state["paths"].items() if count)
    lines = [
        head,
        f"  layers   {paths or 'none on the kernels'}; plan {state['plan']}, bundle {state['bundle']}",
    ]
    if state["faults"]:
        lines.append(f"  off      {', '.join(state['faults'])} (flymono codes CODE)")
    for name, steps in state["steps"].items():
        widths = ", ".join(map(str, state["widths"].get(name, ()))) or "none"
        declined = ", ".join(f"{n} {code}" for code, n in steps.get("reasons", {}).items())
        lines.append(
            f"  {name:<8} {steps['taken']} steps taken, widths {widths}"
            + (f"; not: {declined}" if declined else "")
        )
    sizes = [("copies", state["copies"]), *((f"{n} runner", b) for n, b in state["bytes"].items())]
    lines.append("  memory   " + ", ".join(f"{what} {size / (1 << 30):.2f} GiB" for what, size in sizes))
    return lines


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
=======
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
>>>>>>> vllm
