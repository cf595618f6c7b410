"""Weights from what the host holds: every byte by other formulas, refusals by block, reloads in place."""

from __future__ import annotations

from math import prod

import pytest
import torch
from torch import Tensor

from flymono.reference.draws import Draws
from flymono.reference.formats import OCP, decode
from flymono.reference.layer_sizes import LayerSizes
from flymono.reference.layer_weights import WholeLayer, seeded_layer
from flymono.reference.weights import random_linear
from flymono.runtime.plan import BuildKey, plan_of
from flymono.runtime.plan.memory import ATTENTION, ROUTED, SHARED, copies_of
from flymono.runtime.weights import LayerCopies, WeightsError, held_copies, held_tensors
from flymono.runtime.weights.dequantised import bytes_of, published_form
from flymono.runtime.weights.held_names import LINEARS, PARTS, copy_shapes, paths
from flymono.specs import Specs, load
from flymono.specs.schema import ModelSpec

from .holding import E4M3, Held, converted_experts, holder, multiplied_out, placed, plain_experts, small_model

PICKED = (2, 5)
TP, RANK = 2, 1


@pytest.fixture(scope="module")
def specs() -> Specs:
    return load()


@pytest.fixture(scope="module")
def small(full: ModelSpec) -> ModelSpec:
    return small_model(full)


@pytest.fixture(scope="module")
def sizes(small: ModelSpec) -> LayerSizes:
    return LayerSizes.of(small, TP)  # 192 columns a rank: a step and a half, padded to 256 by the host


@pytest.fixture(scope="module")
def whole(small: ModelSpec) -> WholeLayer:
    return seeded_layer(small, 5, seed=3)


@pytest.fixture(scope="module")
def plain(whole: WholeLayer, sizes: LayerSizes) -> Held:
    return holder(whole, TP, RANK, dequantised=True) | plain_experts(whole, TP, RANK, sizes, PICKED)


@pytest.fixture(scope="module")
def kept(whole: WholeLayer, sizes: LayerSizes) -> Held:
    return holder(whole, TP, RANK, dequantised=False) | converted_experts(sizes)


@pytest.fixture(scope="module")
def copies(plain: Held, sizes: LayerSizes) -> LayerCopies:
    return held_copies(plain, sizes, "fnuz", "tile_major", selected=PICKED)


def fresh(held: Held) -> Held:
    return {name: tensor.clone() for name, tensor in held.items()}


def everything(copies: LayerCopies) -> dict[str, Tensor]:
    return {f"{part}.{n}": t for part, own in vars(copies).items() for n, t in own.items()}


# ------------------------------------------------------------------ own copies, byte by byte


def grid(rows: int, columns: int) -> tuple[Tensor, Tensor]:
    return torch.arange(rows)[:, None], torch.arange(columns)[None]


def dense_place(rows: int, columns: int, wide: int) -> Tensor:
    """Byte of W[n][k] in a tile-major linear (attention sheet 2.3)."""
    n, k = grid(rows, columns)
    st, hf, b, j, e = k // 128, k // 64 % 2, k // 32 % 2, k // 8 % 4, k % 8
    return n // 16 * 16 * wide + st * 2048 + hf * 1024 + j * 256 + n % 16 * 16 + b * 8 + e


def published(whole: WholeLayer, name: str) -> tuple[Tensor, Tensor]:
    owners = (whole.k1(TP, RANK), whole.back(TP, RANK), whole.ffn(TP, RANK))
    owner = next(o for o in owners if hasattr(o, name))
    return getattr(owner, name), getattr(owner, f"{name}_s")


