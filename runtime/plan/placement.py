"""Which workgroup runs which task of K1 (attention.md 5.2).

Invariants
 - All workgroups of the grid are resident at once and walk the stages in the same order.
 - Task i of a stage runs on workgroup `first + i mod span`; a workgroup runs its tasks in ascending order.
 - Stages on the path to the wqkv weights never queue behind a slice: norms and gates sit past the slices.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...specs.schema import ArchSpec
from .arith import cdiv, floor_pow2
from .dims import SLICE_COLUMNS, STEP_K, TILE_ROWS, Dims
from .keys import BuildKey
from .unsupported import Code, Reason

BLOCK = 512
"""Lanes of a workgroup: 8 waves, two a SIMD, so that a wave may use 256 VGPRs."""
STAGE_ORDER = ("slice", "norm", "gate", "kt", "wqkv", "qkv", "wq_b")
K_PARTS = 2
"""K halves of wqkv: its row tiles alone would leave more than half of the workgroups idle."""


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


def slices_of(d: Dims) -> int:
    """Seam slices: 32 hidden columns of all streams each."""
    return d.hidden // SLICE_COLUMNS


def wqkv_tasks(d: Dims) -> int:
    """Row tiles x K halves of the fused wq_a / wkv GEMV."""
    return cdiv(d.qkv_rows, TILE_ROWS) * K_PARTS


def wq_b_span(grid: int) -> int:
    """Workgroups that share wq_b's tasks: a power of two, so that a workgroup stays at the same dims."""
    return floor_pow2(grid)


def grid_reasons(d: Dims, grid: Grid) -> list[Reason]:
    """Why the stages of K1 do not fit side by side on the grid, for any number of rows."""
    reasons, size = [], grid.workgroups
    checks = (
        (
            "one row's seam (slices, one norm, one gate)",
            slices_of(d) + 2,
            "norms and gates must not queue behind slices",
        ),
        ("the wqkv parts", wqkv_tasks(d), "a workgroup holds one part"),
    )
    for what, need, because in checks:
        if need > size:
            reasons.append(
                Reason(
                    Code.GRID_TOO_SMALL,
                    f"{what} need {need} workgroups, the grid has {size}: {because}",
                    "use a GPU with more compute units",
                )
            )
    if wq_b_span(size) * TILE_ROWS % d.head_dim:
        reasons.append(
            Reason(
                Code.GRID_TOO_SMALL,
                f"wq_b tasks of a workgroup lie {wq_b_span(size) * TILE_ROWS} rows apart, which is no whole number "
                f"of {d.head_dim}-wide heads, so one (cos, sin) pair a thread could not serve them",
                "use a GPU with more compute units",
            )
        )
    return reasons


def stages_of(d: Dims, key: BuildKey, grid: Grid) -> tuple[Stage, ...]:
    """K1's stages in program order."""
    s, size, slices = key.rows, grid.workgroups, slices_of(d)
    spare = size - wqkv_tasks(d)
    kt_first, kt_span = (wqkv_tasks(d), spare) if spare else (0, size)
    wqkv = gemv_shape(d.qkv_rows, d.hidden, K_PARTS)
    wq_b = gemv_shape(d.q_rows, d.q_rank)
    kt_rows = 0 if key.index else s
    groups = gate_groups(d)
    return (
        stage_of(
            size,
            "slice",
            slices,
            0,
            size,
            BLOCK,
            f"{SLICE_COLUMNS} hidden columns, all streams, all rows",
            (),
            ("lin", "pmix"),
            "first on every workgroup that has one: the whole launch waits for it",
        ),
        stage_of(
            size,
            "norm",
            s,
            slices,
            size - slices,
            256,
            "RMSNorm and MXFP8 of one row",
            ("norm_lin",),
            ("x8", "x8s", "xrdy"),
            "past the slices: every wqkv part waits for all norms",
        ),
        stage_of(
            size,
            "gate",
            s,
            slices + s,
            size - slices - s,
            groups * (d.mix + 1),
            "24 gates of one row, Sinkhorn",
            ("gate_pmix",),
            (),
            "past the norms; only K2 needs the result",
        ),
        stage_of(
            size,
            "kt",
            kt_rows,
            kt_first,
            kt_span,
            BLOCK,
            "key table of one row",
            (),
            (),
            _kt_why(key, spare),
        ),
        stage_of(
            size,
            "wqkv",
            wqkv.row_tiles * K_PARTS,
            0,
            size,
            BLOCK,
            "16 weight rows x one K half, all rows",
            ("wqkv_xrdy",),
            ("qkvp",),
            f"{K_PARTS} K halves fill {wqkv_tasks(d)} of {size} workgroups",
            wqkv,
        ),
        stage_of(
            size,
            "qkv",
            s,
            0,
            size,
            256,
            "q norm, kv norm, RoPE and record of one row",
            ("qkv_qkvp",),
            ("qx8", "qx8s", "qrdy"),
            "one row a workgroup",
        ),
        stage_of(
            size,
            "wq_b",
            wq_b.row_tiles,
            0,
            wq_b_span(size),
            BLOCK,
            "16 query rows, all rows of the step",
            ("wq_b_qrdy",),
            (),
            f"tasks of a workgroup lie {wq_b_span(size) * TILE_ROWS} rows apart: same dims of other heads",
            wq_b,
        ),
    )


def _kt_why(key: BuildKey, spare: int) -> str:
    if key.index:
        return "none: the index of this layer is not known before K1 ends"
    return "on the workgroups without a wqkv part" if spare else "every workgroup has a wqkv part"


def gate_groups(d: Dims) -> int:
    """Groups of slices that one gate task sums in parallel: as many as fit a block, slices split evenly."""
    return cdiv(slices_of(d), gate_slices(d))


def gate_slices(d: Dims) -> int:
    """Consecutive slices that one thread of a gate sums in order."""
    return cdiv(slices_of(d), max(1, BLOCK // (d.mix + 1)))


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
