"""A layer, a chain of layers, steps: caches are real, hand-offs are five tensors, rows are independent."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from flymono.reference.compressor import CompressorWeights, random_compressor
from flymono.reference.draws import Draws
from flymono.reference.formats import FNUZ, OCP
from flymono.reference.k1 import K1
from flymono.reference.layer import (
    LayerWeights,
    arrivals_of,
    compress,
    following,
    k1_on_ranks,
    layer_outputs,
)
from flymono.reference.layer_case import (
    LayerCase,
    compressed_rows,
    make_layer_case,
    window_positions,
)
from flymono.reference.layer_sizes import LayerSizes
from flymono.reference.steps import next_step

from .layer_bench import CONTEXTS, layer, order_of, small_model

TP = 2


def sizes() -> LayerSizes:
    return LayerSizes.of(small_model(), TP)


def weights(number: int, compressor: CompressorWeights | None = None) -> LayerWeights:
    return LayerWeights.of(layer(number=number), TP, compressor)


def case_of(number: int, rows: int = 5, fp8: str = "ocp", **options: object) -> LayerCase:
    return make_layer_case(
        small_model(), rows=rows, tp=TP, layer=number, fp8=fp8, contexts=CONTEXTS, **options
    )  # type: ignore[arg-type]


# ------------------------------------------------------------------ cases


@pytest.mark.parametrize("fp8", ["ocp", "fnuz"])
@pytest.mark.parametrize("number", [0, 3, 21])
def test_every_listed_record_is_real(number: int, fp8: str) -> None:
    case = case_of(number, rows=9, fp8=fp8)
    flavour = FNUZ if fp8 == "fnuz" else OCP
    window = replace(case.compressed_cache, data=case.k1.swa, stride=case.k1.swa_stride,
                     block=case.k1.swa_block, flavour=flavour)  # fmt: skip
    for cache, places in (
        (window, window_positions(case.k1)),
        (case.compressed_cache, compressed_rows(case.k1)),
    ):
        if not places:
            continue
        rms = cache.read(torch.tensor(sorted(places)), sizes()).square().mean(-1).sqrt()
        assert bool(((rms > 0.5) & (rms < 2.0)).all())
    assert bool(compressed_rows(case.k1)) == (case.k1.ratio > 0)


@pytest.mark.parametrize("contexts", [(1,), (70_000,), (1, 100, 130, 513, 4000, 70_000)])
def test_contexts_are_the_ones_asked_for(contexts: tuple[int, ...]) -> None:
    case = make_layer_case(small_model(), rows=8, tp=TP, layer=3, contexts=contexts, padded=1).k1
    first = {int(case.t2r[t]): int(case.pos[t]) + 1 for t in reversed(range(7))}
    assert list(first.values())[::-1] == [contexts[r % len(contexts)] for r in sorted(first)]
    assert case.pos.max() < len(case.cos_sin) and int(case.slot[7]) == -1


def test_equal_positions_hold_equal_records_in_other_steps() -> None:
    small, large = case_of(3, rows=4), case_of(3, rows=4, seed=0, padded=0)
    a, b = (compressed_rows(c.k1) for c in (small, large))
    place_of = {place: slot for slot, place in b.items()}
    common = [(slot, place_of[place]) for slot, place in a.items() if place in place_of]
    left = small.compressed_cache.read(torch.tensor([s for s, _ in common]), sizes())
    right = large.compressed_cache.read(torch.tensor([s for _, s in common]), sizes())
    assert len(common) > 50 and torch.equal(left, right)


def test_a_draft_step_lists_its_whole_block() -> None:
    case = make_layer_case(small_model(), rows=6, tp=TP, layer=41, window=192, contexts=(300,), padded=0)
    assert case.k1.ratio == 0 and bool((case.k1.swa_lens > 128).any())
    assert case.k1.swa_lens.max() == 133


# ------------------------------------------------------------------ layers


def test_ranks_differ_in_queries_only() -> None:
    case, own = case_of(3), weights(3)
    outs = k1_on_ranks(case, own.k1, sizes(), order_of("ocp"), exact=False)
    second = K1(case.k1, own.k1[1], sizes(), order_of("ocp")).run()
    assert torch.equal(outs[1].q, second.q) and not torch.equal(outs[0].q, outs[1].q)
    assert torch.equal(outs[1].swa, second.swa) and torch.equal(outs[1].res_out, second.res_out)


def test_padded_rows_do_not_change_the_others() -> None:
    case, own = case_of(3, rows=6, padded=2), weights(3)
    whole = layer_outputs(case, own, sizes(), order_of("ocp"))
    alone = replace(case, k1=case.k1.select(torch.arange(4)))
    part = layer_outputs(alone, own, sizes(), order_of("ocp"))
    for name, tensor in part.ffn.tensors().items():
        assert torch.equal(whole.ffn.tensors()[name][:4], tensor), name


def test_a_layer_with_keys_inside_is_the_same_layer() -> None:
    case, own = case_of(21, index=True), weights(21)
    outside, inside = (layer_outputs(case, own, sizes(), keys_inside=k) for k in (False, True))
    assert torch.equal(outside.ffn.out, inside.ffn.out)
    assert torch.equal(inside.k2.kt, outside.k2case.kt)


def test_the_forms_stay_close_over_a_chain() -> None:
    """Layers 2, 3, 4: a compressor writes the step's records, later layers read them."""
    compressor = random_compressor(Draws(0, "compressor"), sizes(), 2)
    final = {}
    for form in ("promised", "exact"):
        case = case_of(2, index=True)
        for number in (2, 3, 4):
            own = weights(number, compressor if number == 2 else None)
            out = layer_outputs(case, own, sizes(), order_of("ocp"), form)  # type: ignore[arg-type]
            case = following(case, out, sizes()) if number < 4 else case
        final[form] = out.ffn
    a, b = (final[f].res_out.to(torch.float64) for f in ("promised", "exact"))
    same = (final["promised"].routing.ids == final["exact"].routing.ids).all(-1)
    live = (b.flatten(1).norm(dim=-1) > 1e-3) & same
    assert int(live.sum()) >= 2
    assert bool(((a - b).flatten(1).norm(dim=-1)[live] < 0.1 * b.flatten(1).norm(dim=-1)[live]).all())


