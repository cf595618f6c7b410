"""Which workgroup runs which task of K1 (attention.md 5.2).

Invariant: stages on the path to the wqkv weights never queue behind a slice: norms and gates sit past the
slices.
"""

from __future__ import annotations

from ..arith import cdiv, floor_pow2
from ..dims import SLICE_COLUMNS, TILE_ROWS, Dims
from ..keys import BuildKey
from ..placement import BLOCK, Grid, Stage, gemv_shape, stage_of
from ..seam import gate_groups, slices_of
from ..unsupported import Code, Reason

STAGE_ORDER = ("slice", "norm", "gate", "kt", "wqkv", "qkv", "wq_b")


K_PARTS = 2
"""K halves of wqkv: its row tiles alone would leave more than half of the workgroups idle."""


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
                f"wq_b tasks of a workgroup lie {wq_b_span(size) * TILE_ROWS} rows apart, no whole number "
                f"of {d.head_dim}-wide heads, so one (cos, sin) pair a thread could not serve them",
                "use a GPU with more compute units",
            )
        )
    return reasons


def stages_of(d: Dims, key: BuildKey, grid: Grid) -> tuple[Stage, ...]:
    """K1's stages in program order."""
    size = grid.workgroups
    return (*_seam(d, key.rows, size), _key_table(d, key, size), *_projections(d, key.rows, size))


def _seam(d: Dims, s: int, size: int) -> tuple[Stage, ...]:
    slices, groups = slices_of(d), gate_groups(d)
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
    )


def _key_table(d: Dims, key: BuildKey, size: int) -> Stage:
    spare = size - wqkv_tasks(d)
    kt_first, kt_span = (wqkv_tasks(d), spare) if spare else (0, size)
    return stage_of(
        size,
        "kt",
        0 if key.index else key.rows,
        kt_first,
        kt_span,
        BLOCK,
        "key table of one row",
        (),
        (),
        _kt_why(key, spare),
    )


def _projections(d: Dims, s: int, size: int) -> tuple[Stage, ...]:
    wqkv, wq_b = gemv_shape(d.qkv_rows, d.hidden, K_PARTS), gemv_shape(d.q_rows, d.q_rank)
    return (
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
