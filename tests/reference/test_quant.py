"""The quantisers' rules: codes at every power-of-two boundary, both flavours, zeros, NaN, records."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from flymono.reference.draws import Draws
from flymono.reference.formats import F32, F64, FNUZ, OCP, Fp8, decode
from flymono.reference.quant import RECORD_FLOOR, code_of, exponent_round_up, mxfp8, record_blocks

BOTH = pytest.mark.parametrize("flavour", [OCP, FNUZ], ids=lambda f: f.name)


def around_powers(clamp: float) -> torch.Tensor:
    """float32 maxima at clamp * 2^k, their neighbours, and the smallest and largest values."""
    powers = np.float32(clamp) * np.float32(2.0) ** np.arange(-130, 118, dtype=np.float32)
    points = np.concatenate(
        [powers, np.nextafter(powers, np.float32(0)), np.nextafter(powers, np.float32(np.inf))]
    )
    return torch.from_numpy(np.concatenate([points, np.array([0.0, 1e-45, 2.0**-126, 3e38], np.float32)]))


@BOTH
def test_codes_are_those_of_the_ieee_float32_quotient(flavour: Fp8) -> None:
    amax = torch.cat([around_powers(flavour.clamp), Draws(0, "amax").normal(100_000).abs().to(F32)])
    floored = np.maximum(amax.numpy(), np.float32(2.0**-126))
    quotient = torch.from_numpy(floored / np.float32(flavour.clamp))
    assert torch.equal(code_of(amax.to(F64), flavour), exponent_round_up(quotient).clamp(0, 254))


def test_codes_are_the_ceiling_of_the_logarithm() -> None:
    amax = Draws(1, "amax").normal(100_000).abs().to(torch.bfloat16).to(F64)
    amax = amax[amax > 0]
    want = torch.ceil(torch.log2(amax / 448)) + 127
    assert torch.equal(code_of(amax, OCP).to(F64), want)


@BOTH
def test_a_zero_group_has_code_one_and_zero_bytes(flavour: Fp8) -> None:
    blocks = mxfp8(torch.zeros(2, 64), 32, flavour)
    assert blocks.codes.unique().tolist() == [1]
    assert not blocks.data.any()


@BOTH
def test_nan_makes_code_254_and_stays(flavour: Fp8) -> None:
    group = torch.ones(1, 32)
    group[0, 5] = torch.nan
    blocks = mxfp8(group, 32, flavour)
    assert blocks.codes.item() == 254
    values = decode(blocks.data, flavour)
    assert torch.isnan(values[0, 5])
    assert int(torch.isnan(values).sum()) == 1
    assert not torch.nan_to_num(values).any()


def test_flavours_give_the_same_bytes_and_codes_one_apart() -> None:
    rows = (Draws(2, "rows").normal(64, 320) * 3).to(torch.bfloat16)
    ocp, fnuz = mxfp8(rows, 32, OCP), mxfp8(rows, 32, FNUZ)
    assert torch.equal(fnuz.codes, ocp.codes + 1)
    same = ocp.data != 0x80
    assert torch.equal(fnuz.data[same], ocp.data[same])
    assert not fnuz.data[~same].any()
    assert torch.equal(ocp.values(), fnuz.values())


@BOTH
def test_values_are_within_half_a_step(flavour: Fp8) -> None:
    rows = (Draws(3, "rows").normal(64, 320) * 100).to(torch.bfloat16).to(F64)
    got = mxfp8(rows, 32, flavour).values()
    amax = torch.unflatten(rows.abs(), -1, (-1, 32)).amax(-1).repeat_interleave(32, -1)
    assert bool(((got - rows).abs() <= torch.maximum(rows.abs() / 16, amax * 2.0**-16)).all())


@BOTH
def test_a_record_has_a_floor(flavour: Fp8) -> None:
    tiny = torch.full((1, 64), 1e-9)
    code = record_blocks(tiny, 64, flavour).codes.item()
    assert code == code_of(torch.tensor([RECORD_FLOOR], dtype=F64), flavour).item()
    assert code >= 105
    assert mxfp8(tiny, 64, flavour).codes.item() < code
