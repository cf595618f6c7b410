"""Budgets of K2 and the FFN half hold for every arithmetic the hardware may have, and every one is used.

As test_budgets.py: the evaluations differ from the promised order only where nothing is promised (inside an
MFMA, in functions of 1 ulp), each adversarial in its own way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from flymono.reference import attention_back, experts, f32, front, router, shared
from flymono.reference.formats import F32, F64
from flymono.reference.k2 import K2
from flymono.reference.layer_regions import k2_launches, unpack_back, unpack_ffn
from flymono.reference.layer_sizes import LayerOrder
from flymono.reference.planted_layer import Bench, launches_of

from .layer_bench import TABLES, compare, ffn_bench, k2_bench
from .test_budgets import MODELS

KINDS = pytest.mark.parametrize("kind", ["k2-ocp", "k2-fnuz", "ffn-ocp", "ffn-fnuz"])

SLOW = pytest.mark.slow  # several models or functions each
QUICK = pytest.mark.parametrize(
    "kind",
    ["ffn-ocp", "ffn-fnuz", pytest.param("k2-ocp", marks=SLOW), pytest.param("k2-fnuz", marks=SLOW)],
)


def bench_of(kind: str, seed: int = 0) -> Bench:
    launch, fp8 = kind.split("-")
    if launch == "ffn":
        return ffn_bench(fp8, rows=4, experts=16, seed=seed)
    return k2_bench(
        fp8, tp=2, rows=4, ratio=1 if fp8 == "fnuz" else 2, inside=fp8 == "ocp", seed=seed, padded=1
    )


def wrong(bench: Bench) -> list[str]:
    comparison = compare(bench, launches_of(None, bench))
    verdicts = comparison.stages() + comparison.end_to_end()
    return [f"{v.name}: {v.worst} > {v.budget} at {v.where}" for v in verdicts if not v.ok]


@KINDS
@pytest.mark.parametrize("seed", [0, 1])
def test_the_promised_order_passes(kind: str, seed: int) -> None:
    assert wrong(bench_of(kind, seed)) == []


def test_more_shapes_pass() -> None:
    assert wrong(ffn_bench("fnuz", rows=9, experts=16, tile=2)) == []
    assert wrong(ffn_bench("ocp", tp=2, rows=1)) == []
    assert wrong(k2_bench("fnuz", tp=4, rows=6, ratio=0)) == []


def test_every_budget_is_used_and_no_other() -> None:
    seen: dict[str, set[tuple[str, str]]] = {"k2": set(), "ffn": set()}
    k2 = compare(k2_bench("ocp", inside=True), launches_of(None, k2_bench("ocp", inside=True)))
    ffn = compare(ffn_bench(), launches_of(None, ffn_bench()))
    stated = {t: {(b.stage, b.output) for b in TABLES[t].budgets} for t in seen}
    for verdict in k2.stages() + k2.end_to_end() + ffn.stages() + ffn.end_to_end():
        at = (verdict.stage, verdict.output)
        assert any(at in budgets for budgets in stated.values())
        for table, budgets in stated.items():
            seen[table] |= {at} & budgets
    assert seen == stated


def test_terms_of_one_name_say_the_same_in_every_table() -> None:
    formulas: dict[str, object] = {}
    for table in TABLES.values():
        for term in table.terms:
            assert formulas.setdefault(term.name, term.formula) == term.formula, term.name


# ------------------------------------------------------------------ inside an MFMA


def steps_under(
    mfma: Callable[[Tensor, Tensor, Tensor], Tensor], x: Tensor, w: Tensor, order: LayerOrder
) -> Tensor:
    """One wave's or chain's K steps, from a zero accumulator."""
    acc = torch.zeros(x.shape[0], w.shape[0], dtype=F32)
    for at in range(0, x.shape[1], order.k_step):
        if order.gemv == "scaled_mfma":
            acc = mfma(acc, x[:, at : at + order.k_step], w[:, at : at + order.k_step])
            continue
        for b in range(at, min(at + order.k_step, x.shape[1]), 32):
            acc = acc + mfma(torch.zeros_like(acc), x[:, b : b + 32], w[:, b : b + 32])
    return acc


@pytest.fixture(params=MODELS.keys())
def mfma(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every GEMV of the layer under a model of the MFMA's inside."""
    model = MODELS[request.param]

    def whole(x: Tensor, w: Tensor, order: Any, *_: Any) -> Tensor:
        return steps_under(model, x.to(F64), w.to(F64), order)

    def waves(x: Tensor, w: Tensor, order: Any, *_: Any) -> Tensor:
        total = torch.zeros(x.shape[0], w.shape[0], dtype=F32)
        for wave in range(order.waves):
            own = torch.arange(x.shape[1]) // order.k_step % order.waves == wave
            total = total + steps_under(model, x[:, own].to(F64), w[:, own].to(F64), order)
        return total

    def parts(y: Tensor, gate_w: Tensor, order: Any) -> Tensor:
        pairs = zip(y.to(F64).chunk(order.router_parts, -1), gate_w.to(F64).chunk(order.router_parts, -1),
                    strict=True)  # fmt: skip
        return torch.stack([_bf16_steps(model, x, w, order.bf16_k) for x, w in pairs])

    monkeypatch.setattr(experts, "up_gemv", whole)
    monkeypatch.setattr(experts, "down_gemv", whole)
    monkeypatch.setattr(shared, "gemv", waves)
    monkeypatch.setattr(front, "gemv_part", waves)
    monkeypatch.setattr(attention_back, "gemv_contiguous", waves)
    monkeypatch.setattr(router, "logit_parts", parts)
    monkeypatch.setattr(attention_back, "split", _split_under(model))


