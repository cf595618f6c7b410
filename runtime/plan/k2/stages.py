"""Which workgroup runs which task of K2's attention half (attention.md 5.3).

Invariant: split, combine and wo_a follow one another around the grid, so that a step of few rows finds a free
workgroup for each task; wo_b goes on from there and has two tasks on some.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..arith import cdiv
from ..dims import TILE_ROWS, Dims
from ..keys import BuildKey
from ..lds import WAVES
from ..placement import BLOCK, Stage, gemv_shape, paired_shape, stage_of
from .lds import Split

ORDER = ("mark", "kt", "split", "combine", "wo_a", "wo_b")
"""Stages of the attention half, in program order."""
COMBINE_HEADS = WAVES
"""Heads of a combine task: a wave each."""


@dataclass(frozen=True)
class AttentionShape:
    """Counts and bases of the attention half."""

    split: Split
    split_tasks: int
    combine_tasks: int
    combine_per_row: int
    combine_per_group: int
    lane_dims: int  # dims of a head that a lane of combine holds
    wo_a_tasks: int
    wo_a_per_group: int
    wo_b_tasks: int
    combine_first: int
    wo_a_first: int
    wo_b_first: int
    early_wo_b: bool  # wo_b's weights are asked for ahead of the wo_a stage
    kt_inside: bool  # the key table of an index layer is made here


def attention_shape(d: Dims, key: BuildKey, split: Split, grid: int) -> AttentionShape:
    """The attention half of a build."""
    splits = key.rows * split.chunks
    per_row, wo_a = d.heads // COMBINE_HEADS, d.o_rows // (2 * TILE_ROWS)
    combines = key.rows * per_row
    return AttentionShape(
        split=split,
        split_tasks=splits,
        combine_tasks=combines,
        combine_per_row=per_row,
        combine_per_group=per_row // d.groups,
        lane_dims=d.head_dim // 64,
        wo_a_tasks=wo_a,
        wo_a_per_group=wo_a // d.groups,
        wo_b_tasks=d.hidden // TILE_ROWS,
        combine_first=splits % grid,
        wo_a_first=(splits + combines) % grid,
        wo_b_first=((splits + combines) % grid + wo_a) % grid,
        early_wo_b=splits + combines + wo_a <= grid,
        kt_inside=key.index,
    )


def attention_stages(d: Dims, key: BuildKey, a: AttentionShape, grid: int) -> tuple[Stage, ...]:
    """kt, split, combine, wo_a, wo_b; `mark` comes before them."""
    return (_key_table(key.rows, a, grid), *_flash(a, grid), *_output(d, a, grid))


def _key_table(rows: int, a: AttentionShape, grid: int) -> Stage:
    return stage_of(
        grid,
        "kt",
        rows if a.kt_inside else 0,
        grid - rows,
        rows,
        BLOCK,
        "key table of one row, stored and read past the L2: kt and klen are handed on in this launch",
        (),
        ("krdy",),
        "on the last workgroups, which have no split task while there are few"
        if a.kt_inside
        else "none: K1 or the key-list launch made it",
    )


def _flash(a: AttentionShape, grid: int) -> tuple[Stage, ...]:
    krdy = ("split_krdy",) if a.kt_inside else ()
    combine_waits = ("combine_krdy", "combine_srdy") if a.kt_inside else ("combine_srdy",)
    return (
        stage_of(
            grid,
            "split",
            a.split_tasks,
            0,
            grid,
            BLOCK,
            f"{a.split.chunk} keys of one row, all heads: task row*{a.split.chunks} + chunk",
            krdy,
            ("part", "pstat", "srdy"),
            f"a chunk without live keys ends at once and publishes nothing; {a.split.why}",
        ),
        stage_of(
            grid,
            "combine",
            a.combine_tasks,
            a.combine_first,
            grid,
            BLOCK,
            f"{COMBINE_HEADS} heads of one row, a wave each: task row*{a.combine_per_row} + heads",
            combine_waits,
            ("xo", "xos", "crdy"),
            "right after the splits",
        ),
    )


def _output(d: Dims, a: AttentionShape, grid: int) -> tuple[Stage, ...]:
    return (
        stage_of(
            grid,
            "wo_a",
            a.wo_a_tasks,
            a.wo_a_first,
            grid,
            BLOCK,
            f"32 rows of one group, all rows of the step: task group*{a.wo_a_per_group} + i",
            ("wo_a_crdy",),
            ("x8b", "x8bs", "ardy"),
            "right after the combines, at most one a workgroup",
            paired_shape(d.o_rows, d.group_k),
        ),
        stage_of(
            grid,
            "wo_b",
            a.wo_b_tasks,
            a.wo_b_first,
            grid,
            BLOCK,
            "16 hidden rows, all rows of the step, pushed to every rank",
            ("wo_b_ardy",),
            ("attn",),
            f"right after wo_a; at most {cdiv(a.wo_b_tasks, grid)} a workgroup"
            + (", weights asked for ahead of wo_a" if a.early_wo_b else ""),
            gemv_shape(d.hidden, d.o_rows),
        ),
    )
