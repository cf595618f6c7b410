"""Quantisers, roundings and divisions of `mono/`, bit for bit, over every value that can decide them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import small
import torch

from flymono.reference.formats import FLAVOURS
from flymono.reference.quant import mxfp8

BF16 = ml_dtypes.bfloat16


def _extra() -> dict[str, np.ndarray]:
    return {"scratch": np.zeros(64, np.uint32), "epoch": np.zeros(832, np.int32)}


def _groups() -> np.ndarray:
    """Groups of 32 bf16 of which one value, at a place that moves, takes each of the 65,536 patterns."""
    generator = np.random.default_rng(7)
    patterns = np.arange(65536, dtype=np.uint16)
    groups = np.zeros((65536, 32), np.uint16)
    top = patterns.view(BF16).astype(np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        share = (
            generator.uniform(-1, 1, (65536, 32)).astype(np.float32)
            * np.where(np.isfinite(top), top, 1)[:, None]
        )
    groups[:] = share.astype(BF16).view(np.uint16)
    groups[np.arange(65536), patterns % 32] = patterns
    return groups


@pytest.mark.parametrize("arch", small.ARCHS)
def test_mxfp8_of_every_largest_value(run: small.Runner, arch: str) -> None:
    groups = _groups()
    flavour = small.plan_k1(small.SPECS, small.KEYS[arch]).strategy.fp8
    codes, octets = np.zeros(65536 * 4, np.int32), np.zeros((65536, 32), np.uint8)
    record = np.zeros(65536 * 4, np.int32)
    buffers = {"source": groups, "codes": codes, "octets": octets, "record": record, **_extra()}
    run("quantise.py.j2", arch, buffers, grid=512)
    want = mxfp8(torch.from_numpy(groups.view(np.int16).copy()).view(torch.bfloat16), 32, FLAVOURS[flavour])
    assert np.array_equal(codes.reshape(-1, 4), np.repeat(want.codes.numpy().reshape(-1, 1), 4, 1))
    got, expected = octets, want.data.view(torch.uint8).numpy().reshape(65536, 32)
    nan = want.codes.numpy().reshape(-1) == 254
    assert np.array_equal(got[~nan], expected[~nan])
    _check_not_finite(got[nan], groups[nan], flavour)


def _check_not_finite(octets: np.ndarray, groups: np.ndarray, flavour: str) -> None:
    """A group with NaN or inf: numbers become 0, NaN and inf become NaN (attention.md 2.2)."""
    kind = ml_dtypes.float8_e4m3fn if flavour == "ocp" else ml_dtypes.float8_e4m3fnuz
    values = octets.view(kind).astype(np.float32)
    with np.errstate(invalid="ignore"):
        finite = np.isfinite(groups.view(BF16).astype(np.float32))
    assert len(octets) == 256
    assert np.isnan(values[~finite]).all()
    assert (values[finite] == 0).all()


@pytest.mark.parametrize("arch", small.ARCHS)
def test_record_codes(run: small.Runner, arch: str) -> None:
    """The code of a record block is the exponent of max(amax, 1e-4) / MAX, rounded up."""
    flavour = small.plan_k1(small.SPECS, small.KEYS[arch]).strategy.fp8
    patterns = np.arange(0x7F80, dtype=np.uint16)  # every finite magnitude
    source = np.zeros((-(-len(patterns) // 16) * 16, 256), np.uint16)  # 32 threads of 8 values a block
    source[np.arange(len(patterns)), (patterns * 7) % 256] = patterns
    codes, octets = np.zeros(source.size // 8, np.int32), np.zeros(source.size, np.uint8)
    record = np.zeros(source.size // 8, np.int32)
    buffers = {"source": source, "codes": codes, "octets": octets, "record": record, **_extra()}
    run("quantise.py.j2", arch, buffers, grid=source.size // 8 // 512)
    amax = np.maximum(patterns.view(BF16).astype(np.float32), np.float32(1e-4))
    quotient = (amax / np.float32(448 if flavour == "ocp" else 224)).astype(np.float32).view(np.uint32)
    want = (quotient >> 23) + ((quotient & 0x7FFFFF) != 0)
    assert np.array_equal(record.reshape(-1, 32)[: len(patterns)], np.repeat(want[:, None], 32, 1))


def _floats() -> np.ndarray:
    """fp32 values around every bf16 tie, random ones, zeros, subnormals, infinities and NaN."""
    upper = np.arange(0, 65536, 7, dtype=np.uint32) << 16
    ties = np.concatenate([upper + d for d in (0x7FFF, 0x8000, 0x8001, 0)])
    generator = np.random.default_rng(3)
    words = np.concatenate([ties, generator.integers(0, 1 << 32, 20000, dtype=np.uint32)])
    words = words[
        ((words & 0x7F800000) != 0x7F800000) | ((words & 0xFFFF) == 0)
    ]  # no NaN with payload below bf16
    return np.resize(words, -(-len(words) // 512) * 512)


@pytest.mark.parametrize("arch", small.ARCHS)
def test_bf16_rounding_and_division(run: small.Runner, arch: str) -> None:
    x = _floats()
    y = x[::-1].copy()
    pairs, rounded, quotients = np.zeros_like(x), np.zeros_like(x), np.zeros((len(x), 4), np.float32)
    buffers = {"x": x, "y": y, "pairs": pairs, "rounded": rounded, "quotients": quotients, **_extra()}
    run("arithmetic.py.j2", arch, buffers, grid=len(x) // 512)
    fx, fy = x.view(np.float32), y.view(np.float32)
    with np.errstate(all="ignore"):
        want = [v.astype(BF16).view(np.uint16).astype(np.uint32) for v in (fx, fy)]
    number = ~np.isnan(fx)
    assert np.array_equal((pairs & 0xFFFF)[number], want[0][number])
    assert np.array_equal((pairs >> 16)[~np.isnan(fy)], want[1][~np.isnan(fy)])
    assert np.array_equal((rounded >> 16)[number], want[0][number])
    assert np.isnan(rounded.view(np.float32)[~number]).all()
    _check_quotients(fx, quotients)


def _check_quotients(x: np.ndarray, quotients: np.ndarray) -> None:
    """Correctly rounded where quotient and residual are normal numbers, as for sums of squares."""
    usual = np.isfinite(x) & (np.abs(x) > 1e-25) & (np.abs(x) < 1e37)
    for k, d in enumerate((1280.0, 512.0, 224.0)):
        assert np.array_equal(quotients[usual, k], (x[usual] / np.float32(d)).astype(np.float32)), d
