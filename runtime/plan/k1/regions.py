"""Scratch of K1 (attention.md 7). The FFN half shares x8 and x8s; its seam reuses lin and pmix under its own
tag."""

from __future__ import annotations

from ..dims import Dims
from ..scratch import PAIR_BYTES, Declared, data_region
from ..seam import slices_of
from .stages import K_PARTS

X8_READERS = "wqkv shared"
"""Of K1 and of the FFN half."""


def k1_regions(d: Dims, rows: int) -> tuple[Declared, ...]:
    """K1's regions. K2's FFN half shares x8 and x8s; its seam reuses lin and pmix under its own tag."""
    pairs, both = PAIR_BYTES, ("k1", "k2")
    return (
        data_region("x8", d.hidden * rows, "e4m3x4", "norm", X8_READERS, both, f"t*{d.hidden // 4} + c/4"),
        data_region(
            "x8s",
            d.hidden // d.mx_group * 4 * rows,
            "i32",
            "norm",
            X8_READERS,
            both,
            f"t*{d.hidden // d.mx_group} + c/{d.mx_group}",
        ),
        Declared(
            "xrdy", K_PARTS * pairs * rows, "flags", "flag", "norm", "wqkv", ("k1",), f"{K_PARTS}*t + half"
        ),
        Declared(
            "qkvp",
            K_PARTS * d.qkv_rows * pairs * rows,
            "pairs",
            "f32",
            "wqkv",
            "qkv",
            ("k1",),
            f"(half*S + t)*{d.qkv_rows} + n",
        ),
        data_region("qx8", d.q_rank * rows, "e4m3x4", "qkv", "wq_b", ("k1",), f"t*{d.q_rank // 4} + n/4"),
        data_region(
            "qx8s",
            d.q_rank // d.mx_group * 4 * rows,
            "i32",
            "qkv",
            "wq_b",
            ("k1",),
            f"t*{d.q_rank // d.mx_group} + n/{d.mx_group}",
        ),
        Declared("qrdy", pairs * rows, "flags", "flag", "qkv", "wq_b", ("k1",), "t"),
        Declared(
            "lin",
            d.hidden // 2 * pairs * rows,
            "pairs",
            "bf16x2",
            "slice",
            "norm",
            both,
            f"(t*{d.hidden} + c)/2",
        ),
        Declared(
            "pmix",
            slices_of(d) * (d.mix + 1) * pairs * rows,
            "pairs",
            "f32",
            "slice",
            "gate",
            both,
            f"(slice*S + t)*{d.mix + 1} + j",
        ),
    )
