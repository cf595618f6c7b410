"""The grid, and which workgroup runs which task of a stage (attention.md 5.1).

Invariants
 - All workgroups of the grid are resident at once and walk the stages in the same order.
 - Task i of a stage runs on workgroup `first + i mod span`; a workgroup runs its tasks in ascending order.
 - Stages on the path to the wqkv weights never queue behind a slice: norms and gates sit past the slices.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...specs.schema import ArchSpec
from .arith import cdiv, floor_pow2
from .dims import STEP_K, TILE_ROWS
from .unsupported import Code, Reason

BLOCK = 512
"""Lanes of a workgroup: 8 waves, two a SIMD, so that a wave may use 256 VGPRs."""


@dataclass(frozen=True)
class Grid:
    """Workgroups of the launch, all resident."""

    workgroups: int
    why: str


@dataclass(frozen=True)
class GemvShape:
    """How one GEMV task splits over the waves of a workgroup: wave w takes steps w, w + waves, ..."""

    rows: int  # weight rows of the whole GEMV
    k: int  # K columns of one task
    k_parts: int
    steps: int  # 128-wide steps of one task
    rounds: int  # steps of a wave, the last round may be ragged
    last_round_waves: int  # waves with a live step in the last round
    row_tiles: int
    task_tiles: int = 1  # 16-row tiles of one task, each with its own share of the waves
    contiguous: bool = False  # a wave takes consecutive steps instead


@dataclass(frozen=True)
class Queue:
    """How tasks past the table find a workgroup: by a counter of the epoch buffer."""

    counter: str  # ug or down
    static: int  # tasks below this one are placed by the table
    rule: str


@dataclass(frozen=True)
class Stage:
    """One task table of the launch: task i runs on workgroup (first + (i mod span) * stride) mod grid.

    A stage with a queue places its first `queue.static` tasks so; the rest go to whoever asks, and the table
    below is only one of the ways in which they may fall.
    """

    name: str
    tasks: int
    first: int
    span: int
    per_workgroup: int
    threads: int  # lanes that do work in the widest step of a task
    task: str
    waits: tuple[str, ...]  # names of wait sites
    publishes: tuple[str, ...]  # scratch regions handed on
    why: str
    grid: int
    gemv: GemvShape | None = None
    stride: int = 1
    queue: Queue | None = None

    def workgroup_of(self, task: int) -> int:
        """The workgroup that runs `task`."""
        return (self.first + task % self.span * self.stride) % self.grid

    def tasks_of(self, workgroup: int) -> tuple[int, ...]:
        """The tasks of a workgroup, in the order it runs them."""
        start, between = divmod((workgroup - self.first) % self.grid, self.stride)
        return tuple(range(start, self.tasks, self.span)) if not between and start < self.span else ()


def grid_of(arch: ArchSpec) -> Grid:
    """What the arch spec states, or `auto`: the largest power of two that every product can hold."""
    product, units = smallest_product(arch)
    stated = arch.machine.workgroups
    if stated != "auto":
        return Grid(stated, f"stated by the arch spec; {product} holds {units} at once")
    size = floor_pow2(units)
    return Grid(
        size,
        f"largest power of two <= {units} compute units of {product}: every workgroup must be "
        "resident, since workgroups wait for one another",
    )


def smallest_product(arch: ArchSpec) -> tuple[str, int]:
    """The product of an arch with the fewest compute units, and how many it has."""
    return min(arch.machine.compute_units.items(), key=lambda item: (item[1], item[0]))


def residency_reasons(arch: ArchSpec) -> list[Reason]:
    """Why the stated grid could not be resident at once."""
    (product, units), size = smallest_product(arch), grid_of(arch).workgroups
    if size <= units:
        return []
    text = f"a grid of {size} workgroups on {product}, which has {units} compute units"
    return [Reason(Code.GRID_TOO_LARGE, text, f"state at most {units} workgroups, or auto")]


def gemv_shape(rows: int, k: int, parts: int = 1, waves: int = BLOCK // 64) -> GemvShape:
    """A GEMV whose tasks are one 16-row tile and one K part, steps dealt out to the waves in turn."""
    steps = cdiv(k // parts, STEP_K)
    rounds = cdiv(steps, waves)
    return GemvShape(
        rows=rows,
        k=k // parts,
        k_parts=parts,
        steps=steps,
        rounds=rounds,
        last_round_waves=steps - (rounds - 1) * waves,
        row_tiles=cdiv(rows, TILE_ROWS),
    )


def paired_shape(rows: int, k: int, waves: int = BLOCK // 64) -> GemvShape:
    """A GEMV whose tasks are two 16-row tiles, one for either half of the waves, steps in runs."""
    steps, half = cdiv(k, STEP_K), waves // 2
    rounds = cdiv(steps, half)
    return GemvShape(
        rows=rows,
        k=k,
        k_parts=1,
        steps=steps,
        rounds=rounds,
        last_round_waves=cdiv(steps, rounds),
        row_tiles=cdiv(rows, TILE_ROWS),
        task_tiles=2,
        contiguous=True,
    )


def stage_of(
    grid: int,
    name: str,
    tasks: int,
    first: int,
    span: int,
    threads: int,
    task: str,
    waits: tuple[str, ...],
    publishes: tuple[str, ...],
    why: str,
    gemv: GemvShape | None = None,
    *,
    stride: int = 1,
    queue: Queue | None = None,
) -> Stage:
    """A stage of a launch of `grid` workgroups; `first` may lie past the grid and wraps."""
    return Stage(
        name=name,
        tasks=tasks,
        first=first % grid,
        span=span,
        per_workgroup=cdiv(tasks, span),
        threads=threads,
        task=task,
        waits=waits,
        publishes=publishes,
        why=why,
        grid=grid,
        gemv=gemv,
        stride=stride,
        queue=queue,
    )
