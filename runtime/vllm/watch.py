"""Once a step: faults of launches, and a state file for whoever looks from outside.

vLLM calls `compute_logits` (or `compute_logits_local`) of the target eagerly in every step, also where
everything else is the replay of a graph, so this is where a fault of an earlier step is raised. The draft's
runs inside its graph.
"""

from __future__ import annotations

import functools
import json
import os
import time
from pathlib import Path as FilePath
from typing import Any

from ..files import WriteError, atomic_path
from ..plan.layers import Path
from .server import Server, running

STATE = "FLYMONO_STATE"
EVERY_SECONDS = 10.0
_written = -EVERY_SECONDS


def watch_logits(model: Any) -> None:
    """Wrap both methods of vLLM's target class."""
    for name in ("compute_logits", "compute_logits_local"):
        original = getattr(model, name)

        @functools.wraps(original)
        def watched(self: Any, hidden_states: Any, original: Any = original) -> Any:
            server = running()
            if server is not None:
                server.after_step()
                save_state(server)
            return original(self, hidden_states)

        setattr(model, name, watched)


def state_of(server: Server) -> dict[str, Any]:
    """What a rank says of itself: counts are of steps whose host code ran, a graph's replays are not among
    them."""
    plan = server.plan
    return {
        "pid": os.getpid(),
        "rank": server.ranks.rank,
        "time": int(time.time()),
        "model": plan.host.model,
        "arch": plan.host.arch,
        "tp": plan.host.tp,
        "on": server.on,
        "faults": [str(r.code) for r in server.faults],
        "paths": {str(path): plan.count(path) if server.on else 0 for path in Path},
        "plan": plan.digest[:12],
        "bundle": server.kernels.id if server.kernels is not None else None,
        "limit": plan.limit,
        "widths": {_name(draft): sorted(r.buffers.widths) for draft, r in server.runners.items()},
        "bytes": {_name(draft): r.nbytes for draft, r in server.runners.items()},
        "copies": sum(one.copies.nbytes for one in server.layers.values()),
        "steps": {_name(draft): counts.data() for draft, counts in server.counts.items()},
        "logits": server.epoch_steps,
    }


def _name(draft: bool) -> str:
    return "draft" if draft else "target"


def save_state(server: Server, now: float | None = None) -> FilePath | None:
    """Write the state file if FLYMONO_STATE names a folder and the last one is old; never raises for a full
    disk."""
    global _written
    folder, at = os.environ.get(STATE), time.monotonic() if now is None else now
    if not folder or at - _written < EVERY_SECONDS:
        return None
    _written = at
    path = FilePath(folder) / f"rank{server.ranks.rank}.json"
    try:
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(state_of(server), indent=1) + "\n")
    except (WriteError, OSError):
        return None
    return path
