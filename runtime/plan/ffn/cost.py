"""Matrix instructions and bytes of the FFN half, by the thread maps of its stages.

Invariants as in `cost` and `traffic`; routed experts are counted for the widest case (`experts`). The shared
expert's gate and up weights are read once a token tile, from the L2 after the first: tiles are separate
units, since several tiles in a row on one workgroup would delay the input of down.
"""

from __future__ import annotations

from ..arith import cdiv
from ..cost import PASS_CLOCKS, MfmaCount
from ..dims import STEP_K, TILE_ROWS, Dims
from ..lds import WAVE, WAVES
from ..scratch import PAIR_BYTES
from ..seam import NORM_LANES, norm_chunks, slices_of
from ..strategy import Strategy
from ..traffic import LOAD, SLICE_LANES, WORD, Asked
from .experts import case_of, expert_bytes, widest_case
from .shape import DOWN_PICKS, ROUTER_PARTS, FfnShape


def ffn_mfma(d: Dims, f: FfnShape, how: Strategy, share: int, grid: int) -> list[MfmaCount]:
    """Router, shared, ug and down; the seam's slices are counted with the seam."""
    bf16, step = how.bf16_mfma, how.gemv_mfma
    steps = cdiv(d.hidden, STEP_K)
    router = f.router_steps * bf16.per_step
    shared = 2 * cdiv(steps, WAVES) * step.per_step
    ug = 2 * cdiv(steps, f.k_slices) * step.per_step
    inner = cdiv(d.intermediate, step.k)  # a weight row's instructions: the last step may be ragged
    down = (cdiv(cdiv(d.intermediate, STEP_K), WAVES) * step.per_step + inner) * (2 if f.down_extra else 1)
    router_work = d.hidden // ROUTER_PARTS // 32 * bf16.per_step
    rounds = cdiv(f.ug_tasks, grid)
    down_work = f.down_tasks * (f.max_slots + cdiv(f.picks, DOWN_PICKS) + f.tiles) * inner
    routed, gated = f.router_tasks * router_work * f.router_tiles, f.shared_units * 2 * steps * step.per_step
    cost = step.passes
    slots = cdiv(f.max_slots, WAVES)
    return [
        _count("router", bf16.name, router, f.router_tiles, routed, share=share, cost=bf16.passes),
        _count("shared", step.name, shared, 1, gated, share=share, cost=cost),
        _count(
            "ug", step.name, ug, 1, f.ug_tasks * WAVES * ug, share=share, cost=cost, exact=False, times=rounds
        ),
        _count("down", step.name, down, 1, down_work, share=share, cost=cost, exact=False, times=slots),
    ]


def _count(
    stage: str,
    name: str,
    static: int,
    passes: int,
    executed: int,
    *,
    share: int,
    cost: int,
    exact: bool = True,
    times: int = 1,
) -> MfmaCount:
    clocks = static * passes * times * share * cost * PASS_CLOCKS
    return MfmaCount(stage, name, static, passes, executed, clocks, exact)


def seam_reads(d: Dims, rows: int) -> dict[str, Asked]:
    """What slices, norms and gates of the FFN seam read."""
    s, h, c = rows, d.streams, d.hidden
    lanes = s * slices_of(d) * SLICE_LANES
    return {
        "res_in": Asked(s * h * c * 2, s * h * c * 2, True),
        "post_in": Asked(lanes * h * WORD, s * h * WORD),
        "comb_in": Asked(lanes * h * h * WORD, s * h * h * WORD),
        "pre_in": Asked(lanes * h * WORD, s * h * WORD),
        "hc_fn": Asked(d.mix * d.k_mix * WORD, d.mix * d.k_mix * WORD, True),
        "hc_scale": Asked(s * WAVE * WORD, 3 * WORD),
        "hc_base": Asked(s * WAVE * WORD, d.mix * WORD),
        "ffn_w": Asked(s * NORM_LANES * norm_chunks(d) * LOAD, c * 2),
    }


def weight_reads(d: Dims, f: FfnShape, how: Strategy, grid: int) -> dict[str, Asked]:
    """Router, routed experts at their widest, shared expert."""
    case = case_of(f, expert_bytes(d, how), widest_case(f))
    asked, once = case.requested, case.unique
    note = f"{case.slots} distinct experts at most, each byte once"
    if f.by_tile:
        note = f"{case.slots} distinct experts, {case.tiles} tiles of at most {f.pick_width} picks"
    gate, grouped = d.experts * d.hidden * 2, "" if f.router_groups == 1 else "once a row group"
    return {
        "gate_w": Asked(gate * f.router_groups, gate, True, grouped),
        "bias": Asked(f.rows * d.experts * WORD, d.experts * WORD),
        "w13": Asked(asked.w13, once.w13, True, note),
        "w13_s": Asked(asked.w13_s, once.w13_s, False, note),
        "w2": Asked(asked.w2, once.w2, True, note),
        "w2_s": _down_codes(d, how, case.slots, once.w2_s, note),
        **_shared_reads(d, f, how, grid),
    }


