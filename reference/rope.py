"""Rotary tables in float32, as the model builds them, and the rotation of interleaved pairs.

The table is float32 all the way (frequencies, angles, cos, sin): an exact table differs by 6e-4 at position
70,000, so a table made in float64 would be another model. (attention sheet 1.4.)
"""

from __future__ import annotations

from math import ceil, floor, log, pi

import torch
from torch import Tensor

from ..specs.schema import Rope
from .formats import F32


def _ramp(rope: Rope, dim: int, base: float, original: int) -> Tensor:
    """YaRN weight of the unscaled frequency, float32 [dim / 2]."""

    def turn(beta: float) -> float:
        return dim * log(original / (beta * 2 * pi)) / (2 * log(base))

    low: float = max(floor(turn(rope.beta_fast)), 0)
    high: float = min(ceil(turn(rope.beta_slow)), dim - 1)
    high = high + 0.001 if low == high else high
    steps = (torch.arange(dim // 2, dtype=F32) - low) / (high - low)
    return 1 - steps.clamp(0, 1)


def frequencies(rope: Rope, dim: int, ratio: int) -> Tensor:
    """float32 [dim / 2]: plain for layers without a compressed cache, YaRN for the others."""
    base = rope.compress_theta if ratio else rope.theta
    factor = rope.factor if ratio else 1
    original = rope.original_max_positions if ratio else rope.max_positions
    powers = base ** (torch.arange(0, dim, 2, dtype=F32) / dim)
    plain, scaled = 1.0 / powers, 1.0 / (factor * powers)
    ramp = _ramp(rope, dim, base, original)
    return scaled * (1 - ramp) + plain * ramp


def cos_sin_table(rope: Rope, dim: int, ratio: int, positions: int) -> Tensor:
    """float32 [positions, dim]: cos of every pair, then sin of every pair."""
    angle = torch.arange(positions, dtype=F32)[:, None] * frequencies(rope, dim, ratio)
    return torch.cat([angle.cos(), angle.sin()], dim=-1)


def rotate(pairs: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """(e cos - o sin, e sin + o cos) over [..., 2 * n]: two rounded products and one add each in float32."""
    even, odd = pairs[..., 0::2], pairs[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)
