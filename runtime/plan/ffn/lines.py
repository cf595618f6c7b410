"""The line rule over the FFN half's plain data (`lines`): what one task publishes ends on lines.

x8r, x8rs, x8, x8s and normed: a row is published by one task and read once its flag is set. mid and mids: the
rows of an expert are written by its parts, and a reader awaits every part of that expert.
"""

from __future__ import annotations

from ..dims import Dims
from ..lines import unit_faults
from ..scratch import Scratch
from .regions import row_bytes


def ffn_line_faults(d: Dims, scratch: Scratch, line: int) -> list[str]:
    """Regions in which two rows with different writers could meet in one line."""
    return unit_faults(scratch, row_bytes(d, line), line, shared=("x8", "x8s"))
