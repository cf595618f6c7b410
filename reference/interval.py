"""Intervals of float64 values: where a correctly working kernel's number may lie.

Every function that is applied to both ends is monotone (rounding to a format, float32 products by a known
factor), so the result bounds every value in between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .formats import F64, bf16


@dataclass(frozen=True)
class Interval:
    """lo <= x <= hi, float64 tensors of one shape; a known value has lo is hi."""

    lo: Tensor
    hi: Tensor

    @classmethod
    def point(cls, value: Tensor) -> Interval:
        """A value that is known exactly."""
        wide = value.to(F64)
        return cls(wide, wide)

    @classmethod
    def around(cls, middle: Tensor, error: Tensor) -> Interval:
        """middle +- error."""
        return cls(middle - error, middle + error)

    @property
    def known(self) -> bool:
        return self.lo is self.hi

    @property
    def middle(self) -> Tensor:
        return self.lo if self.known else (self.lo + self.hi) / 2

    @property
    def largest(self) -> Tensor:
        """Largest magnitude."""
        return torch.maximum(self.lo.abs(), self.hi.abs())

    @property
    def smallest(self) -> Tensor:
        """Smallest magnitude; 0 where the interval holds 0."""
        outside = torch.maximum(self.lo, -self.hi)
        return outside.clamp_min(0.0)

    def map(self, monotone: Callable[[Tensor], Tensor]) -> Interval:
        """Both ends through an increasing function."""
        if self.known:
            return Interval.point(monotone(self.lo))
        return Interval(monotone(self.lo).to(F64), monotone(self.hi).to(F64))

    def bf16(self) -> Interval:
        """Rounded to bf16."""
        return self.map(bf16)

    def __getitem__(self, index: object) -> Interval:
        if self.known:
            return Interval.point(self.lo[index])  # type: ignore[index]
        return Interval(self.lo[index], self.hi[index])  # type: ignore[index]

    def times(self, factor: Interval) -> Interval:
        """Product of two intervals, without rounding."""
        corners = torch.stack(
            [self.lo * factor.lo, self.lo * factor.hi, self.hi * factor.lo, self.hi * factor.hi]
        )
        return Interval(corners.amin(0), corners.amax(0))

    def widened(self, relative: float) -> Interval:
        """Each end moved outwards by `relative` of its magnitude."""
        return Interval(self.lo - relative * self.lo.abs(), self.hi + relative * self.hi.abs())
