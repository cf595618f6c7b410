"""Wait sites of a launch: who waits for whom, and on which region (attention.md 5.7, 5.9).

Invariants
 - A site's consumer comes after its producer in program order. With every workgroup resident and walking
   the stages in the same order, no cycle of waits can form.
 - A wait is bounded by the launch argument `bound` (`faults.py`): a lost hand-off has a name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .faults import MOST_SITES
from .placement import Stage

Space = Literal["scratch", "peer", "epoch"]
"""Which buffer a region lies in."""
BATCH = 12
"""Loads (of one or two pairs) that one poll batch may hold: bounds live registers (attention.md 5.7)."""


@dataclass(frozen=True)
class Site:
    """One place of the kernel that may block. `awaited` counts the pairs or flags of a task."""

    id: int
    name: str
    stage: str
    producer: str
    region: str
    kind: str  # pairs, flags, or words of the epoch buffer
    awaited: int
    threads: int
    load_pairs: int  # adjacent pairs (or flags) of one load: 2 where a lane owns even columns
    batches: tuple[int, ...]  # loads of each poll batch of one lane
    hold: int  # 1: it waits. Tests take hand-offs out with other numbers (mono/mailbox.py)
    all_tasks: bool  # waits for every task of the producer (every K1 site does)
    space: Space = "scratch"  # where the region lies
    ranks: int = 1  # ranks whose tasks are awaited


@dataclass(frozen=True)
class Wanted:
    """A site before it has an id; fields as in `Site`."""

    name: str
    stage: str
    producer: str
    region: str
    kind: str
    awaited: int
    threads: int
    load_pairs: int
    batches: tuple[int, ...]
    all_tasks: bool
    space: Space = "scratch"
    ranks: int = 1


def numbered(wanted: Sequence[Wanted]) -> tuple[Site, ...]:
    """Sites in program order; ids start at 1, since 0 means no site."""
    assert len(wanted) <= MOST_SITES
    return tuple(
        Site(
            i + 1,
            w.name,
            w.stage,
            w.producer,
            w.region,
            w.kind,
            w.awaited,
            w.threads,
            w.load_pairs,
            w.batches,
            1,
            w.all_tasks,
            w.space,
            w.ranks,
        )
        for i, w in enumerate(wanted)
    )


def batches_of(loads: int) -> tuple[int, ...]:
    """`loads` loads cut into poll batches of at most `BATCH`."""
    full, rest = divmod(loads, BATCH)
    return (BATCH,) * full + ((rest,) if rest else ())


def order_faults(sites: Sequence[Site], stages: Sequence[Stage], wanted: Sequence[str]) -> list[str]:
    """Sites whose producer does not come before its consumer or name no stage, or stages not as `wanted`."""
    order = {s.name: i for i, s in enumerate(stages)}
    faults = [f"{s.name}: no stage {x!r}" for s in sites for x in (s.stage, s.producer) if x not in order]
    faults += [
        f"{s.name}: {s.stage} waits for {s.producer}, which does not come before it"
        for s in sites
        if s.stage in order and s.producer in order and order[s.producer] >= order[s.stage]
    ]
    if tuple(order) != tuple(wanted):
        faults.append(f"stages are {tuple(order)}, the launch's order is {tuple(wanted)}")
    return faults
