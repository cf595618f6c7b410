"""Which workgroup runs which task of the FFN half (ffn_structure.md 0, 1.1 to 1.6).

Invariants
 - The FFN seam's gates and norms are swapped against K1: norms come last on the grid, and the workgroups that
   have one have no slice and no gate, so they reach it at once.
 - Every workgroup builds the same route table once (`table`), between the shared expert and the routed ones.
 - The result of a task does not depend on who runs it; queues only even out who is late.
"""

from __future__ import annotations

from ..dims import SLICE_COLUMNS, TILE_ROWS, Dims
from ..lds import WAVE
from ..placement import BLOCK, GemvShape, Queue, Stage, gemv_shape, stage_of
from ..seam import gate_groups, slices_of
from .shape import DOWN_PICKS, ROUTER_PARTS, FfnShape

PUSH = "push"
ORDER = (
    "slice",
    "gate",
    "norm",
    "xq",
    "router",
    "route",
    "shared",
    "shared_q",
    "table",
    "ug",
    "down",
    "reduce",
    "epoch",
)
"""Stages of the FFN half, in program order."""


def ffn_stages(d: Dims, f: FfnShape, grid: int) -> tuple[Stage, ...]:
    """The FFN half, from the sum of the attention partials to the end of the epoch."""
    return (
        *_seam(d, f, grid),
        *_routing(d, f, grid),
        *_shared(d, f, grid),
        *_routed(d, f, grid),
        *_finish(d, grid),
    )


def push_stage(d: Dims, grid: int) -> Stage:
    """First stage of the FFN launch: what wo_b does inside K2."""
    task = f"{SLICE_COLUMNS} columns of this rank's attention partial, all rows, to every rank"
    why = "slice i on the workgroup that sums slice i"
    return stage_of(grid, PUSH, slices_of(d), 0, grid, BLOCK, task, (), ("attn",), why)


def mark_stage(grid: int) -> Stage:
    """First action of every workgroup: say that the epoch word has been read."""
    why = "every workgroup: the epoch may advance once all have read it"
    return stage_of(grid, "mark", grid, 0, grid, 1, "mark of a workgroup: epoch + 1", (), ("marks",), why)


def _seam(d: Dims, f: FfnShape, grid: int) -> tuple[Stage, ...]:
    slices, s = slices_of(d), f.rows
    return (
        stage_of(
            grid,
            "slice",
            slices,
            0,
            grid,
            BLOCK,
            f"sum of all ranks' partials of {SLICE_COLUMNS} columns, fold into the streams, all rows",
            ("slice_attn",),
            ("lin", "pmix"),
            "slice i on workgroup i, as in K1",
        ),
        stage_of(
            grid,
            "gate",
            s,
            slices,
            grid - slices - s,
            gate_groups(d) * (d.mix + 1),
            "24 gates of one row, Sinkhorn",
            ("gate_pmix",),
            (),
            "past the slices; only the next layer needs the result",
        ),
        stage_of(
            grid,
            "norm",
            s,
            slices + s,
            grid - slices - s,
            256,
            "RMSNorm of one row, bf16",
            ("norm_lin",),
            ("normed", "xrdy_moe"),
            "past the gates, on workgroups with nothing before it: router and xq wait for it",
        ),
        stage_of(
            grid,
            "xq",
            s,
            0,
            grid,
            BLOCK,
            "two MXFP8 copies of one row: routed and shared code rule",
            ("xq_xrdy",),
            ("x8r", "x8rs", "x8", "x8s", "x8rdy"),
            "row t on workgroup t",
        ),
    )


def _routing(d: Dims, f: FfnShape, grid: int) -> tuple[Stage, ...]:
    return (
        stage_of(
            grid,
            "router",
            f.router_tasks,
            f.router_first,
            grid,
            BLOCK,
            f"16 gate rows x one K quarter, {f.router_rows} rows of {f.router_groups} groups",
            ("router_xrdy",),
            ("logit",),
            f"past the xq rows; {f.router_groups} row groups x {f.router_per_group}, one task a workgroup",
            _router_gemv(d),
        ),
        stage_of(
            grid,
            "route",
            f.rows,
            f.route_first,
            grid,
            WAVE,
            f"scores and top {f.per_token} of one row, wave 0",
            ("route_logit",),
            ("route",),
            "past the router tasks, on workgroups that have none (while they last)",
        ),
    )


