"""Wait sites of the FFN half (ffn_structure.md 2.2). What a poll batch holds is what one lane loads."""

from __future__ import annotations

from ..arith import cdiv
from ..dims import SLICE_COLUMNS, Dims
from ..lds import WAVE, WAVES
from ..placement import BLOCK
from ..seam import NORM_LANES, gate_groups, gate_slices, norm_chunks, slices_of
from ..waits import Wanted, batches_of
from .shape import FfnShape


def ffn_sites(d: Dims, f: FfnShape, grid: int, attn_from: str) -> list[Wanted]:
    """The FFN half's sites in program order; `attn_from` pushes the attention partials (wo_b or push)."""
    return [*_seam(d, f, attn_from), *_routing(d, f), *_experts(d, f), *_finish(d, f, grid)]


def _sums(d: Dims, rows: int) -> tuple[int, tuple[int, ...]]:
    """(pairs of a slice, loads a batch) of a sum over ranks: a lane a row and pair, a batch the ranks."""
    pairs = rows * SLICE_COLUMNS // 2
    return pairs * d.tp, (d.tp,) * cdiv(pairs, BLOCK)


def _seam(d: Dims, f: FfnShape, attn_from: str) -> list[Wanted]:
    awaited, batches = _sums(d, f.rows)
    columns = d.mix + 1
    pmix, lanes, gates = slices_of(d) * columns, gate_groups(d) * columns, batches_of(gate_slices(d))
    return [
        Wanted(
            "slice_attn", "slice", attn_from, "attn", "pairs", awaited, BLOCK, 1, batches, False, "peer", d.tp
        ),
        Wanted("gate_pmix", "gate", "slice", "pmix", "pairs", pmix, lanes, 1, gates, True),
        Wanted(
            "norm_lin", "norm", "slice", "lin", "pairs", d.hidden // 2, NORM_LANES, 2,
            batches_of(norm_chunks(d) * 2), True,
        ),
    ]  # fmt: skip


def _routing(d: Dims, f: FfnShape) -> list[Wanted]:
    rows = f.router_rows
    return [
        Wanted("xq_xrdy", "xq", "norm", "xrdy_moe", "flags", 1, 1, 1, (1,), False),
        Wanted("router_xrdy", "router", "norm", "xrdy_moe", "flags", rows, rows, 1, (1,), False),
        Wanted(
            "route_logit", "route", "router", "logit", "pairs", 4 * d.experts, WAVE, 2,
            batches_of(2 * f.route_lists), False,
        ),
    ]  # fmt: skip


def _experts(d: Dims, f: FfnShape) -> list[Wanted]:
    held, w = min(f.rows, f.width), d.intermediate
    words, codes = held * w // 4, held * w // d.mx_group
    code_load = 2 if (w // d.mx_group) % 2 == 0 else 1
    a_slot = f.parts * (min(f.tiles, cdiv(f.rows, f.pick_width)) if f.by_tile else 1)
    distinct = min(a_slot, f.parts * (f.max_tiles if f.by_tile else f.max_slots))
    return [
        Wanted("shared_x8rdy", "shared", "xq", "x8rdy", "flags", held, held, 1, (1,), False),
        Wanted("shared_q_smid", "shared_q", "shared", "smid", "pairs", 16 * held, 16 * held, 1, (1,), False),
        Wanted(
            "table_route", "table", "route", "route", "pairs", 2 * f.picks, f.picks, 1, (2,), True,
        ),
        Wanted("ug_x8rdy", "ug", "xq", "x8rdy", "flags", f.rows, f.rows, 1, (1,), True),
        Wanted(
            "down_smq", "down", "shared_q", "smq", "pairs", words, BLOCK, 2,
            batches_of(cdiv(words, 2 * BLOCK)), True,
        ),
        Wanted(
            "down_smc", "down", "shared_q", "smc", "pairs", codes, BLOCK, code_load,
            batches_of(cdiv(codes, code_load * BLOCK)), True,
        ),
        Wanted(
            "down_ugf", "down", "ug", "ugf", "flags", distinct * WAVES, BLOCK, 1,
            batches_of(cdiv(a_slot, WAVE)), False,
        ),
    ]  # fmt: skip


def _finish(d: Dims, f: FfnShape, grid: int) -> list[Wanted]:
    awaited, batches = _sums(d, f.rows)
    return [
        Wanted(
            "reduce_ffn", "reduce", "down", "ffn", "pairs", awaited, BLOCK, 1, batches, False, "peer", d.tp
        ),
        Wanted(
            "epoch_marks", "epoch", "mark", "marks", "words", grid, min(grid, BLOCK), 1,
            batches_of(cdiv(grid, BLOCK)), True, "epoch",
        ),
    ]  # fmt: skip
