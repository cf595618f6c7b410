"""Points of a timeline build, by kernel kind: what a workgroup has ended when it notes the clock.

The first is its entry. Templates name them (`stamp(c, tl, "ug")`); a record is one clock value (100 MHz) a
point.
"""

from __future__ import annotations

_TAIL = ("slice", "gate", "norm", "xq", "router", "route", "shared", "ug", "down", "reduce")
POINTS = {
    "k1": ("start", "kt", "wqkv", "qkv", "wq_b"),
    "k2": ("start", "split", "combine", "wo_a", "wo_b", *_TAIL),
    "ffn": ("start", "push", *_TAIL),
}


def points_text(kind: str) -> str:
    """The argument `tl` in words."""
    return f"timeline record a workgroup: {', '.join(POINTS[kind])}; 0 if not built in"
