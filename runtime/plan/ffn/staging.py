"""How the routed gate/up may hold x in LDS, and what each way costs: a choice of the arch spec, with its
figures.

`whole`: rows of x as they are, as many picks a tile as a GEMV pass. In K blocks: the MFMA's full width of
picks, some K columns at a time, accumulators in registers: an expert with more picks than a pass is wide is
then read once, for a barrier pair more a block. An expert's weights are the largest bytes of a layer, x comes
from the L2.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....specs.schema import ArchSpec
from ..arith import cdiv
from ..dims import STEP_K, Dims
from ..strategy import Strategy
from .experts import expert_bytes
from .lds import moe_structs
from .shape import staging_of

BLOCK_STEPS = 8
"""Steps of a K block that is offered: two a K slice of a draft layer's tasks, four of the target's."""


@dataclass(frozen=True)
class Staging:
    """One way, at one step width. `worst`: every row picks the same experts."""

    name: str
    pick_width: int
    k_block: int
    lds_bytes: int
    fits: bool
    worst_reads: int  # times that the w13 of an expert with a pick of every row is read
    worst_bytes: int  # of w13 and its codes, if every row picks the same experts
    blocks: int  # K blocks of a task, each behind two barriers
    chosen: bool
    why: str


def stagings(d: Dims, rows: int, width: int, how: Strategy, arch: ArchSpec) -> tuple[Staging, ...]:
    """Whole rows, and K blocks where they differ from it; `chosen` is what `staging_of` takes."""
    n, stated = how.gemv_mfma.n, arch.gemv.expert_k_block
    block = min(d.hidden, BLOCK_STEPS * STEP_K) if stated == "whole" else stated
    taken = staging_of(d, arch, how, rows, width)
    ways = [("whole", width, d.hidden)]
    if stated != "whole" or width < n:
        ways.append(("k_blocks", n, block))
    return tuple(_staging(d, rows, width, how, arch, *way, way[1:] == taken) for way in ways)


def _staging(
    d: Dims,
    rows: int,
    width: int,
    how: Strategy,
    arch: ArchSpec,
    name: str,
    picks: int,
    block: int,
    chosen: bool,
) -> Staging:
    size = moe_structs(d, rows, width, None, picks, block)[0].bytes
    one, reads = expert_bytes(d, how), cdiv(rows, picks)
    blocks = cdiv(d.hidden, block)
    return Staging(
        name=name,
        pick_width=picks,
        k_block=block,
        lds_bytes=size,
        fits=size <= arch.workgroup.lds_bytes,
        worst_reads=reads,
        worst_bytes=d.experts_per_token * reads * (one.w13 + one.w13_s),
        blocks=blocks,
        chosen=chosen,
        why=f"{picks} picks a tile: an expert that all {rows} rows pick is read {reads} times; "
        f"{blocks} blocks of {block} columns",
    )
