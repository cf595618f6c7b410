"""GEMV token passes: which rows are in LDS together.

Invariant: tiles are contiguous, in row order, cover every row once, and only the last may be narrow.
"""

from __future__ import annotations

from dataclasses import dataclass

from .arith import cdiv


@dataclass(frozen=True)
class Passes:
    """`tiles` = ((first row, rows), ...). Columns past a tile's rows re-read its last row and are ignored."""

    width: int
    rows: int
    tiles: tuple[tuple[int, int], ...]
    why: str

    @property
    def count(self) -> int:
        """How many passes a stage runs over its weights."""
        return len(self.tiles)

    @property
    def lds_rows(self) -> int:
        """Rows that the LDS tile must hold."""
        return min(self.width, self.rows)

    @property
    def ragged(self) -> bool:
        """Whether the last pass is narrower than the first."""
        return self.tiles[-1][1] != self.tiles[0][1]


def passes_of(rows: int, width: int, why: str) -> Passes:
    """The passes of a step of `rows` rows, `width` at a time."""
    tiles = tuple((i * width, min(width, rows - i * width)) for i in range(cdiv(rows, width)))
    return Passes(width=width, rows=rows, tiles=tiles, why=why)
