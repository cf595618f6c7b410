"""Launch arguments of K1, in order (attention.md 6.1)."""

from __future__ import annotations

from ..abi import RUNTIME, Abi, Row, abi_of
from ..dims import Dims
from ..faults import fault_rows
from ..keys import BuildKey
from ..points import POINTS, points_text
from ..strategy import Strategy
from ..tags import epoch_words


def k1_abi(d: Dims, key: BuildKey, how: Strategy, grid: int, scratch_bytes: int) -> Abi:
    """K1's 42 arguments for one build."""
    rows = _seam_rows(d, key) + _weight_rows(d, how) + _row_rows(d, key) + _key_rows(d, key)
    return abi_of([*rows, *_runner_rows(d, key, grid, scratch_bytes)])


def _seam_rows(d: Dims, key: BuildKey) -> list[Row]:
    s, h, c = key.rows, d.streams, d.hidden
    fold = "r" if key.fold else ""
    return [
        (
            "res_in",
            "ptr",
            "bf16",
            (s, h, c),
            "vllm",
            "r",
            "residual streams before the previous FFN is folded in",
        ),
        ("pend", "ptr", "bf16", (s, c), "vllm", fold, "previous layer's FFN output, TP-reduced"),
        ("post_in", "ptr", "f32", (s, h), "vllm", fold, "post gate of the previous FFN seam"),
        (
            "comb_in",
            "ptr",
            "f32",
            (s, h, h),
            "vllm",
            fold,
            "stream mixing of the previous FFN seam, [source][target]",
        ),
        (
            "pre_in",
            "ptr",
            "f32",
            (s, h),
            "vllm",
            "r",
            "pre gate of the previous seam (first layer: 1, 0, 0, 0)",
        ),
        ("hc_fn", "ptr", "f32", (d.mix, d.k_mix), "layer", "r", "gate projection, stream-major columns"),
        ("hc_scale", "ptr", "f32", (3,), "layer", "r", "gate scales: pre, post, comb"),
        ("hc_base", "ptr", "f32", (d.mix,), "layer", "r", "gate biases"),
        ("attn_w", "ptr", "bf16", (c,), "layer", "r", "weight of the layer input's RMSNorm"),
        ("res_out", "ptr", "bf16", (s, h, c), "runner", "w", "folded residual streams"),
        ("post_out", "ptr", "f32", (s, h), "runner", "w", "this seam's post gate"),
        ("comb_out", "ptr", "f32", (s, h, h), "runner", "w", "this seam's stream mixing"),
        ("pre_out", "ptr", "f32", (s, h), "runner", "w", "this seam's pre gate, for the FFN seam"),
    ]


def _weight_rows(d: Dims, how: Strategy) -> list[Row]:
    e4m3, block = "e4m3fn" if how.fp8 == "ocp" else "e4m3fnuz", d.weight_block
    order = "row-major" if how.weight_layout == "row_major" else "tile-major copy, codes + 1"
    return [
        ("wqkv", "ptr", e4m3, (d.qkv_rows, d.hidden), "layer", "r", f"fused wq_a and wkv, {order}"),
        ("wqkv_s", "ptr", "u8", (d.qkv_rows // block, d.hidden // block), "layer", "r", "its E8M0 codes"),
        ("qn_w", "ptr", "bf16", (d.q_rank,), "layer", "r", "weight of the q norm"),
        ("kvn_w", "ptr", "bf16", (d.kv_dim,), "layer", "r", "weight of the kv norm"),
        ("wqb", "ptr", e4m3, (d.q_rows, d.q_rank), "layer", "r", f"wq_b of this rank's heads, {order}"),
        ("wqb_s", "ptr", "u8", (d.q_rows // block, d.q_rank // block), "layer", "r", "its E8M0 codes"),
        ("cos_sin", "ptr", "f32", (RUNTIME, d.rope), "layer", "r", "RoPE table [positions, cos | sin]"),
    ]


def _row_rows(d: Dims, key: BuildKey) -> list[Row]:
    s = key.rows
    return [
        ("pos", "ptr", "i64", (s,), "vllm", "r", "position of each row; low 32 bits are read"),
        ("slot", "ptr", "i64", (s,), "vllm", "r", "window-cache slot of each row, -1 for a padded row"),
        (
            "swa",
            "ptr",
            "u8",
            (RUNTIME, RUNTIME, d.record_bytes),
            "vllm",
            "w",
            "window cache [blocks, states, record]",
        ),
        ("swa_stride", "int64", "i64", (), "vllm", "r", "bytes from block to block of the window cache"),
        ("swa_block", "int32", "i32", (), "vllm", "r", "states a block of the window cache"),
        ("q", "ptr", "bf16", (s, d.heads, d.head_dim), "runner", "w", "rotated queries"),
    ]


def _key_rows(d: Dims, key: BuildKey) -> list[Row]:
    s, table = key.rows, "" if key.index else "r"
    comp = "r" if key.ratio and not key.index else ""
    out = "" if key.index else "w"
    return [
        ("swa_idx", "ptr", "i32", (s, key.window), "vllm", table, "window slots of each row, then -1"),
        ("swa_lens", "ptr", "i32", (s,), "vllm", table, "window slots in use"),
        (
            "comp_block",
            "int32",
            "i32",
            (),
            "vllm",
            comp,
            "compressed rows a block (1 without a compressed cache)",
        ),
        ("comp_bt", "ptr", "i32", (RUNTIME, RUNTIME), "vllm", comp, "block table [requests, blocks]"),
        (
            "bt_stride",
            "int32",
            "i32",
            (),
            "vllm",
            comp,
            "elements from request to request of the block table",
        ),
        ("topk", "ptr", "i32", (s, d.topk), "vllm", comp, "selected compressed rows, local, -1 for none"),
        ("t2r", "ptr", "i32", (s,), "vllm", comp, "request of each row"),
        ("kt", "ptr", "i32", (s * d.keys,), "runner", out, f"key table, {d.keys} entries a row"),
        ("klen", "ptr", "i32", (2 * s,), "runner", out, "keys of each row, then compressed keys of each row"),
    ]


def _runner_rows(d: Dims, key: BuildKey, grid: int, scratch_bytes: int) -> list[Row]:
    s, index, tl = key.rows, "w" if key.index else "", "w" if key.timeline else ""
    return [
        ("normed_out", "ptr", "bf16", (s, d.hidden), "runner", index, "normed layer input, for the indexer"),
        ("qr_out", "ptr", "bf16", (s, d.q_rank), "runner", index, "normed q-LoRA row, for the indexer"),
        ("scratch", "ptr", "u8", (scratch_bytes,), "runner", "rw", "scratch of this step width, zeroed once"),
        (
            "epoch",
            "ptr",
            "i32",
            (epoch_words(grid).words,),
            "runner",
            "rw",
            "epoch buffer: K1 reads the epoch and `stop`, a wait that gives up writes `stop`",
        ),
        *fault_rows(peers=False),
        (
            "tl",
            "ptr",
            "i64",
            (grid, len(POINTS["k1"])),
            "runner",
            tl,
            points_text("k1"),
        ),
    ]
