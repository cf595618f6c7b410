"""Reductions across lanes give the bits of the promised order, on both kinds of lane exchange."""

from __future__ import annotations

import numpy as np
import pytest
import small


def _butterfly(v: np.ndarray, distances: tuple[int, ...]) -> np.ndarray:
    lane = np.arange(64)
    for d in distances:
        v = (v + v[:, lane ^ d]).astype(np.float32)
    return v


@pytest.mark.parametrize("arch", small.ARCHS)
def test_reductions(run: small.Runner, arch: str) -> None:
    generator = np.random.default_rng(11)
    x = (generator.standard_normal(64 * 64) * 10.0 ** generator.integers(-4, 5, 64 * 64)).astype(np.float32)
    out = np.zeros((64, 64, 8), np.float32)
    buffers = {"x": x, "out": out, "scratch": np.zeros(64, np.uint32), "epoch": np.zeros(832, np.int32)}
    run("reduce.py.j2", arch, buffers, grid=8)
    v = x.reshape(64, 64)
    assert np.array_equal(out[:, 63, 0], _butterfly(v, (1, 2, 4, 8, 16, 32))[:, 63])
    assert np.array_equal(out[..., 1], _butterfly(v, (32, 16, 8, 4, 2, 1)))
    assert np.array_equal(out[..., 2], _butterfly(v, (16, 8, 4, 2, 1)))
    assert np.array_equal(out[..., 3], _butterfly(v, (1, 2)))
    assert np.array_equal(out[..., 4], _butterfly(v, (4, 8)))
    top = np.sort(v.view(np.int32).reshape(64, 2, 32), -1)[..., -1:]
    assert np.array_equal(out[..., 5].view(np.int32).reshape(64, 2, 32), np.broadcast_to(top, (64, 2, 32)))
