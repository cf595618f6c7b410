"""Launch arguments of the FFN half: K2's arguments 26 to 56, and with `part` ahead the FFN launch's 32.

Source: ffn_structure.md 6.1; shapes of the weights ffn_math.md 10.
"""

from __future__ import annotations

from ..abi import Owner, Row
from ..arith import align_up
from ..dims import Dims
from ..faults import fault_rows
from ..points import POINTS, points_text
from ..strategy import Strategy
from ..tags import epoch_words


def ffn_rows(
    d: Dims, rows: int, how: Strategy, grid: int, scratch_bytes: int, *, k2: bool, timeline: bool
) -> list[Row]:
    """The FFN half's arguments in order."""
    common = _seam_rows(d, rows, "runner" if k2 else "vllm") + _route_rows(d) + _expert_rows(d, how)
    return (
        common
        + _shared_rows(d, how)
        + _runner_rows(d, rows, grid, scratch_bytes, "k2" if k2 else "ffn", timeline)
    )


def part_row(d: Dims, rows: int) -> Row:
    """First argument of the FFN launch."""
    return ("part", "ptr", "bf16", (rows, d.hidden), "vllm", "r", "this rank's unreduced attention output")


def _seam_rows(d: Dims, s: int, by: Owner) -> list[Row]:
    h, c = d.streams, d.hidden
    return [
        ("res_in", "ptr", "bf16", (s, h, c), by, "r", "residual streams after the attention seam"),
        ("post_in", "ptr", "f32", (s, h), by, "r", "post gate of the attention seam"),
        (
            "comb_in",
            "ptr",
            "f32",
            (s, h, h),
            by,
            "r",
            "stream mixing of the attention seam, [source][target]",
        ),
        ("pre_in", "ptr", "f32", (s, h), by, "r", "pre gate of the attention seam"),
        ("hc_fn", "ptr", "f32", (d.mix, d.k_mix), "layer", "r", "gate projection, stream-major columns"),
        ("hc_scale", "ptr", "f32", (3,), "layer", "r", "gate scales: pre, post, comb"),
        ("hc_base", "ptr", "f32", (d.mix,), "layer", "r", "gate biases"),
        ("ffn_w", "ptr", "bf16", (c,), "layer", "r", "weight of the FFN input's RMSNorm"),
        ("res_out", "ptr", "bf16", (s, h, c), "vllm", "w", "the layer's residual streams"),
        ("post_out", "ptr", "f32", (s, h), "vllm", "w", "the layer's post gate"),
        ("comb_out", "ptr", "f32", (s, h, h), "vllm", "w", "the layer's stream mixing"),
        ("pre_out", "ptr", "f32", (s, h), "vllm", "w", "the layer's pre gate"),
    ]


def _route_rows(d: Dims) -> list[Row]:
    return [
        ("gate_w", "ptr", "bf16", (d.experts, d.hidden), "layer", "r", "router weight"),
        ("bias", "ptr", "f32", (d.experts,), "layer", "r", "selection bias of each expert"),
    ]


def _expert_rows(d: Dims, how: Strategy) -> list[Row]:
    """Row-major archs read vLLM's shuffled tensors with a padded width, others copies of the real one."""
    e, c, g = d.experts, d.hidden, d.mx_group
    shapes: list[tuple[int, ...]]
    if how.weight_layout == "row_major":
        w = d.intermediate_padded
        cols = align_up(w // g, 8)
        note = "FP4, 16-row tiles of gate and up in turn"
        shapes = [(e, 2 * w, c // 2), (e * 2 * w, c // g), (e, c, w // 2), (e * c, cols)]
    else:
        w = d.intermediate
        note = "FP4 copy, tile-major, gate and up rows in turn"
        shapes = [(e, 2 * w, c // 2), (e, 2 * w, c // g), (e, c, w // 2), (e, c, w // g)]
    return [
        ("w13", "ptr", "fp4x2", shapes[0], "layer", "r", f"gate and up of the routed experts, {note}"),
        ("w13_s", "ptr", "u8", shapes[1], "layer", "r", "its E8M0 codes"),
        ("w2", "ptr", "fp4x2", shapes[2], "layer", "r", "down of the routed experts, FP4"),
        ("w2_s", "ptr", "u8", shapes[3], "layer", "r", "its E8M0 codes"),
    ]


def _shared_rows(d: Dims, how: Strategy) -> list[Row]:
    e4m3, block, w = "e4m3fn" if how.fp8 == "ocp" else "e4m3fnuz", d.weight_block, d.intermediate
    k = w if how.weight_layout == "row_major" else d.intermediate_padded
    return [
        ("sgu", "ptr", e4m3, (2 * w, d.hidden), "layer", "r", "gate rows, then up rows of the shared expert"),
        ("sgu_s", "ptr", "u8", (2 * w // block, d.hidden // block), "layer", "r", "its E8M0 codes"),
        ("sw2", "ptr", e4m3, (d.hidden, k), "layer", "r", "down of the shared expert"),
        ("sw2_s", "ptr", "u8", (d.hidden // block, k // block), "layer", "r", "its E8M0 codes"),
    ]


def _runner_rows(d: Dims, s: int, grid: int, scratch_bytes: int, kind: str, timeline: bool) -> list[Row]:
    tl = "w" if timeline else ""
    return [
        ("out", "ptr", "bf16", (s, d.hidden), "vllm", "w", "FFN output, summed over the ranks"),
        ("scratch", "ptr", "u8", (scratch_bytes,), "runner", "rw", "scratch of this step width, zeroed once"),
        ("sym", "int64", "i64", (), "runner", "r", "address of this rank's own peer buffer"),
        ("peers", "ptr", "i64", (d.tp,), "runner", "r", "address of each rank's peer buffer, own included"),
        ("rank", "int32", "i32", (), "runner", "r", "this rank"),
        (
            "epoch",
            "ptr",
            "i32",
            (epoch_words(grid).words,),
            "runner",
            "rw",
            "epoch buffer: epoch, stop, marks, counters",
        ),
        *fault_rows(peers=True),
        ("tl", "ptr", "i64", (grid, len(POINTS[kind])), "runner", tl, points_text(kind)),
    ]  # fmt: skip
