"""Launch arguments of K2's attention half, 1 to 25 (attention.md 6.2); the FFN half's follow."""

from __future__ import annotations

from ..abi import RUNTIME, Row
from ..dims import Dims
from ..keys import BuildKey
from ..strategy import Strategy

ZERO_RECORD_BYTES = 1024


def attention_rows(d: Dims, key: BuildKey, how: Strategy) -> list[Row]:
    """The attention half's arguments in order; what only index builds read is unused in the others."""
    return _cache_rows(d, key) + _table_rows(d, key) + _weight_rows(d, how)


def _cache_rows(d: Dims, key: BuildKey) -> list[Row]:
    comp, made = "r" if key.ratio else "", "rw" if key.index else "r"
    record, s = (RUNTIME, RUNTIME, d.record_bytes), key.rows
    return [
        ("q", "ptr", "bf16", (s, d.heads, d.head_dim), "runner", "r", "rotated queries of K1"),
        ("swa", "ptr", "u8", record, "vllm", "r", "window cache [blocks, states, record]"),
        ("swa_stride", "int64", "i64", (), "vllm", "r", "bytes from block to block of the window cache"),
        ("swa_block", "int32", "i32", (), "vllm", "r", "states a block of the window cache"),
        ("comp", "ptr", "u8", record, "vllm", comp, "compressed cache [blocks, rows, record]"),
        ("comp_stride", "int64", "i64", (), "vllm", comp, "bytes from block to block of that cache"),
        ("comp_block", "int32", "i32", (), "vllm", comp, "compressed rows a block"),
        ("kt", "ptr", "i32", (s * d.keys,), "runner", made, f"key table, {d.keys} entries a row"),
        ("klen", "ptr", "i32", (2 * s,), "runner", made, "keys of each row, then its compressed keys"),
    ]  # fmt: skip


def _table_rows(d: Dims, key: BuildKey) -> list[Row]:
    """Arguments of the key table, read by index builds alone, and positions, which the inverse RoPE needs."""
    s, used = key.rows, "r" if key.index else ""
    return [
        ("slot", "ptr", "i64", (s,), "vllm", used, "window-cache slot of each row, -1 for a padded row"),
        ("swa_idx", "ptr", "i32", (s, key.window), "vllm", used, "window slots of each row, then -1"),
        ("swa_lens", "ptr", "i32", (s,), "vllm", used, "window slots in use"),
        ("t2r", "ptr", "i32", (s,), "vllm", used, "request of each row"),
        ("topk", "ptr", "i32", (s, d.topk), "vllm", used, "selected compressed rows, local, -1 for none"),
        ("comp_bt", "ptr", "i32", (RUNTIME, RUNTIME), "vllm", used, "block table [requests, blocks]"),
        (
            "bt_stride",
            "int32",
            "i32",
            (),
            "vllm",
            used,
            "elements from request to request of the block table",
        ),
        ("pos", "ptr", "i64", (s,), "vllm", "r", "position of each row; low 32 bits are read"),
    ]


def _weight_rows(d: Dims, how: Strategy) -> list[Row]:
    e4m3, block = "e4m3fn" if how.fp8 == "ocp" else "e4m3fnuz", d.weight_block
    order = "row-major" if how.weight_layout == "row_major" else "tile-major copy, codes + 1"
    return [
        ("sink", "ptr", "f32", (d.heads,), "layer", "r", "sink logit of each head, natural-log units"),
        ("qk_scale", "int32", "i32", (), "runner", "r", "bits of the f32 softmax scale times log2(e)"),
        ("cos_sin", "ptr", "f32", (RUNTIME, d.rope), "layer", "r", "RoPE table [positions, cos | sin]"),
        ("woa", "ptr", e4m3, (d.o_rows, d.group_k), "layer", "r", f"wo_a of this rank's groups, {order}"),
        ("woa_s", "ptr", "u8", (d.o_rows // block, d.group_k // block), "layer", "r", "its E8M0 codes"),
        ("wob", "ptr", e4m3, (d.hidden, d.o_rows), "layer", "r", f"wo_b of this rank's columns, {order}"),
        ("wob_s", "ptr", "u8", (d.hidden // block, d.o_rows // block), "layer", "r", "its E8M0 codes"),
        ("zrec", "ptr", "u8", (ZERO_RECORD_BYTES,), "runner", "r", "zero bytes: the record of key -1"),
    ]
