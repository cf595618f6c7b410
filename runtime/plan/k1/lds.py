"""LDS of K1's GEMV half (attention.md 5.6)."""

from __future__ import annotations

from ..dims import Dims
from ..lds import PARTIAL_BYTES, Struct, code_words, struct_of, x_words
from .stages import K_PARTS


def front_struct(d: Dims, rows: int, wq_b_per_workgroup: int) -> Struct:
    """K1's GEMV half, for `rows` rows of a pass."""
    half, red = d.hidden // K_PARTS, wq_b_per_workgroup * PARTIAL_BYTES // 4 + 16
    return struct_of(
        "front",
        ("wqkv", "qkv", "wq_b"),
        [
            (
                "red",
                1,
                red,
                "f32",
                "GEMV partials: task, wave, lane, 4; in its last 64 bytes wave sums of the norms",
            ),
            ("qxl", rows, x_words(d.q_rank), "e4m3x4", "q-LoRA rows of the pass"),
            ("qxsl", rows, code_words(d, d.q_rank), "i32", "their scale codes"),
            ("xl", rows, x_words(half), "e4m3x4", "layer input rows of the pass, one K half"),
            ("xsl", rows, code_words(d, half), "i32", "their scale codes"),
        ],
    )
