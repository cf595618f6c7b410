"""`flymono status`: what the ranks of a server say of themselves, in files of the folder FLYMONO_STATE."""

from __future__ import annotations

import json as json_
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

OLD_SECONDS = 60
"""A rank writes every 10 s while it serves; a file much older than that is of one that rests or died."""


def register(app: typer.Typer) -> None:
    """Add `flymono status` to the app."""
    app.command("status")(status)


def status(
    folder: Annotated[
        Path | None, typer.Argument(help="folder of the server's FLYMONO_STATE; default: the variable's")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="the ranks' files as one list")] = False,
    prometheus: Annotated[
        bool, typer.Option("--prometheus", help="as metrics in Prometheus' format")
    ] = False,
) -> None:
    """Paths by layer, widths, steps by reason, faults and memory of every rank of a server."""
    from ..specs.findings import UserError

    place = folder or (Path(v) if (v := os.environ.get("FLYMONO_STATE")) else None)
    if place is None:
        fix = "flymono status FOLDER, or set FLYMONO_STATE as the server has it"
        raise UserError("no folder of a server's state is named", fix=fix)
    ranks = read(place)
    if json and prometheus:
        raise UserError("--json and --prometheus are two formats", fix="leave one out")
    if prometheus:
        from .status_metrics import text

        print(text(ranks, time.time()), end="")
    elif json:
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
    """Lines of one rank. Replays of a captured graph are no decided steps: no host code runs in them."""
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
            f"  {name:<8} {steps['taken']} of {steps['steps']} decided steps taken, widths {widths}"
            + (f"; not: {declined}" if declined else "")
        )
    sizes = memory_of(state).items()
    lines.append("  memory   " + ", ".join(f"{what} {size / (1 << 30):.2f} GiB" for what, size in sizes))
    return lines


def memory_of(state: Mapping[str, Any]) -> dict[str, int]:
    """Bytes by use."""
    return {"copies": state["copies"], **{f"{name} runner": size for name, size in state["bytes"].items()}}


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
