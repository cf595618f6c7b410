"""FP4 as FNUZ bytes and E8M0 codes as factors: every nibble at every place, every code, and no sum of
exponents."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import small

ARCH = "gfx942"
CASE = {"rows": 6, "experts": 384, "picks": 6, "width": 6, "route": 0}
MAGNITUDE = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def _run(run: small.Runner, words: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    octets, factors = np.zeros((512, 8), np.uint8), np.zeros((512, 4), np.float32)
    buffers = {
        "words": words, "codes": codes, "octets": octets, "factors": factors,
        "scratch": np.zeros(64, np.uint32), "epoch": np.zeros(832, np.int32),
    }  # fmt: skip
    run("fp4.py.j2", ARCH, buffers, case=CASE)
    return octets, factors


def test_every_nibble_at_every_place(run: small.Runner) -> None:
    generator = np.random.default_rng(0)
    nibbles = generator.integers(0, 16, (512, 8), dtype=np.uint32)
    for place in range(8):
        nibbles[16 * place : 16 * place + 16, place] = np.arange(16)
    nibbles[nibbles == 8] = 0  # the copies hold no negative zero
    words = (nibbles << (4 * np.arange(8, dtype=np.uint32))).sum(1, dtype=np.uint32)
    octets, _ = _run(run, words, np.zeros(512, np.uint32))
    values = octets.view(ml_dtypes.float8_e4m3fnuz).astype(np.float64) * 2.0**7
    want = np.where(nibbles & 8, -1, 1) * MAGNITUDE[nibbles & 7]
    assert np.array_equal(values, want[:, [0, 2, 4, 6, 1, 3, 5, 7]])


def test_every_code(run: small.Runner) -> None:
    """2^(s - 127); 0 for code 0, inf for 255: a factor is never negative and never NaN."""
    codes = np.arange(2048, dtype=np.uint8).reshape(512, 4)
    _, factors = _run(run, np.zeros(512, np.uint32), codes.copy().view(np.uint32).reshape(-1))
    want = np.where(codes == 0, 0.0, np.where(codes == 255, np.inf, 2.0 ** (codes.astype(np.float64) - 127)))
    assert np.array_equal(factors.astype(np.float64), want)
