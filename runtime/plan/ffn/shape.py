"""Counts and bases of the FFN half: experts, picks, tiles, parts, router groups (ffn_structure.md 1).

Invariants
 - A pick is one (row, expert) pair; a slot is one distinct expert of the step; a pick tile is at most
   `pick_width` picks of one slot. The number of slots is known at run time only: tasks are bounded by
   `max_slots` (one tile) or `max_tiles`.
 - Roles that a workgroup has to finish early (quantising, routing) do not queue behind long ones: bases
   follow one another around the grid.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....specs.schema import ArchSpec
from ..arith import align_up, cdiv
from ..dims import TILE_ROWS, Dims
from ..lds import WAVE, WAVES
from ..strategy import Strategy

ROUTER_PARTS = 4
"""K quarters of a router task: its parts sit on consecutive workgroups."""
ROUTER_STEP_K = 32
ROUTE_COPIES = 8
"""Copies of the routing, so that not every workgroup polls the same lines."""
DOWN_PICKS = 16
"""Picks of one down pass: the columns of an MFMA, since MID goes to registers and needs no LDS."""
TARGET_GROUPS = 2
DRAFT_GROUPS = 1
"""FP4 groups (of 32 columns) of one routed gate/up task; few experts need more, smaller tasks."""
SPACE = 8
"""Workgroups kept between short roles at least, so that rows of a small step do not crowd."""


@dataclass(frozen=True)
class FfnShape:
    """Every count of the FFN half at one step width. `width`: rows of a token tile; `pick_width`: picks of a
    pick tile; `by_tile`: more rows than a pick tile holds, so that experts are cut into tiles and queued."""

    rows: int
    experts: int
    per_token: int
    picks: int
    max_slots: int
    max_tiles: int
    width: int
    tiles: int
    pick_width: int
    by_tile: bool
    groups: int  # FP4 groups of a rank's expert
    groups_per_task: int
    parts: int
    ug_tasks: int  # upper bound
    k_slices: int  # K slices of a gate/up task, one a group of waves
    k_block: int  # K columns of x in LDS at a time
    router_groups: int
    router_rows: int  # rows of a router group
    router_per_group: int
    router_tasks: int
    router_tiles: int  # MFMA column tiles of a group
    router_steps: int  # MFMA steps of a wave and tile
    route_lists: int  # experts a lane of the route stage
    shared_per_tile: int
    shared_units: int
    down_tasks: int
    down_extra: int  # tasks past the grid, run by the workgroups that arrive first
    router_first: int
    route_first: int
    shared_first: int
    ug_first: int
    line: int  # bytes of a cache line
    loaded: int  # columns of an expert as w13 lies in memory
    route_copies: int
    mid_row: int  # bytes from pick to pick of MID
    mids_row: int  # words from pick to pick of MID's codes: whole lines


@dataclass(frozen=True)
class Mixture:
    """Which expert mixture: the target's, or a draft layer's."""

    experts: int
    per_token: int


def mixture_of(d: Dims) -> Mixture:
    """The mixture of a rank's sizes."""
    return Mixture(d.experts, d.experts_per_token)


def max_tiles(mix: Mixture, rows: int, pick_width: int) -> int:
    """Pick tiles at most: one a slot, and one more for each `pick_width` picks."""
    picks = rows * mix.per_token
    return min(picks, min(picks, mix.experts) + picks // pick_width)


def staging_of(d: Dims, arch: ArchSpec, how: Strategy, rows: int, width: int) -> tuple[int, int]:
    """(picks of a tile, K columns of x in LDS at a time): whole rows where the step fits a pass; beyond, K
    blocks and the MFMA's full width of picks if the arch spec states a block, since an expert is then read
    less often."""
    block = arch.gemv.expert_k_block
    if block == "whole" or rows <= width:
        return width, d.hidden
    return how.gemv_mfma.n, min(block, d.hidden)


def groups_of(d: Dims) -> int:
    """FP4 groups of one gate/up task."""
    return DRAFT_GROUPS if d.draft else TARGET_GROUPS


def k_slices_of(d: Dims) -> int:
    """K slices of one gate/up task: two waves a group and slice."""
    return WAVES // (2 * groups_of(d))


def mids_row(d: Dims, line: int) -> int:
    """Words from row to row of MID's codes: whole lines, so that they may be loaded through the L2."""
    return align_up(d.intermediate_padded // d.mx_group, line // 4)


def router_groups_of(rows: int, width: int, per_group: int, grid: int) -> tuple[int, int]:
    """(groups, rows a group): no workgroup gets two router tasks, no group is empty."""
    groups = max(1, min(cdiv(rows, width), grid // per_group))
    each = cdiv(rows, groups)
    return cdiv(rows, each), each


def shape_of(d: Dims, rows: int, width: int, grid: int, how: Strategy, arch: ArchSpec) -> FfnShape:
    """The FFN half of a build."""
    mix, n = mixture_of(d), rows * d.experts_per_token
    pick_width, k_block = staging_of(d, arch, how, rows, width)
    tiles, most = max_tiles(mix, rows, pick_width), min(n, d.experts)
    groups, per_task = d.intermediate // d.mx_group, groups_of(d)
    parts, by_tile = cdiv(groups, per_task), rows > pick_width
    per_group = d.experts // TILE_ROWS * ROUTER_PARTS
    router_groups, router_rows = router_groups_of(rows, width, per_group, grid)
    router_tasks, units = router_groups * per_group, d.intermediate // TILE_ROWS * cdiv(rows, width)
    router_first = max(SPACE, rows)
    route_first = router_first + router_tasks
    shared_first = route_first + max(SPACE, rows)
    down = d.hidden // TILE_ROWS
    return FfnShape(
        rows=rows,
        experts=d.experts,
        per_token=d.experts_per_token,
        picks=n,
        max_slots=most,
        max_tiles=tiles,
        width=width,
        tiles=cdiv(rows, width),
        pick_width=pick_width,
        by_tile=by_tile,
        groups=groups,
        groups_per_task=per_task,
        parts=parts,
        ug_tasks=(tiles if by_tile else most) * parts,
        k_slices=k_slices_of(d),
        k_block=k_block,
        router_groups=router_groups,
        router_rows=router_rows,
        router_per_group=per_group,
        router_tasks=router_tasks,
        router_tiles=cdiv(router_rows, TILE_ROWS),
        router_steps=cdiv(d.hidden // ROUTER_PARTS // ROUTER_STEP_K, WAVES),
        route_lists=d.experts // WAVE,
        shared_per_tile=d.intermediate // TILE_ROWS,
        shared_units=units,
        down_tasks=down,
        down_extra=max(0, down - grid),
        router_first=router_first % grid,
        route_first=route_first % grid,
        shared_first=shared_first % grid,
        ug_first=(shared_first + units) % grid,
        line=arch.memory.line_bytes,
        loaded=d.intermediate_padded if how.weight_layout == "row_major" else d.intermediate,
        route_copies=ROUTE_COPIES,
        mid_row=d.intermediate_padded,
        mids_row=mids_row(d, arch.memory.line_bytes),
    )