def _down_codes(d: Dims, how: Strategy, slots: int, own: int, note: str) -> Asked:
    """Own copies: each byte once. The shuffled layout has the codes of two steps and of two 16-row tiles in a
    dword, which both tiles load; of a last single step a lane loads its own byte."""
    if how.weight_layout != "row_major":
        return Asked(own, own, False, note)
    pairs, single = divmod(d.intermediate_padded // STEP_K, 2)
    lanes = slots * d.hidden // TILE_ROWS * WAVE
    used = slots * d.hidden * d.intermediate_padded // d.mx_group
    return Asked(lanes * (pairs * WORD + single), used, False, f"{note}; a dword serves two row tiles")


def _shared_reads(d: Dims, f: FfnShape, how: Strategy, grid: int) -> dict[str, Asked]:
    """The shared expert. Codes of a step are one scalar load of a wave, in idle workgroups too; of rows that
    end inside a step a byte a lane."""
    block, w = d.weight_block**2, d.intermediate
    sgu, sw2 = 2 * w * d.hidden, d.hidden * (w if how.weight_layout == "row_major" else d.intermediate_padded)
    again = "" if f.tiles == 1 else f"once a token tile of {f.width}: {f.tiles} times"
    waves = grid * WAVES * cdiv(cdiv(w, STEP_K), WAVES) * (2 if f.down_extra else 1)
    ragged = how.weight_layout == "row_major" and w % STEP_K
    return {
        "sgu": Asked(sgu * f.tiles, sgu, True, again),
        "sgu_s": Asked(2 * grid * WAVES * cdiv(d.hidden // STEP_K, WAVES) * WORD, sgu // block, False, again),
        "sw2": Asked(sw2, sw2, True),
        "sw2_s": Asked(waves * (WAVE if ragged else WORD), sw2 // block),
    }


def ffn_writes(d: Dims, rows: int, grid: int, timeline_words: int) -> dict[str, int]:
    """Bytes of outputs; each is stored once."""
    h = d.streams
    return {
        "res_out": rows * h * d.hidden * 2,
        "post_out": rows * h * WORD,
        "comb_out": rows * h * h * WORD,
        "pre_out": rows * h * WORD,
        "out": rows * d.hidden * 2,
        "epoch": (1 + grid + 2) * WORD,
        "tl": grid * timeline_words * 8,
    }


def epoch_reads(grid: int) -> dict[str, Asked]:
    """Epoch and `stop` by every wave, the marks by one workgroup, the addresses of the ranks."""
    return {"epoch": Asked((2 * grid * WAVES + grid) * WORD, (2 + grid) * WORD)}


def ffn_scratch(d: Dims, f: FfnShape, grid: int) -> tuple[int, int]:
    """(written, read) bytes of scratch: each word once, polls that come too early not counted."""
    s, w, n = f.rows, d.intermediate, f.picks
    row = d.hidden + d.hidden // d.mx_group * WORD
    lin, pmix = s * d.hidden // 2 * PAIR_BYTES, s * slices_of(d) * (d.mix + 1) * PAIR_BYTES
    logit, route = s * d.experts * ROUTER_PARTS * PAIR_BYTES, 2 * n * PAIR_BYTES
    mid = n * (w + w // d.mx_group * WORD)
    smid = s * w * PAIR_BYTES
    shared = s * (w // 4 + w // d.mx_group) * PAIR_BYTES
    flags = (2 * s + f.ug_tasks) * PAIR_BYTES
    written = lin + pmix + 2 * s * d.hidden + 2 * s * row + logit + 8 * route + smid + shared + mid + flags
    unit_rows = s if not f.by_tile else min(s, f.pick_width)
    ug_rows = min(grid, f.ug_tasks) * unit_rows if not f.by_tile else f.ug_tasks * unit_rows
    reads = lin + pmix + s * 2 * d.hidden * (1 + f.router_per_group // ROUTER_PARTS)
    reads += f.shared_units * min(s, f.width) * row + ug_rows * row + logit + grid * route + smid // 2
    reads += grid * shared + f.down_tasks * mid + flags * grid
    return written, reads