def _bf16_steps(model: Any, x: Tensor, w: Tensor, width: int) -> Tensor:
    acc = torch.zeros(x.shape[0], w.shape[0], dtype=F32)
    for at in range(0, x.shape[1], width):
        acc = model(acc, x[:, at : at + width], w[:, at : at + width])
    return acc


def _split_under(model: Any) -> Callable[..., Any]:
    def split(keys: Any, q: Tensor, sizes: Any, order: Any) -> tuple[Tensor, Tensor, Tensor]:
        acc = _bf16_steps(model, keys.values, q.to(F64), order.bf16_k)
        valid = keys.valid[:, None]
        s = torch.where(valid, acc * attention_back.qk_scale(sizes), attention_back.NEG)
        m = s.amax(0)
        p = torch.where(valid, f32.exp2(s - m), 0.0)
        o = _bf16_steps(model, p.to(torch.bfloat16).to(F64).T, keys.values.T, order.value_k)
        return m, p.sum(0), o.to(torch.bfloat16)

    return split


@pytest.mark.usefixtures("mfma")
@QUICK
def test_stage_budgets_hold_under_every_mfma_model(kind: str) -> None:
    bench = bench_of(kind)
    verdicts = compare(bench, launches_of(None, bench)).stages()
    assert [v.name for v in verdicts if not v.ok] == []


# ------------------------------------------------------------------ functions an ulp off