def test_the_compressor_writes_the_rows_that_the_step_completes() -> None:
    case = make_layer_case(small_model(), rows=6, tp=TP, layer=2, contexts=(100,), padded=0, index=True)
    arrivals, earlier = arrivals_of(case)
    assert arrivals.first == (98, 100, 102) and earlier == [(0, 98)]
    assert arrivals.tokens == ((-1, 0), (1, 2), (3, 4))
    weights_ = random_compressor(Draws(0, "compressor"), sizes(), 2)
    normed = Draws(1, "normed").normal(6, 512).to(torch.bfloat16)
    after = compress(case, normed, weights_, sizes())
    slots = torch.tensor(arrivals.slots)
    got = after.compressed_cache.read(slots, sizes())
    scores = weights_.scores(normed).to(torch.float64)
    kv, score = scores[1:3].chunk(2, -1)
    pooled = (kv * torch.softmax(score, 0)).sum(0)
    want = pooled * (pooled.square().mean() + 1e-20).rsqrt() * weights_.norm.to(torch.float64)
    nope = slice(0, 448)
    assert float((got[1, nope] - want[nope]).norm() / want[nope].norm()) < 0.05
    changed = (after.comp != case.comp).nonzero().flatten()
    assert 0 < len(changed) <= 3 * 584


def test_a_compressor_needs_an_index_build() -> None:
    own = weights(2, random_compressor(Draws(0, "compressor"), sizes(), 2))
    with pytest.raises(ValueError, match="only index builds"):
        layer_outputs(case_of(2), own, sizes())


def test_a_chain_ends_where_caches_change() -> None:
    case = case_of(7)
    out = layer_outputs(case, weights(7), sizes())
    with pytest.raises(ValueError, match="layer 8 does not read"):
        following(case, out, sizes())


def test_the_next_step_reads_what_this_one_wrote() -> None:
    case = case_of(20, rows=4, padded=0, index=True)
    compressor = random_compressor(Draws(0, "compressor"), sizes(), 1)
    out = layer_outputs(case, weights(20, compressor), sizes())
    after = next_step(case, out.k2case.swa, out.k2case.comp, sizes(), keep_compressed=True)
    rows = [int((case.k1.t2r == r).sum()) for r in case.k1.t2r.tolist()]
    assert torch.equal(after.k1.pos, case.k1.pos + torch.tensor(rows))
    own = case.k1.slot[case.k1.live]
    listed = set(after.k1.swa_idx.flatten().tolist())
    assert set(own.tolist()) <= listed
    cache = out.k2case.window_cache
    grown = replace(cache, data=after.k1.swa)
    assert torch.equal(grown.read(own, sizes()), cache.read(own, sizes()))
    assert after.k1.swa_lens.tolist() == [min(int(p) + 1, 128) for p in after.k1.pos]
    arrivals, _ = arrivals_of(case)
    for slot in arrivals.slots:
        if slot in compressed_rows(after.k1):
            at = torch.tensor([slot])
            ours = after.compressed_cache.read(at, sizes())
            assert torch.equal(ours, replace(after.compressed_cache, data=out.k2case.comp).read(at, sizes()))
    assert torch.isfinite(layer_outputs(after, weights(20), sizes()).ffn.out.to(torch.float32)).all()
