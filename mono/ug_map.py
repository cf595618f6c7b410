"""How the waves of a routed gate/up task share it, and where its activations lie in LDS.

Bit 0 of the wave is which 16 of a group's 32 columns, above it the K slice, above that the group. A wave has
two 16-row tiles: its columns' gate and up rows, by tile or row by row as the layout has them.

x is held whole, for all tasks of the workgroup, if the step's rows fit; else in K blocks, of which every K
slice has its share: ``part`` columns of a row. A step with more rows than a unit has picks gathers x by unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flydsl.expr.typing import Int32

from . import rows
from .build import Build
from .context import Context

GROUP = 32
STEP = 128


@dataclass(frozen=True)
class Map:
    """Counts of a task; all Python ints."""

    slices: int  # K slices
    groups: int
    held: int  # rows of x in LDS
    by_unit: bool  # x is gathered for each unit
    steps: int  # steps of a K slice
    blocks: int  # K blocks of a task; 1: x is held whole
    hidden: int

    @property
    def part(self) -> int:
        """Columns that a K slice has of a row in LDS."""
        return self.hidden // (self.slices * self.blocks)


def map_of(build: Build) -> Map:
    """The map of a build's gate/up tasks."""
    mix, hidden = build.ffn.mix, build.shape.hidden
    slices = build.waves // (2 * mix.groups_per_task)
    m = Map(
        slices,
        mix.groups_per_task,
        min(build.shape.rows, mix.pick_width),
        build.shape.rows > mix.pick_width,
        hidden // STEP // slices,
        hidden // mix.k_block,
        hidden,
    )
    if m.part * m.slices * m.blocks != hidden or m.part % (2 * STEP):
        raise ValueError(
            f"ug: K blocks of {mix.k_block} columns give {m.slices} slices no whole pairs of steps"
        )
    return m


def half(c: Context) -> Any:
    """Which 16 columns of the group."""
    return c.wave & 1


def k_slice(c: Context) -> Any:
    """The wave's K slice."""
    return (c.wave >> 1) & (map_of(c.build).slices - 1)


def group(c: Context) -> Any:
    """The wave's group of the task."""
    return c.wave >> map_of(c.build).slices.bit_length()


def own(c: Context) -> Any:
    """LDS of the wave's two tiles of sums; before them its scale factors of a round."""
    slices = map_of(c.build).slices
    return (((group(c) << 1) | half(c)) * slices + k_slice(c)) * 2048 + c.build.ffn.lds.red


def whole(c: Context) -> rows.Slice:
    """Rows of x as they are."""
    k, f = c.build.shape.hidden, c.build.ffn
    return rows.Slice(k, k, Int32(f.scratch.x8r), Int32(f.scratch.x8rs), f.lds.x, f.lds.xs)


def share(c: Context, which: int, block: Any) -> rows.Slice:
    """What K slice ``which`` has of K block ``block`` (uniform)."""
    m, f = map_of(c.build), c.build.ffn
    first = block * m.part + which * (m.steps * STEP)
    data = m.part + rows.PAD
    codes = m.part // 8 + rows.PAD
    return rows.Slice(
        m.part,
        m.hidden,
        first + f.scratch.x8r,
        (first >> 3) + f.scratch.x8rs,
        f.lds.x + which * m.held * data,
        f.lds.xs + which * m.held * codes,
    )


def x_at(c: Context, token: Any) -> tuple[Any, Any]:
    """LDS bytes of the wave's K slice of LDS row ``token`` (a lane's): (data, codes)."""
    m, f = map_of(c.build), c.build.ffn
    if m.blocks == 1:
        s, columns = whole(c), m.steps * STEP
        data = token * s.lds_row + k_slice(c) * columns + f.lds.x
        return data, token * s.lds_code_row + k_slice(c) * (columns // 8) + f.lds.xs
    s = share(c, 0, Int32(0))
    data = token * s.lds_row + k_slice(c) * (m.held * s.lds_row) + f.lds.x
    return data, token * s.lds_code_row + k_slice(c) * (m.held * s.lds_code_row) + f.lds.xs
