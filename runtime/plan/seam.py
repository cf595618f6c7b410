"""What the two seams of a layer share, K1's and the FFN half's: loop counts (attention.md 5.10) and LDS
(5.6)."""

from __future__ import annotations

from dataclasses import dataclass

from .arith import cdiv
from .dims import SLICE_COLUMNS, TILE_ROWS, Dims
from .lds import PARTIAL_BYTES, Struct, struct_of
from .lds import Declared as Member
from .placement import BLOCK

MIX_WHY = "the seam holds every row of its columns in LDS: the MFMA's N decides"
"""Why the gate projection takes as many rows a pass as it does."""
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


def slices_of(d: Dims) -> int:
    """Seam slices: 32 hidden columns of all streams each."""
    return d.hidden // SLICE_COLUMNS


def gate_groups(d: Dims) -> int:
    """Groups of slices that one gate task sums in parallel: as many as fit a block, slices split evenly."""
    return cdiv(slices_of(d), gate_slices(d))


def gate_slices(d: Dims) -> int:
    """Consecutive slices that one thread of a gate sums in order."""
    return cdiv(slices_of(d), max(1, BLOCK // (d.mix + 1)))


def seam_struct(d: Dims, rows: int, *, k2: bool = False) -> Struct:
    """The seam: K1's, or with `k2` the FFN seam, which also holds its columns of the attention output."""
    columns, tiles = d.streams * SLICE_COLUMNS, cdiv(d.mix, TILE_ROWS)
    members: list[Member] = [
        ("red", 1, tiles * PARTIAL_BYTES // 4, "f32", "gate projection partials: 16-row tile, wave, lane, 4"),
        ("rl", rows, columns, "f32", "new residual of the slice: row, stream, column"),
        ("fl", d.mix, columns, "f32", "gate weights of the slice, hi + lo bf16 parts summed"),
    ]
    if k2:
        members.append(("pl", rows, SLICE_COLUMNS, "f32", "summed partial outputs of the slice's columns"))
    return struct_of("seam", ("slice", "norm", "gate"), members)
