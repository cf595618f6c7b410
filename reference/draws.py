"""Reproducible random draws: raw Philox words turned into values by exact integer arithmetic only.

numpy promises the raw stream of a bit generator, but neither numpy nor torch promises the values of its
distributions over versions. Digests of outputs are kept as goldens, so inputs must not move.
"""

from __future__ import annotations

import hashlib
from math import prod

import numpy as np
import torch
from torch import Tensor


class Draws:
    """A stream of draws named by (seed, name); equal names give equal values, on every machine."""

    def __init__(self, seed: int, name: str) -> None:
        digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
        self._bits = np.random.Philox(key=int.from_bytes(digest[:16], "little"))

    def words(self, *shape: int) -> Tensor:
        """int64 tensor of raw 64-bit words."""
        raw = np.atleast_1d(self._bits.random_raw(max(prod(shape), 1)))
        return torch.from_numpy(raw.view(np.int64)[: prod(shape)].copy()).reshape(shape)

    def octets(self, *shape: int) -> Tensor:
        """uint8 tensor of uniform bytes."""
        count = prod(shape)
        return self.words(-(-count // 8)).view(torch.uint8)[:count].reshape(shape)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """int64 tensor, low <= x < high (the bias of the remainder is below 2**-31)."""
        return low + ((self.words(*shape) >> 1) & (2**62 - 1)) % (high - low)

    def uniform(self, *shape: int) -> Tensor:
        """float64 in [0, 1), multiples of 2**-52."""
        return (self.words(*shape) & (2**52 - 1)).to(torch.float64) * 2.0**-52

    def normal(self, *shape: int) -> Tensor:
        """float64 with mean 0 and variance 1: the sum of four uniform 16-bit numbers, so within +-3.47."""
        words = self.words(*shape)
        parts = [(words >> shift) & 0xFFFF for shift in (0, 16, 32, 48)]
        total = torch.stack(parts).sum(0)
        scaled: Tensor = (total.to(torch.float64) - 2.0 * 65535) / (65536 * (1 / 3) ** 0.5)
        return scaled

    def permutation(self, count: int) -> Tensor:
        """int64 permutation of 0 .. count - 1."""
        return torch.argsort(self.words(count), stable=True)
