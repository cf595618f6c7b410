"""Rotary tables: frequencies of both kinds of layer, float32 all the way, and the pairing."""

from __future__ import annotations

from math import ceil, floor, log, pi

import torch

from flymono.reference.formats import F32, F64
from flymono.reference.rope import cos_sin_table, frequencies, rotate
from flymono.specs.schema import ModelSpec


def test_plain_frequencies(model: ModelSpec) -> None:
    got = frequencies(model.rope, 64, ratio=0).to(F64)
    want = 10000.0 ** (-torch.arange(0, 64, 2, dtype=F64) / 64)
    assert bool(((got - want).abs() <= 4 * 2.0**-24 * want).all())


def test_yarn_blends_between_pairs_15_and_25(model: ModelSpec) -> None:
    rope, base = model.rope, model.rope.compress_theta
    low = floor(64 * log(rope.original_max_positions / (rope.beta_fast * 2 * pi)) / (2 * log(base)))
    high = ceil(64 * log(rope.original_max_positions / (rope.beta_slow * 2 * pi)) / (2 * log(base)))
    assert (low, high) == (15, 25)
    plain = float(base) ** (-torch.arange(0, 64, 2, dtype=F64) / 64)
    ratio = frequencies(rope, 64, ratio=2).to(F64) / plain
    assert torch.allclose(ratio[: low + 1], torch.ones(low + 1, dtype=F64), rtol=1e-6)
    assert torch.allclose(ratio[high:], torch.full((32 - high,), 1 / 16, dtype=F64), rtol=1e-6)
    assert bool((ratio[low : high + 1].diff() < 0).all())


def test_the_table_is_float32_in_every_step(model: ModelSpec) -> None:
    table = cos_sin_table(model.rope, 64, 0, 70_001)
    frequency = frequencies(model.rope, 64, 0)
    angle = torch.tensor(70_000, dtype=F32) * frequency
    assert torch.equal(table[70_000], torch.cat([angle.cos(), angle.sin()]))
    exact = 70_000 * 10000.0 ** (-torch.arange(0, 64, 2, dtype=F64) / 64)
    off = (table[70_000].to(F64) - torch.cat([exact.cos(), exact.sin()])).abs().max().item()
    assert 1e-4 < off < 5e-3  # an exact table is another model


def test_pairs_are_neighbours() -> None:
    value = torch.tensor([[1.0, 0.0, 0.0, 1.0]])
    turned = rotate(value, torch.tensor([[0.6, 0.0]]), torch.tensor([[0.8, 1.0]]))
    assert torch.equal(turned, torch.tensor([[0.6, 0.8, -1.0, 0.0]]))
