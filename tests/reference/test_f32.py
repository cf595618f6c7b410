"""fused multiply-add against rational arithmetic, and the summation orders against plain loops."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import torch

from flymono.reference import f32
from flymono.reference.draws import Draws
from flymono.reference.formats import F32, F64


def nearest(exact: Fraction, got: float) -> bool:
    """Whether `got` is the float32 nearest to `exact`, ties to even."""
    value = np.float32(got)
    off = abs(Fraction(float(value)) - exact)
    for other in (np.nextafter(value, np.float32(np.inf)), np.nextafter(value, np.float32(-np.inf))):
        distance = abs(Fraction(float(other)) - exact)
        if distance < off or (distance == off and int(value.view(np.int32)) & 1):
            return False
    return True


def test_fma_is_rounded_once() -> None:
    draws = Draws(0, "fma")
    a, b = (draws.normal(2000).to(F32) for _ in range(2))
    scale = torch.tensor([1.0, 2.0**24, 2.0**-24, 2.0**-40])[torch.arange(2000) % 4]
    c = draws.normal(2000).to(F32) * scale
    got = f32.fma(a, b, c)
    for x, y, z, g in zip(a.tolist(), b.tolist(), c.tolist(), got.tolist(), strict=True):
        assert nearest(Fraction(x) * Fraction(y) + Fraction(z), g)


def test_fma_where_two_roundings_would_be_wrong() -> None:
    # The product lies a little above a float32 tie of the sum, by less than float64 can hold next to c.
    one = torch.tensor(1.0, dtype=F32)
    a, b = one + 2.0**-23, one * (2.0**-24)
    tail = f32.fma(a, b, one)
    assert tail.item() == 1 + 2.0**-23
    c, p, q = torch.tensor(1.0), torch.tensor(2.0**-24 + 2.0**-47), torch.tensor(1.0)
    assert f32.fma(p, q, c).item() == 1 + 2.0**-23
    c, p = torch.tensor(2.0**30), torch.tensor(2.0**6 + 2.0**-17)
    assert f32.fma(p, q, c).item() == 2.0**30 + 2.0**7


def test_sums_follow_their_order() -> None:
    values = Draws(1, "sums").normal(64).to(F32)
    total = values[0]
    for value in values[1:]:
        total = total + value
    assert torch.equal(f32.ordered_sum(values, 0), total)
    lanes = values.clone()
    for offset in (32, 16, 8, 4, 2, 1):
        lanes = torch.stack([lanes[i] + lanes[i ^ offset] for i in range(64)])
    assert torch.equal(f32.butterfly(values, (32, 16, 8, 4, 2, 1)), lanes[0])
    assert len(lanes.unique()) == 1


def test_functions_are_correctly_rounded_and_flush() -> None:
    x = Draws(2, "functions").uniform(1000).to(F32) + 2.0**-10
    assert torch.equal(f32.rsq(x), (1 / x.to(F64).sqrt()).to(F32))
    assert torch.equal(f32.rcp(x), (1 / x.to(F64)).to(F32))
    assert f32.exp2(torch.tensor(-130.0)).item() == 0.0
    assert f32.exp2(torch.tensor(-torch.inf)).item() == 0.0
    assert f32.rsq(torch.tensor(0.0)).item() == torch.inf
