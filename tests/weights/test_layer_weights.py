"""A layer's weights: published names, experts on demand, and device copies byte by byte."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from flymono.reference.draws import Draws
from flymono.reference.formats import FNUZ, decode, pow2
from flymono.reference.fp4 import MAGNITUDES, fp4_values
from flymono.reference.layer_sizes import LayerSizes
from flymono.reference.layer_weights import Expert, FfnWeights, WholeLayer, seeded_layer
from flymono.runtime.weights import (
    WeightsError,
    back_copies,
    ffn_copies,
    make_layer_file,
    read_layer,
    routed_bytes,
    routed_copies,
)
from flymono.runtime.weights.copies import row_major
from flymono.specs.schema import ModelSpec

PICKED = (2, 5)


@pytest.fixture(scope="module")
def small(full: ModelSpec) -> ModelSpec:
    attention = full.attention.model_copy(
        update={"heads": 4, "q_lora_rank": 256, "o_groups": 2, "o_lora_rank": 64}
    )
    moe = full.moe.model_copy(update={"intermediate": 384, "experts": 8})
    return full.model_copy(update={"hidden": 512, "attention": attention, "moe": moe})


@pytest.fixture(scope="module")
def whole(small: ModelSpec) -> WholeLayer:
    return seeded_layer(small, 5, seed=3)


@pytest.fixture(scope="module")
def layer_path(small: ModelSpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("layer") / "layer5.safetensors"
    return make_layer_file(path, small, 5, seed=3, experts=PICKED)


def equal(a: object, b: object) -> bool:
    left, right = (dict(vars(v)) for v in (a, b))
    return all(torch.equal(left[k], right[k]) for k in left if isinstance(left[k], torch.Tensor))


# ------------------------------------------------------------------ published file


@pytest.mark.parametrize("tp", [1, 2])
def test_a_file_gives_what_was_seeded(layer_path: Path, small: ModelSpec, whole: WholeLayer, tp: int) -> None:
    read = read_layer(layer_path, small, 5)
    for rank in range(tp):
        assert equal(read.k1(tp, rank), whole.k1(tp, rank))
        assert equal(read.back(tp, rank), whole.back(tp, rank))
        assert equal(read.ffn(tp, rank), whole.ffn(tp, rank))
        for number in PICKED:
            ours, theirs = (w.ffn(tp, rank).experts.expert(number) for w in (read, whole))
            assert equal(ours, theirs)


def test_names_dtypes_and_shapes_are_the_published_ones(full: ModelSpec) -> None:
    from flymono.runtime.weights.published import dense_tensors, expert_tensors

    got = {t.name: (t.dtype, t.shape) for t in dense_tensors(full, 7).values()}
    assert len(got) == 12 + 10 + 7
    for name, want in {
        "attn.wo_a.weight": ("F8_E4M3", (8192, 4096)), "attn.wo_a.scale": ("F8_E8M0", (256, 128)),
        "attn.wo_b.weight": ("F8_E4M3", (5120, 8192)), "attn.attn_sink": ("F32", (64,)),
        "hc_ffn_fn": ("F32", (24, 20480)), "ffn_norm.weight": ("BF16", (5120,)),
        "ffn.gate.weight": ("BF16", (384, 5120)), "ffn.gate.bias": ("F32", (384,)),
        "ffn.shared_experts.w1.weight": ("F8_E4M3", (2304, 5120)),
        "ffn.shared_experts.w2.scale": ("F8_E8M0", (160, 72)),
    }.items():  # fmt: skip
        assert got[f"layers.7.{name}"] == want
    expert = {t.name: (t.dtype, t.shape) for t in expert_tensors(full, 41, 9).values()}
    assert expert["mtp.1.ffn.experts.9.w1.weight"] == ("I8", (2304, 2560))
    assert expert["mtp.1.ffn.experts.9.w2.scale"] == ("F8_E8M0", (5120, 72))
    assert {t.name: t.shape for t in dense_tensors(full, 41).values()}["mtp.1.ffn.gate.weight"][0] == 128


def test_selected_experts_that_are_absent_are_all_listed(layer_path: Path, small: ModelSpec) -> None:
    weights = read_layer(layer_path, small, 5).ffn(2, 0)
    with pytest.raises(WeightsError) as caught:
        ffn_copies(weights, (0, 2, 7), LayerSizes.of(small, 2), "ocp", "row_major")
    names = [f.tensor for f in caught.value.findings]
    assert names == [f"layers.5.ffn.experts.{e}.{leaf}.{end}" for e in (0, 7)
                     for leaf in ("w1", "w3", "w2") for end in ("weight", "scale")]  # fmt: skip
    assert all("missing" in f.what and f.fix for f in caught.value.findings)


def test_faults_of_dense_tensors_and_experts_come_together(
    layer_path: Path, small: ModelSpec, tmp_path: Path
) -> None:
    from safetensors.torch import save_file

    with safe_open(layer_path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    del tensors["layers.5.ffn.gate.bias"]
    tensors["layers.5.ffn.experts.2.w1.weight"] = tensors["layers.5.ffn.experts.2.w1.weight"][
        :, :-1
    ].contiguous()
    save_file(tensors, tmp_path / "damaged.safetensors")
    with pytest.raises(WeightsError) as caught:
        read_layer(tmp_path / "damaged.safetensors", small, 5)
    assert [f.tensor for f in caught.value.findings] == [
        "layers.5.ffn.gate.bias",
        "layers.5.ffn.experts.2.w1.weight",
    ]


def test_ranks_cover_an_expert_once(whole: WholeLayer) -> None:
    expert = whole.expert(2)
    parts = [expert.share(2, rank) for rank in range(2)]
    assert torch.equal(torch.cat([p.w1 for p in parts]), expert.w1)
    assert torch.equal(torch.cat([p.w2 for p in parts], 1), expert.w2)
    assert torch.equal(torch.cat([p.w2_s for p in parts], 1), expert.w2_s)


# ------------------------------------------------------------------ copies, by formulas of their own


def nibble(data: torch.Tensor, row: int, k: int) -> int:
    return int(data[row, k // 2]) >> 4 * (k % 2) & 15


def tiled_offset(n: int, k: int, row_bytes: int) -> int:
    """Byte of W[n][k] in one expert's lane-ordered tensor."""
    tile, r = divmod(n, 16)
    step, rest = divmod(k, 128)
    b, j, i = rest // 32, rest % 32 // 8, k % 8
    wide = step < row_bytes * 2 // 128
    lane = (16 * j + r) * (16 if wide else 8)
    return 16 * tile * row_bytes + step * 1024 + lane + 4 * b + i // 2


