"""Loop counts that both seams of a layer share: K1's and the FFN half's (attention.md 5.10)."""

from __future__ import annotations

from dataclasses import dataclass

from .arith import cdiv
from .dims import SLICE_COLUMNS, Dims
from .placement import gate_groups, gate_slices, slices_of

NORM_LANES = 256
"""Lanes that hold one row in the norms: 8 columns each of a 2048-column chunk."""


@dataclass(frozen=True)
class SeamMap:
    """Loop counts of the seam's thread maps."""

    slices: int
    slice_columns: int
    gate_groups: int
    gate_slices: int


def seam_map(d: Dims) -> SeamMap:
    """The seam of a layer."""
    return SeamMap(slices_of(d), SLICE_COLUMNS, gate_groups(d), gate_slices(d))


def norm_chunks(d: Dims) -> int:
    """Chunks of the layer input that a norm's lanes hold; the last may be part filled."""
    return cdiv(d.hidden, NORM_LANES * 8)
