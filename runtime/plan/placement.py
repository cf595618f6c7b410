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


@dataclass(frozen=True)
class Stage:
    """One task table of the launch."""

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
    gemv: GemvShape | None = None

    def workgroup_of(self, task: int) -> int:
        """The workgroup that runs `task`."""
        return self.first + task % self.span

    def tasks_of(self, workgroup: int) -> tuple[int, ...]:
        """The tasks of a workgroup, in the order it runs them."""
        start = workgroup - self.first
        return tuple(range(start, self.tasks, self.span)) if 0 <= start < self.span else ()


def grid_of(arch: ArchSpec) -> Grid:
    """One workgroup a compute unit on the smallest product, rounded down to a power of two."""
    product, units = min(arch.machine.compute_units.items(), key=lambda item: (item[1], item[0]))
    size = floor_pow2(units)
    return Grid(
        size,
        f"largest power of two <= {units} compute units of {product}: every workgroup must be "
        "resident, since workgroups wait for one another",
    )


def slices_of(d: Dims) -> int:
    """Seam slices: 32 hidden columns of all streams each."""
    return d.hidden // SLICE_COLUMNS


def wqkv_tasks(d: Dims) -> int:
    """Row tiles x K halves of the fused wq_a / wkv GEMV."""
    return cdiv(d.qkv_rows, TILE_ROWS) * K_PARTS


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
    if size * TILE_ROWS % d.head_dim:
        reasons.append(
            Reason(
                Code.GRID_TOO_SMALL,
                f"wq_b tasks of a workgroup lie {size * TILE_ROWS} rows apart, which is no whole number "
                f"of {d.head_dim}-wide heads, so one (cos, sin) pair a thread could not serve them",
                "use a GPU with more compute units",
            )
        )
    return reasons


def stages_of(d: Dims, key: BuildKey, grid: Grid) -> tuple[Stage, ...]:
    """K1's stages in program order."""
    s, size, slices = key.rows, grid.workgroups, slices_of(d)
    waves = BLOCK // 64
    spare = size - wqkv_tasks(d)
    kt_first, kt_span = (wqkv_tasks(d), spare) if spare else (0, size)
    wqkv = _gemv(d.qkv_rows, d.hidden, K_PARTS, waves)
    wq_b = _gemv(d.q_rows, d.q_rank, 1, waves)
    kt_rows = 0 if key.index else s
    groups = gate_groups(d)
    return (
        _stage(
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
        _stage(
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
        _stage(
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
        _stage(
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
        _stage(
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
        _stage(
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
        _stage(
            "wq_b",
            wq_b.row_tiles,
            0,
            size,
            BLOCK,
            "16 query rows, all rows of the step",
            ("wq_b_qrdy",),
            (),
            f"tasks of a workgroup lie {size * TILE_ROWS} rows apart: same dims of other heads",
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


def _gemv(rows: int, k: int, parts: int, waves: int) -> GemvShape:
    steps = k // parts // STEP_K
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


def _stage(
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
) -> Stage:
    return Stage(
        name=name,
        tasks=tasks,
        first=first,
        span=span,
        per_workgroup=cdiv(tasks, span),
        threads=threads,
        task=task,
        waits=waits,
        publishes=publishes,
        why=why,
        gemv=gemv,
    )