@pytest.fixture(params=["mixed", "up", "down"])
def trans(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """rsq, rcp, exp2 and log2 off by an ulp: by a hash of the result (equal stays equal), or one way."""
    ways = {"up": 1, "down": -1}

    def moved(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def wrapper(x: Tensor) -> Tensor:
            exact = function(x)
            bits = exact.contiguous().view(torch.int32).to(torch.int64)
            step = (bits * 2654435761 >> 13) % 3 - 1 if request.param == "mixed" else ways[request.param]
            near = (bits + step).to(torch.int32).view(F32)
            return torch.where((exact == 0) | ~torch.isfinite(exact), exact, near)

        return wrapper

    for name in ("rsq", "rcp", "exp2", "log2"):
        monkeypatch.setattr(f32, name, moved(getattr(f32, name)))


@pytest.mark.usefixtures("trans")
@QUICK
def test_stage_budgets_hold_with_functions_an_ulp_off(kind: str) -> None:
    bench = bench_of(kind)
    verdicts = compare(bench, launches_of(None, bench)).stages()
    assert [v.name for v in verdicts if not v.ok] == []


# ------------------------------------------------------------------ regions


@pytest.mark.parametrize("fp8", ["ocp", "fnuz"])
def test_regions_survive_a_round_trip(fp8: str) -> None:
    bench = k2_bench(fp8, tp=2, rows=4, ratio=1, padded=1)
    assert bench.k2 is not None
    out = K2(bench.k2, bench.back, bench.ffn, bench.sizes, bench.order).run_all()
    regions = k2_launches(out, bench.order, bench.sizes, 8)[1].regions
    back = unpack_back(regions, bench.sizes, bench.order, bench.case.rows, fp8)
    ffn = unpack_ffn(regions, bench.sizes, bench.order, bench.case.rows, fp8)
    own, tail = out.back[1], out.ffn.ranks[1]
    pairs = [
        (back.split.top, own.split.top), (back.split.part, own.split.part), (back.xo.data, own.xo.data),
        (back.x8b.codes, own.x8b.codes), (back.attn.value, out.ffn.attn), (ffn.lin.value, out.ffn.lin),
        (ffn.normed, out.ffn.normed), (ffn.x8r.data, out.ffn.x8r.data), (ffn.x8.codes, out.ffn.x8.codes),
        (ffn.logit.value, out.ffn.logit), (ffn.ids[3], out.ffn.routing.ids),
        (ffn.weights[7], out.ffn.routing.weights), (ffn.smid.value, tail.smid.to(F32)),
        (ffn.sm.data, tail.sm.data), (ffn.mid.data, tail.mid.data), (ffn.mid.codes, tail.mid.codes),
        (ffn.ffn.value[1], tail.partial),
    ]  # fmt: skip
    assert all(torch.equal(a, b) for a, b in pairs)
    assert all(bool((t == 8).all()) for t in (back.attn.tags, ffn.logit.tags, ffn.route_tags, ffn.ugf[:, 1]))


def test_places_of_the_lane_grouped_order() -> None:
    from flymono.reference.layer_regions import mid_places

    places = mid_places(576)
    inner = [0, 4, 1, 5, 2, 6, 3, 7]
    for c in range(576):
        want = c // 128 * 128 + 32 * ((c % 32) // 8) + 8 * ((c % 128) // 32) + inner[c % 8]
        assert int(places[c]) == want
    assert len(places.unique()) == 576 and int(places.max()) < 640


def test_rows_of_mid_may_be_longer_than_their_columns() -> None:
    bench = ffn_bench("fnuz")
    wide = replace(bench, order=replace(bench.order, mid_row=256, mids_row=32))
    assert wrong(wide) == []
    short, long = (launches_of(None, b)[0].regions["mids"] for b in (bench, wide))
    picks = bench.case.rows * bench.sizes.picks
    assert (len(short), len(long)) == (picks * 4 * bench.sizes.inter_padded // 32, picks * 4 * 32)


def test_missing_and_short_regions_are_named() -> None:
    bench = ffn_bench()
    regions = dict(launches_of(None, bench)[0].regions)
    del regions["mid"], regions["route"]
    with pytest.raises(KeyError, match="route, mid"):
        unpack_ffn(regions, bench.sizes, bench.order, bench.case.rows, "ocp")
    regions = dict(launches_of(None, bench)[0].regions)
    regions["smq"] = regions["smq"][:-4]
    with pytest.raises(ValueError, match="cannot hold"):
        unpack_ffn(regions, bench.sizes, bench.order, bench.case.rows, "ocp")
