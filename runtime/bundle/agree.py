"""What host and kernel must agree on: a build whose plan says something else here must not be launched.

The launch arguments are compared one by one, so that a refusal can name the first that differs. Where
scratch and peer regions lie, the words of the epoch buffer and the tags are literals of the code object
that no argument shows: a digest stands for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from ..plan import Abi, KernelPlan, to_data
from .entry import sha256

_PLACE = ("name", "offset", "bytes", "kind", "shares")


def host_digest(plan: KernelPlan) -> str:
    """Digest of the launch's size, its memory layout, tags and epoch words; texts do not enter it."""
    peer = getattr(plan, "peer", None)
    data = {
        "grid": [plan.grid, plan.block, plan.waves],
        "scratch": [plan.scratch.total, *_places(plan.scratch.regions)],
        "peer": [] if peer is None else [peer.half_bytes, peer.total, *_places(peer.regions.regions)],
        "tags": [to_data(rule) for rule in plan.tags.rules],
        "epoch": to_data(plan.epoch),
    }
    return sha256(json.dumps(data, sort_keys=True).encode())


def _places(regions: Iterable[object]) -> Iterator[list[object]]:
    return ([getattr(region, name) for name in _PLACE] for region in regions)


def abi_difference(made: Abi, planned: Abi) -> str:
    """The first difference between two ABIs, as a person would say it; empty if there is none."""
    names = [a.name for a in made.arguments], [a.name for a in planned.arguments]
    if names[0] != names[1]:
        n = next((i for i, (a, b) in enumerate(zip(*names, strict=False)) if a != b), min(map(len, names)))
        shown = [listed[n] if n < len(listed) else "none" for listed in names]
        return f"argument {n + 1} is {shown[0]}, the plan's is {shown[1]}"
    for a, b in zip(made.arguments, planned.arguments, strict=True):
        for field in ("type", "dtype", "shape", "owner", "read", "written", "offset"):
            if getattr(a, field) != getattr(b, field):
                return (
                    f"argument {a.name} has {field} {getattr(a, field)}, the plan's has {getattr(b, field)}"
                )
    if made.kernarg_bytes != planned.kernarg_bytes:
        return f"the arguments take {made.kernarg_bytes} bytes, the plan's {planned.kernarg_bytes}"
    return ""
