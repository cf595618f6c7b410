"""Wait sites of K2's attention half (attention.md 5.7 and 5.9)."""

from __future__ import annotations

from ..arith import cdiv
from ..placement import BLOCK
from ..waits import Wanted, batches_of
from .stages import AttentionShape


def attention_sites(rows: int, a: AttentionShape) -> list[Wanted]:
    """In program order. `combine_srdy` awaits the live chunks of its row alone."""
    chunks, group = a.split.chunks, rows * a.combine_per_group
    kt = [
        Wanted("split_krdy", "split", "kt", "krdy", "flags", 1, 1, 1, (1,), False),
        Wanted("combine_krdy", "combine", "kt", "krdy", "flags", 1, 1, 1, (1,), False),
    ]
    split = [
        Wanted("combine_srdy", "combine", "split", "srdy", "flags", chunks, chunks, 1, (1,), False),
    ]
    rest = [
        _flags("wo_a_crdy", "wo_a", "combine", "crdy", group, all_tasks=False),
        _flags("wo_b_ardy", "wo_b", "wo_a", "ardy", a.wo_a_tasks, all_tasks=True),
    ]
    return [*kt, *split, *rest] if a.kt_inside else [*split, *rest]


def _flags(name: str, stage: str, producer: str, region: str, count: int, *, all_tasks: bool) -> Wanted:
    """Flags dealt out to the lanes of a workgroup, one a lane and load."""
    threads, batches = min(count, BLOCK), batches_of(cdiv(count, BLOCK))
    return Wanted(name, stage, producer, region, "flags", count, threads, 1, batches, all_tasks)