@pytest.mark.parametrize("name", list(LINEARS))
def test_every_byte_of_a_linear(whole: WholeLayer, copies: LayerCopies, name: str) -> None:
    data, codes = published(whole, name)
    copy, copied_codes = (getattr(copies, PARTS[name])[n] for n in (name, f"{name}_s"))
    rows, columns = data.shape
    wide = -(-columns // 128) * 128
    assert copy.shape == (rows, wide) and bool((data == 0x80).any())
    place = dense_place(rows, columns, wide)
    assert torch.equal(copy.flatten()[place], torch.where(data == 0x80, 0, data))
    rest = torch.ones(copy.numel(), dtype=torch.bool)
    rest[place.flatten()] = False
    assert not copy.flatten()[rest].any()
    assert torch.equal(copied_codes[:, : codes.shape[1]], codes + 1)
    assert bool((copied_codes[:, codes.shape[1] :] == 128).all())


def test_the_same_copies_from_bytes_as_from_products(
    whole: WholeLayer, plain: Held, sizes: LayerSizes
) -> None:
    bytes_held = holder(whole, TP, RANK, dequantised=False)
    one = held_copies(plain, sizes, "fnuz", "tile_major", only="dense")
    two = held_copies(bytes_held, sizes, "fnuz", "tile_major", only="dense")
    assert set(everything(one)) == set(everything(two)) and "w13" not in one.ffn
    assert all(torch.equal(t, everything(two)[n]) for n, t in everything(one).items())


def fp4_place(rows: int, columns: int) -> Tensor:
    """Byte of W[n][k] of one expert in lane order (FFN math 4.2)."""
    n, k = grid(rows, columns)
    st, b, j, i = k // 128, k // 32 % 4, k // 8 % 4, k % 8
    lane = (16 * j + n % 16) * torch.where(st < columns // 128, 16, 8)
    return n // 16 * 16 * (columns // 2) + st * 1024 + lane + 4 * b + i // 2


def nibbles(data: Tensor, columns: int) -> Tensor:
    """[N, K] codes of e2m1, without -0."""
    n, k = grid(len(data), columns)
    code = data[n, k // 2].to(torch.int64) >> 4 * (k % 2) & 15
    return torch.where(code == 8, 0, code)


def test_every_nibble_of_an_expert(whole: WholeLayer, copies: LayerCopies, sizes: LayerSizes) -> None:
    for number in PICKED:
        one = whole.ffn(TP, RANK).experts.expert(number)
        both = torch.stack([one.w1, one.w3], 1).flatten(0, 1)
        for name, data, columns in (("w13", both, sizes.hidden), ("w2", one.w2, sizes.inter)):
            flat = copies.ffn[name][number].flatten().to(torch.int64)
            place = fp4_place(len(data), columns)
            _, k = grid(len(data), columns)
            assert torch.equal(flat[place] >> 4 * (k % 2) & 15, nibbles(data, columns))
            assert bool(((data & 15) == 8).any())


def test_every_code_of_an_expert(whole: WholeLayer, copies: LayerCopies, sizes: LayerSizes) -> None:
    for number in PICKED:
        one = whole.ffn(TP, RANK).experts.expert(number)
        both = torch.stack([one.w1_s, one.w3_s], 1).flatten(0, 1)
        for name, codes in (("w13_s", both), ("w2_s", one.w2_s)):
            rows, columns = codes.shape
            n, block = grid(rows, columns)
            place = n // 16 * 16 * columns + block * 16 + n % 16
            assert torch.equal(copies.ffn[name][number].flatten()[place], codes)
    assert [e for e in range(sizes.experts) if copies.ffn["w13"][e].any()] == list(PICKED)


def test_a_linear_of_the_release_s_size(full: ModelSpec) -> None:
    sizes = LayerSizes.of(full, 4)
    shape = (sizes.hidden, sizes.shared_inter)  # 5120 x 576: the one whose last step is half
    data, codes = random_linear(Draws(7, "sw2"), *shape, 32, full.quantisation.dense_code_range)
    got, found = published_form("sw2", multiplied_out(data, codes), codes, shape, 32)
    assert not found and got is not None
    assert torch.equal(got[0], data) and torch.equal(got[1], codes)


def test_every_byte_survives_every_code() -> None:
    """From code 247 on the largest bytes' products are infinite in bf16, and no byte's products any more."""
    data = torch.arange(256, dtype=torch.uint8)
    data = data[(data & 0x7F) != 0x7F].repeat(4)[: 32 * 31].reshape(32, 31)
    data = torch.nn.functional.pad(data, (0, 1))
    for code in range(10, 247):
        codes = torch.tensor([[code]], dtype=torch.uint8)
        got, bad = bytes_of(multiplied_out(data, codes), codes, 32)
        assert torch.equal(got, data) and not bad.any()
    got, bad = bytes_of(multiplied_out(data, codes + 1), codes + 1, 32)
    assert torch.equal(bad, (data & 0x7F) >= 0x78) and torch.equal(got[~bad], data[~bad])


def test_plain_tensors_are_the_host_s_own(plain: Held, copies: LayerCopies) -> None:
    for part, name, path in (("k1", "hc_fn", "hc_attn_fn"), ("ffn", "hc_fn", "hc_ffn_fn"),
                             ("back", "cos_sin", "attn.rotary_emb.cos_sin_cache"),
                             ("back", "sink", "attn.attn_sink")):  # fmt: skip
        assert getattr(copies, part)[name].data_ptr() == plain[path].data_ptr()
    assert len(copies.back["sink"]) == 2  # of 2 heads a rank and the host's padding


# ------------------------------------------------------------------ views


def test_converted_tensors_serve_as_they_are(kept: Held, sizes: LayerSizes) -> None:
    views = held_copies(kept, sizes, "ocp", "row_major")
    held = {t.data_ptr() for t in kept.values()}
    got = everything(views)
    assert {t.data_ptr() for t in got.values()} == held
    assert views.ffn["w13"].dtype == views.k1["wqb"].dtype == views.ffn["w13_s"].dtype == torch.uint8
    assert set(views.k2) == set(views.back) | set(views.ffn)


@pytest.mark.parametrize(("arch", "tp"), [("gfx942", 4), ("gfx950", 2), ("gfx950", 4)])
@pytest.mark.parametrize("draft", [False, True])
def test_shapes_are_the_launch_arguments(
    specs: Specs, full: ModelSpec, arch: str, tp: int, draft: bool
) -> None:
    sizes = LayerSizes.of(full, tp, draft)
    layout = plan_of(specs, BuildKey("k1", arch, tp, 6, 0)).strategy.weight_layout
    for kind, parts in (("k1", ("k1",)), ("k2", ("back", "ffn"))):
        plan = plan_of(specs, BuildKey(kind, arch, tp, 6, 0, draft=draft and kind == "k2"))
        owned = {a.name: a for a in plan.abi.arguments if a.owner == "layer"}
        made = {n: s for part in parts for n, s in copy_shapes(sizes, layout, part).items()}
        assert set(made) == set(owned)
        assert {n: tuple(shape) for n, (_, shape) in made.items()} == {n: a.shape for n, a in owned.items()}


def test_the_release_s_tensors_as_an_aiter_host_holds_them(full: ModelSpec) -> None:
    """Views of the real sizes: nothing is read, so tensors without memory do."""
    sizes = LayerSizes.of(full, 2)
    kinds = {"ffn.experts.routed_experts.w13_weight": torch.float4_e2m1fn_x2,
             "ffn.experts.routed_experts.w2_weight": torch.float4_e2m1fn_x2}  # fmt: skip
    shapes = {
        (part, n): s
        for part in ("k1", "back", "ffn")
        for n, s in copy_shapes(sizes, "row_major", part).items()
    }
    held: Held = {}
    from flymono.runtime.weights.held_experts import PATHS
    from flymono.runtime.weights.held_names import PLAIN

    for (part, name), (dtype, shape) in shapes.items():
        base = name.removesuffix("_s")
        path = PLAIN[part].get(name) or PATHS.get(name)
        if path is None:
            path = f"{LINEARS[base]}.{'weight' if name == base else 'weight_scale'}"
            dtype = E4M3 if name == base else torch.uint8
        shape = tuple(7 if n == -1 else n for n in shape)
        held[path] = torch.empty(shape, dtype=kinds.get(path, dtype), device="meta")
    views = held_copies(held, sizes, "ocp", "row_major")
    assert views.ffn["w13"].nbytes == 2_264_924_160 and views.ffn["w2_s"].nbytes == 78_643_200
    assert views.k1["wqb"].shape == (16384, 1280)


# ------------------------------------------------------------------ refusals


def refused(
    held: Held, sizes: LayerSizes, layout: str = "tile_major", **options: object
) -> list[tuple[str, str]]:
    fp8 = "fnuz" if layout == "tile_major" else "ocp"
    options = {"selected": PICKED} | options
    with pytest.raises(WeightsError) as caught:
        held_copies(held, sizes, fp8, layout, **options)  # type: ignore[arg-type]
    assert all(f.fix for f in caught.value.findings) and caught.value.exit_code == 2
    return [(f.tensor, f.what) for f in caught.value.findings]


def test_a_product_that_is_no_byte_is_refused_with_its_block(plain: Held, sizes: LayerSizes) -> None:
    held = fresh(plain)
    weight = held["attn.wo_b.weight"]
    weight[70, 40] = weight[70, 40].view(torch.int16).bitwise_xor(1).view(torch.bfloat16)  # the lowest bit
    weight[0, 0] = torch.nan
    held["attn.wq_b.weight"][33, 255] = 1e30
    held["ffn.shared_experts.down_proj.weight"][500, 191] = 2.0**-130
    what = "holds a bf16 value that is not e4m3 times 2^(code - 127)"
    assert refused(held, sizes) == [
        ("attn.wq_b.weight", f"block [1, 7] {what}"),
        ("attn.wo_b.weight", f"block [0, 0] {what}"),
        ("attn.wo_b.weight", f"block [2, 1] {what}"),
        ("ffn.shared_experts.down_proj.weight", f"block [15, 5] {what}"),
    ]


def test_codes_that_differ_in_a_block_or_are_out_of_range(plain: Held, sizes: LayerSizes) -> None:
    held = fresh(plain)
    held["attn.wo_a.weight_scale"][40, 3] += 1
    held["attn.wq_b.weight_scale"][:32, 0] = 251
    held["attn.wq_b.weight_scale"][32:64, 1] = 9
    found = refused(held, sizes)
    assert (
        "attn.wo_a.weight_scale",
        "block [1, 3] has codes that differ over its 32 rows: it is no 32 x 32 block",
    ) in found
    codes = [what for tensor, what in found if tensor == "attn.wq_b.weight_scale"]
    assert [w.split(" has")[0] for w in codes] == ["block [0, 0]", "block [1, 1]"] and "10 .. 249" in codes[0]


def test_a_negative_zero_is_carried_as_zero(plain: Held, sizes: LayerSizes) -> None:
    held = fresh(plain)
    held["attn.wo_b.weight"][5, 7] = -0.0
    data, _ = bytes_of(held["attn.wo_b.weight"][:32, :32], torch.tensor([[115]], dtype=torch.uint8), 32)
    assert int(data[5, 7]) == 0x80
    copies = held_copies(held, sizes, "fnuz", "tile_major", selected=PICKED)
    wob = copies.back["wob"].flatten()
    assert int(wob[int(dense_place(512, 128, 128)[5, 7])]) == 0


def test_nan_bytes_are_refused(whole: WholeLayer, plain: Held, sizes: LayerSizes) -> None:
    held = fresh(plain) | holder(whole, TP, RANK, dequantised=False)
    held["attn.wo_a.weight"].view(torch.uint8)[3, 64] = 0xFF
    (found,) = refused(held, sizes)
    assert found[0] == "attn.wo_a.weight" and "block [0, 2] holds an OCP NaN" in found[1]


def test_padding_that_is_not_zero(plain: Held, sizes: LayerSizes) -> None:
    held = fresh(plain)
    w13, w2 = (held[f"ffn.experts.routed_experts.{n}_weight"] for n in ("w13", "w2"))
    w13[2, 200, 1], w13[2, 201, 0], w13[5, 256 + 192, 9], w2[5, 17, 96] = 1, 2, 3, 4
    w13[7, 200, 1] = 1  # of no selected expert
    assert [what for _, what in refused(held, sizes)] == [
        "expert 2: 2 gate rows of padding are not zero, first gate row 200",
        "expert 5: 1 up rows of padding are not zero, first up row 192",
        "expert 5: 1 column pairs of padding are not zero, first column pair 96",
    ]


def test_expert_codes_without_an_exact_product(plain: Held, sizes: LayerSizes) -> None:
    held = fresh(plain)
    held["ffn.experts.routed_experts.w13_weight_scale"][5, 256 + 3, 2] = 20
    held["ffn.experts.routed_experts.w2_weight_scale"][2, 9, 1] = 250
    assert [t for t, _ in refused(held, sizes)] == ["experts.2.w2.scale", "experts.5.w3.scale"]


def test_converted_experts_come_too_late_for_copies(plain: Held, kept: Held, sizes: LayerSizes) -> None:
    routed = {n: t for n, t in kept.items() if "routed" in n}
    found = refused(plain | routed, sizes)
    assert [t.rsplit(".", 1)[1] for t, _ in found] == [
        "w13_weight",
        "w13_weight_scale",
        "w2_weight",
        "w2_weight_scale",
    ]
    assert "converted already" in found[0][1]


def test_plain_experts_are_not_what_an_aiter_host_holds(plain: Held, kept: Held, sizes: LayerSizes) -> None:
    routed = {n: t for n, t in plain.items() if "routed" in n}
    found = refused(kept | routed, sizes, "row_major")
    assert {t.rsplit(".", 1)[1] for t, _ in found} == {
        "w13_weight",
        "w13_weight_scale",
        "w2_weight",
        "w2_weight_scale",
    }
    assert any("plain experts are uint8" in what for _, what in found)


def test_codes_of_w2_that_are_not_padded(full: ModelSpec) -> None:
    from flymono.runtime.weights.held_experts import shuffled_faults

    sizes = LayerSizes.of(full, 4)
    made = {
        "w13": (384, 1280, 2560),
        "w13_s": (384 * 1280, 160),
        "w2": (384, 5120, 320),
        "w2_s": (1_966_080, 20),
    }
    kinds = {n: torch.uint8 if n.endswith("_s") else torch.float4_e2m1fn_x2 for n in made}
    tensors = {n: torch.empty(s, dtype=kinds[n], device="meta") for n, s in made.items()}
    (found,) = shuffled_faults(tensors, sizes)
    assert "expected [1966080, 24]" in found.what and "AITER version" in found.fix


def test_everything_that_is_wrong_comes_at_once(kept: Held, sizes: LayerSizes) -> None:
    held = fresh({n: t for n, t in kept.items() if "routed" not in n}) | {
        n: t for n, t in kept.items() if "routed" in n
    }
    del held["attn_norm.weight"], held["ffn.experts.routed_experts.w2_weight_scale"]
    held["hc_ffn_base"] = held["hc_ffn_base"].to(torch.bfloat16)
    held["attn.wq_b.weight"] = held["attn.wq_b.weight"][:-32]
    held["attn.wo_a.weight"] = held["attn.wo_a.weight"].view(torch.uint8).t().contiguous().t().view(E4M3)
    held["ffn.shared_experts.gate_up_proj.weight_scale"] = torch.ones(384, 16, dtype=torch.uint8)
    held["attn.rotary_emb.cos_sin_cache"] = held["attn.rotary_emb.cos_sin_cache"][:, :32]
    held["attn.wo_b.weight"] = multiplied_out(
        torch.zeros(512, 128, dtype=torch.uint8), torch.ones(16, 4, dtype=torch.uint8)
    )
    found = {t for t, _ in refused(held, sizes, "row_major")}
    assert found == {
        "attn_norm.weight", "ffn.experts.routed_experts.w2_weight_scale", "hc_ffn_base", "attn.wq_b.weight",
        "attn.wo_a.weight", "ffn.shared_experts.gate_up_proj.weight_scale", "attn.rotary_emb.cos_sin_cache",
        "attn.wo_b.weight",
    }  # fmt: skip


def test_fnuz_bytes_in_rows_are_a_mistake_of_the_caller(kept: Held, sizes: LayerSizes) -> None:
    with pytest.raises(ValueError, match="OCP bytes"):
        held_copies(kept, sizes, "fnuz", "row_major")


# ------------------------------------------------------------------ reloads, layers, memory


def own(copies: LayerCopies) -> LayerCopies:
    """An earlier result in memory of its own."""
    return LayerCopies(**{part: {n: t.clone() for n, t in got.items()} for part, got in vars(copies).items()})


def test_a_reload_keeps_every_address(small: ModelSpec, copies: LayerCopies, sizes: LayerSizes) -> None:
    before = own(copies)
    addresses = {n: t.data_ptr() for n, t in everything(before).items()}
    other = seeded_layer(small, 5, seed=9)
    held = holder(other, TP, RANK, dequantised=True) | plain_experts(other, TP, RANK, sizes, PICKED)
    again = held_copies(held, sizes, "fnuz", "tile_major", selected=PICKED, existing=before)
    new = everything(held_copies(held, sizes, "fnuz", "tile_major", selected=PICKED))
    assert {n: t.data_ptr() for n, t in everything(again).items()} == addresses
    assert all(torch.equal(t, new[n]) for n, t in everything(again).items())
    assert not torch.equal(again.back["wob"], copies.back["wob"])


def test_a_reload_in_two_parts(small: ModelSpec, copies: LayerCopies, sizes: LayerSizes) -> None:
    """Experts before the host converts them, linears after it has multiplied them out."""
    before, other = own(copies), seeded_layer(small, 5, seed=9)
    plain_held = plain_experts(other, TP, RANK, sizes, PICKED)
    held_copies(plain_held, sizes, "fnuz", "tile_major", selected=PICKED, existing=before, only="routed")
    assert torch.equal(before.back["wob"], copies.back["wob"])
    linears = holder(other, TP, RANK, dequantised=True)
    held_copies(linears, sizes, "fnuz", "tile_major", existing=before, only="dense")
    new = held_copies(linears | plain_held, sizes, "fnuz", "tile_major", selected=PICKED)
    assert all(torch.equal(t, everything(before)[n]) for n, t in everything(new).items())


def test_a_refused_reload_changes_nothing(small: ModelSpec, copies: LayerCopies, sizes: LayerSizes) -> None:
    before, other = own(copies), seeded_layer(small, 5, seed=9)
    held = holder(other, TP, RANK, dequantised=True) | plain_experts(other, TP, RANK, sizes, PICKED)
    held["ffn.shared_experts.down_proj.weight"][0, 0] = 1e30
    kept = own(before)
    refused(held, sizes, existing=before)
    held["ffn.shared_experts.down_proj.weight"][0, 0] = 0.0
    del before.back["wob_s"]
    before.ffn["w2"] = before.ffn["w2"][:, :-1]
    found = {t for t, _ in refused(held, sizes, existing=before)}
    assert found == {"back.wob_s", "ffn.w2"}
    same = everything(before)
    assert all(torch.equal(same[n], t) for n, t in everything(kept).items() if n in same and n != "ffn.w2")


def test_a_layer_whose_attention_the_host_runs(plain: Held, sizes: LayerSizes) -> None:
    held = {n: t for n, t in plain.items() if not n.startswith(("attn", "hc_attn"))}
    copies = held_copies(held, sizes, "fnuz", "tile_major", attention=False, selected=PICKED)
    assert not copies.k1 and not copies.back
    assert set(copies.ffn) == set(copy_shapes(sizes, "tile_major", "ffn"))
    assert set(paths(attention=False)) == set(held)


def test_tensors_are_found_on_a_layer(plain: Held) -> None:
    layer = placed(plain)
    inverse = layer.attn.wq_b
    inverse.weight_scale_inv = inverse.weight_scale
    del inverse.weight_scale
    found = held_tensors(layer)
    assert {n: t.data_ptr() for n, t in found.items()} == {n: t.data_ptr() for n, t in plain.items()}
    del layer.ffn.gate
    assert set(plain) - set(held_tensors(layer)) == {"ffn.gate.weight", "ffn.gate.e_score_correction_bias"}


def test_copies_are_what_the_memory_statement_says(
    specs: Specs, small: ModelSpec, copies: LayerCopies
) -> None:
    stated = {c.what: c.each for c in copies_of(small, specs.arch["gfx942"], TP, whole_drafts=True)}
    sizes = {n: t.nbytes for got in vars(copies).values() for n, t in got.items()}
    for what, names in (
        ("routed experts", ROUTED),
        ("shared experts", SHARED),
        ("attention linears", ATTENTION),
    ):
        assert stated[what] == sum(sizes[n] for n in names)
    assert copies_of(small, specs.arch["gfx950"], TP, whole_drafts=True) == ()


def test_the_statement_of_the_release_is_these_shapes(specs: Specs, full: ModelSpec) -> None:
    stated = {c.what: c.each for c in copies_of(full, specs.arch["gfx942"], 4, whole_drafts=True)}
    for draft, what in ((False, "routed experts"), (True, "routed experts of draft layers")):
        sizes = LayerSizes.of(full, 4, draft)
        shapes = {
            n: s for part in ("k1", "back", "ffn") for n, s in copy_shapes(sizes, "tile_major", part).items()
        }
        for kind, names in ((what, ROUTED), ("shared experts", SHARED), ("attention linears", ATTENTION)):
            assert stated[kind] == sum(prod(shapes[n][1]) for n in names)


def test_the_bytes_a_recovered_linear_stands_for(whole: WholeLayer) -> None:
    data, codes = published(whole, "wqb")
    got, _ = bytes_of(multiplied_out(data, codes), codes, 32)
    assert torch.equal(decode(got, OCP), decode(data, OCP))