def shuffled_offset(tile: int, r: int, k: int, row_bytes: int) -> int:
    """Byte of row r of a 16-row tile in one expert's 16 x 32-shuffled tensor."""
    return tile * 16 * row_bytes + k // 128 * 1024 + k % 128 // 32 * 256 + r * 16 + k % 32 // 2


def code_offset(row: int, column: int, columns: int) -> int:
    block = (row // 32) * (columns // 8) + column // 8
    return ((block * 4 + column % 4) * 16 + row % 16) * 4 + column // 4 % 2 * 2 + row // 16 % 2


@pytest.fixture(scope="module")
def sizes(small: ModelSpec) -> LayerSizes:
    return LayerSizes.of(small, 2)  # 192 columns a rank: a step and a half


Places = list[tuple[int, int]]


@pytest.fixture(scope="module")
def places() -> Callable[[int, int], Places]:
    def some(rows: int, columns: int) -> Places:
        draws = Draws(1, f"places/{rows}/{columns}")
        count = 4000
        return list(zip(draws.integers(0, rows, count).tolist(), draws.integers(0, columns, count).tolist(),
                        strict=True))  # fmt: skip

    return some


def test_every_sampled_nibble_of_the_own_copies(
    whole: WholeLayer, sizes: LayerSizes, places: Callable[[int, int], Places]
) -> None:
    experts = whole.ffn(2, 1).experts
    copies = routed_copies(experts, PICKED, sizes, "fnuz", "tile_major")
    expert, at = experts.expert(5), 5
    w13, w2 = (copies[n][at].flatten() for n in ("w13", "w2"))
    for i, k in places(sizes.inter, sizes.hidden):
        for data, row in ((expert.w1, 2 * i), (expert.w3, 2 * i + 1)):
            got = int(w13[tiled_offset(row, k, sizes.hidden // 2)]) >> 4 * (k % 2) & 15
            want = nibble(data, i, k)
            assert got == (0 if want == 8 else want)
    for n, k in places(sizes.hidden, sizes.inter):
        got = int(w2[tiled_offset(n, k, sizes.inter // 2)]) >> 4 * (k % 2) & 15
        want = nibble(expert.w2, n, k)
        assert got == (0 if want == 8 else want)


def own_code_offset(row: int, block: int, columns: int) -> int:
    """Byte of a code of an own copy: the 16 rows of a tile together, block after block."""
    return row // 16 * 16 * columns + block * 16 + row % 16


def test_every_code_of_the_own_copies(whole: WholeLayer, sizes: LayerSizes) -> None:
    experts = whole.ffn(2, 1).experts
    copies = routed_copies(experts, PICKED, sizes, "fnuz", "tile_major")
    expert = experts.expert(5)
    flat, columns = copies["w13_s"][5].flatten(), sizes.hidden // 32
    for i in range(sizes.inter):
        for block in range(columns):
            for codes, n in ((expert.w1_s, 2 * i), (expert.w3_s, 2 * i + 1)):
                assert int(flat[own_code_offset(n, block, columns)]) == int(codes[i, block])
    flat, columns = copies["w2_s"][5].flatten(), sizes.inter // 32
    for n in range(0, sizes.hidden, 3):
        for block in range(columns):
            assert int(flat[own_code_offset(n, block, columns)]) == int(expert.w2_s[n, block])


def test_every_byte_of_the_shuffled_tensors(whole: WholeLayer, sizes: LayerSizes) -> None:
    experts = whole.ffn(2, 0).experts
    copies = routed_copies(experts, PICKED, sizes, "ocp", "row_major")
    expert, wide = experts.expert(2), sizes.inter_padded
    w13, w2 = (copies[n][2].flatten() for n in ("w13", "w2"))
    used = torch.zeros(len(w13), dtype=torch.bool)
    for i in range(sizes.inter):
        for k in range(0, sizes.hidden, 2):
            for data, tile in ((expert.w1, 2 * (i // 16)), (expert.w3, 2 * (i // 16) + 1)):
                place = shuffled_offset(tile, i % 16, k, sizes.hidden // 2)
                assert w13[place] == data[i, k // 2]
                used[place] = True
    assert int(used.sum()) == sizes.inter * sizes.hidden and not w13[~used].any()
    for n in range(0, sizes.hidden, 7):
        for k in range(0, wide, 2):
            got = int(w2[shuffled_offset(n // 16, n % 16, k, wide // 2)])
            assert got == (int(expert.w2[n, k // 2]) if k < sizes.inter else 0)


def test_every_code_of_the_shuffled_tensors(whole: WholeLayer, sizes: LayerSizes) -> None:
    experts = whole.ffn(2, 0).experts
    copies = routed_copies(experts, PICKED, sizes, "ocp", "row_major")
    expert, wide, columns = experts.expert(2), sizes.inter_padded, sizes.hidden // 32
    flat = copies["w13_s"].flatten()
    for i in range(sizes.inter):
        for column in range(columns):
            for codes, up in ((expert.w1_s, 0), (expert.w3_s, 16)):
                row = 2 * 2 * wide + 32 * (i // 16) + up + i % 16
                assert flat[code_offset(row, column, columns)] == codes[i, column]
    flat, columns = copies["w2_s"].flatten(), copies["w2_s"].shape[1]
    assert columns % 8 == 0
    for n in range(sizes.hidden):
        for column in range(sizes.inter // 32):
            assert flat[code_offset(2 * sizes.hidden + n, column, columns)] == expert.w2_s[n, column]


def test_only_selected_experts_are_written(whole: WholeLayer, sizes: LayerSizes) -> None:
    copies = routed_copies(whole.ffn(2, 0).experts, PICKED, sizes, "fnuz", "tile_major")
    assert [e for e in range(sizes.experts) if copies["w13"][e].any()] == list(PICKED)


def test_shapes_of_the_release(full: ModelSpec) -> None:
    from flymono.runtime.weights.fp4_copies import shapes

    assert shapes(LayerSizes.of(full, 4), "row_major") == {
        "w13": (384, 1280, 2560), "w13_s": (384 * 1280, 160),
        "w2": (384, 5120, 320), "w2_s": (384 * 5120, 24),
    }  # fmt: skip
    assert shapes(LayerSizes.of(full, 4), "tile_major") == {
        "w13": (384, 1152, 2560), "w13_s": (384, 1152, 160), "w2": (384, 5120, 288), "w2_s": (384, 5120, 18),
    }  # fmt: skip
    assert routed_bytes(LayerSizes.of(full, 2), "row_major") == 3_617_587_200
    assert routed_bytes(LayerSizes.of(full, 4), "row_major") == 2_013_265_920
    assert routed_bytes(LayerSizes.of(full, 4), "tile_major") == 1_804_861_440
    assert routed_bytes(LayerSizes.of(full, 4, draft=True), "tile_major") == 601_620_480


# ------------------------------------------------------------------ dense copies


def test_own_copies_of_dense_linears_keep_values_and_pad_columns(
    whole: WholeLayer, sizes: LayerSizes
) -> None:
    back, ffn = whole.back(2, 1), whole.ffn(2, 1)
    copies = back_copies(back, "fnuz", "tile_major")
    copies |= ffn_copies(ffn, PICKED, sizes, "fnuz", "tile_major")
    assert copies["sw2"].shape == (512, 256) and copies["sw2_s"].shape == (16, 8)
    assert bool((copies["sw2_s"][:, 6:] == 128).all())
    for owner, name in ((back, "woa"), (back, "wob"), (ffn, "sgu"), (ffn, "sw2")):
        data, codes = copies[name], copies[f"{name}_s"].to(torch.int64)
        columns = getattr(owner, name).shape[1]
        plain = decode(row_major(data, columns), FNUZ)
        scale = pow2(codes - 127).repeat_interleave(32, 0).repeat_interleave(32, 1)[:, :columns]
        assert torch.equal(plain * scale, owner.values(name))


def test_published_tensors_serve_where_nothing_changes(whole: WholeLayer, sizes: LayerSizes) -> None:
    back, ffn = whole.back(2, 0), whole.ffn(2, 0)
    assert all(t is back.tensors()[n] for n, t in back_copies(back, "ocp", "row_major").items())
    copies = ffn_copies(ffn, PICKED, sizes, "ocp", "row_major")
    assert list(copies) == ["hc_fn", "hc_scale", "hc_base", "ffn_w", "gate_w", "bias", "w13", "w13_s", "w2",
                            "w2_s", "sgu", "sgu_s", "sw2", "sw2_s"]  # fmt: skip
    assert all(copies[n] is t for n, t in ffn.tensors().items())


# ------------------------------------------------------------------ refusals, reloads


class Fixed:
    """Experts with one replaced."""

    def __init__(self, weights: FfnWeights, number: int, change: Callable[[Expert], Expert]) -> None:
        self.weights, self.number, self.change = weights, number, change

    def expert(self, number: int) -> Expert:
        own = self.weights.experts.expert(number)
        return self.change(own) if number == self.number else own


def spoiled(expert: Expert) -> Expert:
    codes = expert.w3_s.clone()
    codes[4, 1], codes[7, 0] = 20, 250
    w2_s = expert.w2_s.clone()
    w2_s[3, 2] = 255
    return replace(expert, w3_s=codes, w2_s=w2_s)


def test_codes_without_an_exact_product_are_refused(whole: WholeLayer, sizes: LayerSizes) -> None:
    experts = Fixed(whole.ffn(2, 0), 5, spoiled)
    with pytest.raises(WeightsError) as caught:
        routed_copies(experts, PICKED, sizes, "fnuz", "tile_major")
    assert [(f.tensor, f.what.split(" has")[0]) for f in caught.value.findings] == [
        ("experts.5.w3.scale", "block [4, 1]"),
        ("experts.5.w3.scale", "block [7, 0]"),
        ("experts.5.w2.scale", "block [3, 2]"),
    ]
    with pytest.raises(WeightsError) as caught:
        routed_copies(experts, PICKED, sizes, "ocp", "row_major")
    assert [f.tensor for f in caught.value.findings] == ["experts.5.w2.scale"]


def test_dense_and_routed_refusals_come_together(whole: WholeLayer, sizes: LayerSizes) -> None:
    weights = whole.ffn(2, 0)
    sgu = weights.sgu.clone()
    sgu[0, 0] = 0x7F
    bad = replace(weights, sgu=sgu, experts=Fixed(weights, 5, spoiled))
    with pytest.raises(WeightsError) as caught:
        ffn_copies(bad, PICKED, sizes, "fnuz", "tile_major")
    assert {f.tensor for f in caught.value.findings} == {"sgu", "experts.5.w3.scale", "experts.5.w2.scale"}


def test_negative_zero_keeps_its_value(whole: WholeLayer, sizes: LayerSizes) -> None:
    experts = whole.ffn(2, 0).experts
    assert any((experts.expert(2).w1 & 15 == 8).flatten())
    own = routed_copies(experts, PICKED, sizes, "fnuz", "tile_major")
    assert not ((own["w13"] & 15 == 8) | (own["w13"] >> 4 == 8)).any()
    kept = routed_copies(experts, PICKED, sizes, "ocp", "row_major")
    assert ((kept["w13"] & 15) == 8).any()


def test_a_reload_writes_in_place(whole: WholeLayer, small: ModelSpec, sizes: LayerSizes) -> None:
    copies = ffn_copies(whole.ffn(2, 0), PICKED, sizes, "fnuz", "tile_major")
    owned = {name: tensor.clone() for name, tensor in copies.items()}
    addresses = {name: tensor.data_ptr() for name, tensor in owned.items()}
    other = seeded_layer(small, 5, seed=4).ffn(2, 0)
    again = ffn_copies(other, PICKED, sizes, "fnuz", "tile_major", existing=owned)
    fresh = ffn_copies(other, PICKED, sizes, "fnuz", "tile_major")
    assert {name: tensor.data_ptr() for name, tensor in again.items()} == addresses
    assert all(torch.equal(again[name], fresh[name]) for name in fresh)


def test_a_reload_into_other_tensors_writes_nothing(
    whole: WholeLayer, small: ModelSpec, sizes: LayerSizes
) -> None:
    copies = {
        n: t.clone() for n, t in ffn_copies(whole.ffn(2, 0), PICKED, sizes, "fnuz", "tile_major").items()
    }
    before = {name: tensor.clone() for name, tensor in copies.items()}
    copies["w2"] = copies["w2"][:, :-1].contiguous()
    del copies["sw2_s"]
    other = seeded_layer(small, 5, seed=4).ffn(2, 0)
    with pytest.raises(WeightsError) as caught:
        ffn_copies(other, PICKED, sizes, "fnuz", "tile_major", existing=copies)
    assert {f.tensor for f in caught.value.findings} == {"w2", "sw2_s"}
    assert all(torch.equal(copies[n], before[n]) for n in copies if n != "w2")


def test_fp4_values_are_the_table() -> None:
    data = torch.arange(256, dtype=torch.uint8).reshape(1, 256)
    codes = torch.full((1, 16), 130, dtype=torch.uint8)
    values = fp4_values(data, codes)[0].reshape(256, 2)
    for byte in range(256):
        for place, code in enumerate((byte & 15, byte >> 4)):
            want = (-1.0 if code & 8 else 1.0) * MAGNITUDES[code & 7] * 8.0
            assert float(values[byte, place]) == want
