"""Device copies: byte positions by the formula, values kept, and everything inexact refused by name."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flymono.reference.draws import Draws
from flymono.reference.formats import FNUZ, OCP, decode, pow2
from flymono.reference.weights import K1Weights
from flymono.runtime.weights import WeightsError, device_copies, read_k1_weights
from flymono.runtime.weights.copies import recoding_is_exact, row_major, tile_major
from flymono.specs.schema import ModelSpec


@pytest.fixture(scope="module")
def weights(layer_file: Path, model: ModelSpec) -> K1Weights:
    return read_k1_weights(layer_file, model, 5, tp=2)


def offset(n: int, k: int, columns: int) -> int:
    """Byte offset of W[n][k] in tile-major order, spelled out."""
    tile, r = divmod(n, 16)
    step, rest = divmod(k, 128)
    half, rest = divmod(rest, 64)
    block, rest = divmod(rest, 32)
    j, e = divmod(rest, 8)
    return tile * 16 * columns + step * 2048 + half * 1024 + j * 256 + r * 16 + block * 8 + e


def test_every_byte_is_where_the_formula_says() -> None:
    data = Draws(0, "tile").octets(48, 384)
    flat = tile_major(data).flatten().tolist()
    for n, k in product(range(48), range(384)):
        assert flat[offset(n, k, 384)] == int(data[n, k])


def test_a_lane_reads_sixteen_bytes_of_one_row() -> None:
    row = torch.arange(32, dtype=torch.uint8)[:, None].repeat(1, 256)
    lanes = tile_major(row).reshape(-1, 64, 16)
    assert bool((lanes == lanes[:, :, :1]).all())
    assert lanes[0, :16, 0].tolist() == list(range(16))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(1, 400), st.integers(0, 9))
def test_layout_round_trip(tiles: int, columns: int, seed: int) -> None:
    data = Draws(seed, "round").octets(16 * tiles, columns)
    tiled = tile_major(data)
    assert tiled.shape == (16 * tiles, -(-columns // 128) * 128)
    assert torch.equal(row_major(tiled, columns), data)
    assert int((tiled != 0).sum()) == int((data != 0).sum())  # padding is zero


def test_recoding_is_exact_for_every_byte() -> None:
    assert recoding_is_exact()


def values(data: torch.Tensor, codes: torch.Tensor, flavour: object) -> torch.Tensor:
    scale = pow2(codes.to(torch.int64) - 127).repeat_interleave(32, 0).repeat_interleave(32, 1)
    return decode(data, flavour) * scale[: data.shape[0], : data.shape[1]]  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", ["row_major", "tile_major"])
@pytest.mark.parametrize("fp8", ["ocp", "fnuz"])
def test_copies_hold_the_published_values(weights: K1Weights, fp8: str, layout: str) -> None:
    copies = device_copies(weights, fp8, layout)  # type: ignore[arg-type]
    flavour = {"ocp": OCP, "fnuz": FNUZ}[fp8]
    for name in ("wqkv", "wqb"):
        data, published = copies[name], getattr(weights, name)
        data = row_major(data, published.shape[1]) if layout == "tile_major" else data
        want = values(published, getattr(weights, f"{name}_s"), OCP)
        assert torch.equal(values(data, copies[f"{name}_s"], flavour), want)
        assert data.dtype == torch.uint8 and not torch.isnan(want).any()
    assert list(copies) == list(weights.tensors())


def test_the_published_form_is_passed_on_as_it_is(weights: K1Weights) -> None:
    copies = device_copies(weights, "ocp", "row_major")
    assert all(copies[name] is tensor for name, tensor in weights.tensors().items())


def test_fnuz_bytes_and_codes(weights: K1Weights) -> None:
    copies = device_copies(weights, "fnuz", "row_major")
    assert bool((weights.wqkv == 0x80).any()) and not bool((copies["wqkv"] == 0x80).any())
    kept = weights.wqkv != 0x80
    assert torch.equal(copies["wqkv"][kept], weights.wqkv[kept])
    assert torch.equal(copies["wqkv_s"], weights.wqkv_s + 1)
    assert bool((weights.wqkv == 0x80).any())  # the published tensor was not touched


def spoiled(weights: K1Weights) -> K1Weights:
    wqkv, wqb_s = weights.wqkv.clone(), weights.wqb_s.clone()
    wqkv[40, 70], wqkv[41, 95], wqkv[0, 0] = 0x7F, 0xFF, 0x7F
    wqb_s[3, 2], wqb_s[0, 1] = 250, 255
    return replace(weights, wqkv=wqkv, wqb_s=wqb_s)


def test_inexact_copies_are_refused_by_tensor_block_and_reason(weights: K1Weights) -> None:
    with pytest.raises(WeightsError) as caught:
        device_copies(spoiled(weights), "fnuz", "tile_major")
    found = [(f.tensor, f.what.split(" holds")[0].split(" has")[0]) for f in caught.value.findings]
    assert found == [
        ("wqkv", "block [0, 0]"),
        ("wqkv", "block [1, 2]"),
        ("wqb_s", "block [0, 1]"),
        ("wqb_s", "block [3, 2]"),
    ]
    assert "NaN byte" in caught.value.render() and "code > 249" in caught.value.render()
    assert all(f.fix for f in caught.value.findings)


def test_the_same_weights_pass_where_nothing_is_recoded(weights: K1Weights) -> None:
    device_copies(spoiled(weights), "ocp", "tile_major")


def test_many_bad_blocks_are_counted(weights: K1Weights) -> None:
    codes = torch.full_like(weights.wqkv_s, 251)
    with pytest.raises(WeightsError) as caught:
        device_copies(replace(weights, wqkv_s=codes), "fnuz", "row_major")
    assert len(caught.value.findings) == 9
    assert f"{codes.numel() - 8} more blocks" in caught.value.findings[-1].what


def test_padding_has_scale_one() -> None:
    from flymono.runtime.weights.copies import _laid_out

    data, codes = _laid_out(
        torch.ones(16, 160, dtype=torch.uint8), torch.full((1, 5), 9, dtype=torch.uint8), 128
    )
    assert data.shape == (16, 256)
    assert codes.tolist() == [[9, 9, 9, 9, 9, 128, 128, 128]]
