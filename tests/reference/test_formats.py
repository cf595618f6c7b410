"""The exact formats against ml_dtypes and torch, over all codes and all rounding boundaries."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from flymono.reference.formats import (
    F32,
    F64,
    FNUZ,
    OCP,
    Fp8,
    bf16,
    bf16_ordinal,
    decode,
    decode_table,
    encode,
    fp8_ordinal,
    pow2,
    to_fnuz,
)

NUMPY = {"ocp": ml_dtypes.float8_e4m3fn, "fnuz": ml_dtypes.float8_e4m3fnuz}
TORCH = {"ocp": torch.float8_e4m3fn, "fnuz": torch.float8_e4m3fnuz}
BOTH = pytest.mark.parametrize("flavour", [OCP, FNUZ], ids=lambda f: f.name)
EVERY = torch.arange(256, dtype=torch.uint8)


def boundaries(flavour: Fp8) -> torch.Tensor:
    """float32 values at every code, at every midpoint of neighbours, and one ulp to either side."""
    finite = decode_table(flavour)
    finite = finite[torch.isfinite(finite)].unique()
    last = finite[-1]
    beyond = last + (finite[-1] - finite[-2]) * torch.tensor([0.5, 1.0, 1.5], dtype=F64)
    points = torch.cat([finite, (finite[1:] + finite[:-1]) / 2, beyond, -beyond]).to(F32).numpy()
    return torch.from_numpy(
        np.concatenate(
            [points, np.nextafter(points, np.float32(np.inf)), np.nextafter(points, np.float32(-np.inf))]
        )
    )


@BOTH
def test_every_code_decodes_as_ml_dtypes_and_torch_do(flavour: Fp8) -> None:
    ours = decode_table(flavour).numpy()
    np.testing.assert_array_equal(ours, EVERY.numpy().view(NUMPY[flavour.name]).astype(np.float64))
    np.testing.assert_array_equal(ours, EVERY.view(TORCH[flavour.name]).to(F64).numpy())


@BOTH
def test_every_finite_code_survives_a_round_trip(flavour: Fp8) -> None:
    finite = torch.isfinite(decode_table(flavour))
    assert torch.equal(encode(decode(EVERY, flavour), flavour)[finite], EVERY[finite])


@BOTH
def test_rounding_boundaries_agree_with_ml_dtypes(flavour: Fp8) -> None:
    values = boundaries(flavour)
    want = values.numpy().astype(NUMPY[flavour.name])
    got = encode(values.to(F64), flavour).numpy().view(NUMPY[flavour.name])
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))
    assert np.array_equal(np.isnan(got.astype(np.float32)), np.isnan(want.astype(np.float32)))


@BOTH
def test_rounding_boundaries_agree_with_torch_within_the_clamp(flavour: Fp8) -> None:
    values = boundaries(flavour)
    values = values[values.abs() <= flavour.clamp]
    assert torch.equal(encode(values.to(F64), flavour), values.to(TORCH[flavour.name]).view(torch.uint8))


@BOTH
def test_random_float32_agree_with_ml_dtypes(flavour: Fp8) -> None:
    bits = torch.arange(0, 1 << 32, 9973, dtype=torch.int64).to(torch.int32)
    values = bits.view(F32)
    values = values[torch.isfinite(values)]
    want = values.numpy().astype(NUMPY[flavour.name]).astype(np.float32)
    got = decode(encode(values.to(F64), flavour), flavour).numpy().astype(np.float32)
    np.testing.assert_array_equal(got, want)


def test_zero_signs_and_nan() -> None:
    zeros = torch.tensor([0.0, -0.0, -1e-9], dtype=F64)
    assert encode(zeros, OCP).tolist() == [0x00, 0x80, 0x80]
    assert encode(zeros, FNUZ).tolist() == [0, 0, 0]
    bad = torch.tensor([torch.nan, torch.inf, -torch.inf], dtype=F64)
    assert [code & 0x7F for code in encode(bad, OCP).tolist()] == [0x7F] * 3
    assert encode(bad, FNUZ).tolist() == [0x80] * 3


def test_fnuz_bytes_are_half_of_ocp_bytes() -> None:
    finite = torch.isfinite(decode_table(OCP))
    halves = decode(to_fnuz(EVERY), FNUZ)
    assert torch.equal(halves[finite] * 2, decode_table(OCP)[finite])


@BOTH
def test_ordinals_follow_the_values(flavour: Fp8) -> None:
    values, ordinals = decode_table(flavour), fp8_ordinal(EVERY, flavour)
    finite = torch.isfinite(values)
    order = torch.argsort(values[finite], stable=True)
    steps = ordinals[finite][order].diff()
    assert bool(((steps == 1) | (steps == 0)).all())
    assert bool((ordinals[~finite] == 255).all())


def test_bf16_agrees_with_torch_on_float32() -> None:
    bits = torch.arange(0, 1 << 32, 9973, dtype=torch.int64).to(torch.int32)
    ties = (torch.arange(0, 1 << 16, dtype=torch.int64) << 16 | 0x8000).to(torch.int32)
    values = torch.cat([bits, ties, ties + 1, ties - 1]).view(F32)
    values = values[torch.isfinite(values)]
    assert torch.equal(bf16(values.to(F64)), values.to(torch.bfloat16).to(F64))


def test_bf16_rounds_once_from_float64() -> None:
    just_above_a_tie = torch.tensor([1 + 2.0**-8 + 2.0**-40], dtype=F64)
    assert bf16(just_above_a_tie).item() == 1 + 2.0**-7
    assert just_above_a_tie.to(torch.bfloat16).item() == 1.0  # torch rounds to float32 on the way


def test_bf16_ordinals_are_neighbours() -> None:
    values = torch.tensor([-1.0, -0.0, 0.0, 1.0, 1 + 2.0**-7], dtype=F64)
    ordinals = bf16_ordinal(values)
    assert ordinals[1] == ordinals[2] == 0
    assert ordinals[4] - ordinals[3] == 1
    assert ordinals[0] == -ordinals[3]


def test_pow2_is_exact() -> None:
    exponents = torch.arange(-300, 300)
    assert torch.equal(pow2(exponents), torch.tensor([2.0**e for e in range(-300, 300)], dtype=F64))
