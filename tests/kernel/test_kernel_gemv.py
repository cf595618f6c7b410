"""The block-scaled GEMV: right sums, weights asked for once, no trap in the scale codes; both strategies."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import small

TOKENS, ROWS, K = 6, 64, 1280


def _tile_major(data: np.ndarray) -> np.ndarray:
    """The order of attention.md 2.3: 16-row x 128-column steps of 2 KB, a lane's chunks together."""
    cut = data.reshape(ROWS // 16, 16, K // 128, 2, 2, 4, 8)  # tile, row, step, half, block, j, element
    return np.ascontiguousarray(cut.transpose(0, 2, 3, 5, 1, 4, 6))


def _case(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Random x bytes, x codes, weight bytes and weight codes; no NaN of either flavour."""
    generator = np.random.default_rng(seed)
    x = generator.integers(0, 256, (TOKENS, K), dtype=np.uint8)
    w = generator.integers(0, 256, (ROWS, K), dtype=np.uint8)
    for octets in (x, w):
        octets[(octets & 0x7F) == 0x7F] = 0x31  # no OCP NaN
        octets[octets == 0x80] = 0  # no FNUZ NaN
    xc = generator.integers(115, 128, (TOKENS, K // 32), dtype=np.int32)
    wc = generator.integers(110, 123, (ROWS // 32, K // 32), dtype=np.uint8)
    return x, xc, w, wc


def _run(
    run: small.Runner, arch: str, x: np.ndarray, xc: np.ndarray, w: np.ndarray, wc: np.ndarray
) -> tuple[np.ndarray, small.LaunchResult]:
    layout = small.plan_k1(small.SPECS, small.KEYS[arch]).strategy.weight_layout
    scratch = np.zeros(16384, np.uint8)
    scratch[: x.size] = x.reshape(-1)
    scratch[8192 : 8192 + xc.size * 4] = xc.reshape(-1).view(np.uint8)
    out = np.full((ROWS // 16, TOKENS, 16), np.nan, np.float32)
    buffers = {
        "weights": _tile_major(w) if layout == "tile_major" else w.copy(),
        "codes": wc,
        "out": out,
        "scratch": scratch,
        "epoch": np.zeros(832, np.int32),
    }
    result = run("gemv.py.j2", arch, buffers, grid=ROWS // 16)
    return out.transpose(1, 0, 2).reshape(TOKENS, ROWS), result


def _values(arch: str, octets: np.ndarray) -> np.ndarray:
    ocp = small.plan_k1(small.SPECS, small.KEYS[arch]).strategy.fp8 == "ocp"
    return octets.view(ml_dtypes.float8_e4m3fn if ocp else ml_dtypes.float8_e4m3fnuz).astype(np.float64)


@pytest.mark.parametrize("arch", small.ARCHS)
def test_sums(run: small.Runner, arch: str) -> None:
    x, xc, w, wc = _case(5)
    got, result = _run(run, arch, x, xc, w, wc)
    xs = _values(arch, x) * np.repeat(2.0 ** (xc - 127), 32, 1)
    ws = _values(arch, w) * np.repeat(np.repeat(2.0 ** (wc.astype(np.int32) - 127), 32, 0), 32, 1)
    bound = np.abs(xs) @ np.abs(ws).T * 2.0**-20  # fp32 sums of 1280 exact products
    assert (np.abs(got - xs @ ws.T) <= bound).all()
    assert result.traffic["weights"].load.bytes == w.size
    assert result.traffic["codes"].load.bytes <= 0.02 * w.size


@pytest.mark.parametrize("arch", small.ARCHS)
@pytest.mark.parametrize("weight_code", [1, 2, 100, 116, 124, 125, 126, 127, 249])
def test_zero_groups_add_nothing(run: small.Runner, arch: str, weight_code: int) -> None:
    """A group of zeros has code 1; whatever the weights' code is, it adds exactly nothing (2.4)."""
    x, xc, w, wc = _case(6)
    x[:], xc[:], wc[:] = 0, 1, weight_code
    got, _ = _run(run, arch, x, xc, w, wc)
    assert (got == 0).all()


@pytest.mark.parametrize("arch", small.ARCHS)
def test_small_code_sums_vanish_quietly(run: small.Runner, arch: str) -> None:
    """Code sums below 127 are products below 2^-127 each: far below fp32's normal range, never inf or NaN."""
    x, xc, w, wc = _case(8)
    for total in range(2, 128, 9):
        xc[:], wc[:] = 1, total - 1
        got, _ = _run(run, arch, x, xc, w, wc)
        assert (np.abs(got) < 2.0**-100).all(), total