def _router_gemv(d: Dims) -> GemvShape:
    """The router's GEMV in bf16 steps of 32 columns."""
    steps = d.hidden // ROUTER_PARTS // 32
    rounds = -(-steps // (BLOCK // WAVE))
    return GemvShape(
        rows=d.experts,
        k=d.hidden // ROUTER_PARTS,
        k_parts=ROUTER_PARTS,
        steps=steps,
        rounds=rounds,
        last_round_waves=steps - (rounds - 1) * (BLOCK // WAVE),
        row_tiles=d.experts // TILE_ROWS,
    )


def _shared(d: Dims, f: FfnShape, grid: int) -> tuple[Stage, ...]:
    return (
        stage_of(
            grid,
            "shared",
            f.shared_units,
            f.shared_first,
            grid,
            BLOCK,
            f"16 gate and 16 up rows of the shared expert, one token tile: tile*{f.shared_per_tile} + i",
            ("shared_x8rdy",),
            ("smid",),
            "one a workgroup: several would delay the input of down",
            gemv_shape(2 * d.intermediate, d.hidden),
        ),
        stage_of(
            grid,
            "shared_q",
            f.shared_units // 2,
            f.shared_first + 1,
            grid // 2,
            f.width,
            "MXFP8 of 32 columns of the shared intermediate, a lane a row",
            ("shared_q_smid",),
            ("smq", "smc"),
            "on the odd unit of each pair: half of the values are its own",
            stride=2,
        ),
    )


def _routed(d: Dims, f: FfnShape, grid: int) -> tuple[Stage, ...]:
    tiled = "a pick tile" if f.by_tile else "a slot"
    down_static = min(f.down_tasks, grid)
    return (
        stage_of(
            grid,
            "table",
            grid,
            0,
            grid,
            BLOCK,
            "route table in LDS",
            ("table_route",),
            (),
            "every workgroup: ug and down read it",
        ),
        stage_of(
            grid,
            "ug",
            f.ug_tasks,
            f.ug_first,
            grid,
            BLOCK,
            f"{d.mx_group * f.groups_per_task} gate and up columns of {tiled}: task unit*{f.parts} + part",
            ("ug_x8rdy",),
            ("mid", "mids", "ugf"),
            "from the workgroup after the last shared unit on: those with a shared unit come last",
            queue=Queue(
                "ug",
                grid,
                "after each tile, before its stores are drained: task = ticket + grid",
            )
            if f.by_tile
            else None,
        ),
        stage_of(
            grid,
            "down",
            f.down_tasks,
            0,
            grid,
            BLOCK,
            f"{TILE_ROWS} hidden rows: shared down, every slot ({DOWN_PICKS} picks a pass), combine, push",
            ("down_smq", "down_smc", "down_ugf"),
            ("ffn",),
            f"task i on workgroup i; the {f.down_extra} past the grid go to the first to arrive",
            gemv_shape(d.hidden, d.intermediate),
            queue=Queue(
                "down", down_static, f"arrival rank r < {f.down_extra} also takes task {down_static} + r"
            )
            if f.down_extra
            else None,
        ),
    )


def _finish(d: Dims, grid: int) -> tuple[Stage, ...]:
    return (
        stage_of(
            grid,
            "reduce",
            slices_of(d),
            0,
            grid,
            BLOCK,
            f"sum of all ranks' FFN partials of {SLICE_COLUMNS} columns, all rows",
            ("reduce_ffn",),
            (),
            "slice i on workgroup i: the work of the last stage spreads widest",
        ),
        stage_of(
            grid,
            "epoch",
            1,
            0,
            grid,
            grid,
            "clear the counters half a ring ahead, epoch += 1",
            ("epoch_marks",),
            (),
            "workgroup 0, once every workgroup has read the epoch",
        ),
    )
