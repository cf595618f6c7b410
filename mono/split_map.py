"""Who holds what in a split task: waves and key tiles, lanes and heads, rows of LDS members."""

from __future__ import annotations

from typing import Any

import flydsl.expr as fx
from flydsl.expr.typing import Int32

from .context import Context

HEAD_TILE = 16
PAD = 16  # bytes behind a head's queries in LDS: 16 heads start in different banks


def heads(c: Context) -> int:
    """Heads of the rank."""
    return c.build.shape.q_rows // c.build.shape.head_dim


def busy_waves(c: Context) -> int:
    """Waves that hold keys."""
    s = c.build.back.split
    return s.key_tiles * s.head_groups


def wave_heads(c: Context) -> int:
    """Head tiles of a wave's scores."""
    return heads(c) // HEAD_TILE // c.build.back.split.head_groups


def tile(c: Context) -> Any:
    """The wave's key tile."""
    return c.wave & (c.build.back.split.key_tiles - 1)


def head_of(c: Context, h: int) -> Any:
    """The lane's head in the wave's head tile ``h``."""
    s, first = c.build.back.split, h * HEAD_TILE
    if s.head_groups > 1:
        group = Int32(fx.Uint32(c.wave) // s.key_tiles)
        return group * (wave_heads(c) * HEAD_TILE) + (c.lane & 15) + first
    return (c.lane & 15) + first


def statistic(c: Context, head: Any, kind: int) -> Any:
    """Where a head's maxima (kind 0) or sums (1) of all key tiles lie."""
    s = c.build.back.split
    return s.st + kind * (heads(c) * s.key_tiles * 4) + head * (s.key_tiles * 4)


def query_row(c: Context) -> int:
    """Bytes of a head's queries in LDS."""
    return c.build.shape.head_dim * 2 + PAD


def weight_row(c: Context) -> int:
    """Bytes of a head's bf16 numerators in LDS: the chunk's, and 8 that keep heads on different banks."""
    return c.build.back.split.chunk * 2 + 8


def record_row(c: Context) -> int:
    """Bytes of a record in LDS."""
    return c.build.shape.record_data + c.build.shape.record_scales
