"""The seam's formulas against independent forms, and the promised order against float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from flymono.reference import seam
from flymono.reference.draws import Draws
from flymono.reference.formats import F32, F64, bf16, bf16_ordinal
from flymono.reference.weights import random_gate

Bench = Callable[..., Any]


def test_fold_is_the_einsum_within_one_rounding_step(bench: Bench) -> None:
    case = bench().case
    exact = torch.einsum("tij,tic->tjc", case.comb_in.to(F64), case.res_in.to(F64))
    exact = exact + case.post_in.to(F64)[:, :, None] * case.pend.to(F64)[:, None, :]
    got = seam.fold(case.res_in, case.pend, case.post_in, case.comb_in)
    size = case.post_in[:, :, None] * case.pend.abs()[:, None].to(F32)
    size = size + torch.einsum("tij,tic->tjc", case.comb_in, case.res_in.abs().to(F32))
    slack = 6 * 2.0**-24 * size.to(F64)
    assert bool((got.to(F64) >= bf16(exact - slack)).all()) and bool(
        (got.to(F64) <= bf16(exact + slack)).all()
    )


def test_fold_order_is_spelled_out(bench: Bench) -> None:
    case = bench().case
    t, o, c = 1, 2, 77
    x, r = case.pend[t, c].to(F32), case.res_in[t, :, c].to(F32)
    v = case.post_in[t, o] * x + case.comb_in[t, 0, o] * r[0]
    v = v + case.comb_in[t, 1, o] * r[1]
    v = v + case.comb_in[t, 2, o] * r[2]
    v = (case.comb_in[t, 3, o].to(F64) * r[3].to(F64) + v.to(F64)).to(F32)
    assert seam.fold(case.res_in, case.pend, case.post_in, case.comb_in)[t, o, c] == v.to(torch.bfloat16)


def test_first_layers_collapse_is_stream_zero(bench: Bench) -> None:
    case = bench(fold=False, first=True).case
    assert torch.equal(seam.collapse(case.res_in, case.pre_in), case.res_in[:, 0])


def test_split_gate_weights_are_an_exact_sum(bench: Bench) -> None:
    fn = random_gate(Draws(0, "fn"), bench().sizes)[0]
    split = seam.split_fn(fn)
    high = fn.to(torch.bfloat16).to(F64)
    low = (fn.to(F64) - high).to(F32).to(torch.bfloat16).to(F64)
    assert torch.equal(split.to(F64), high + low)
    assert bool(((split - fn).abs() <= 2.0**-17 * fn.abs()).all())
    assert bool((split != fn).any())


def test_partials_add_up_to_the_projection(bench: Bench) -> None:
    b = bench()
    residual = seam.fold(b.case.res_in, b.case.pend, b.case.post_in, b.case.comb_in)
    exact, magnitude = seam.partials_exact(residual, b.weights.hc_fn, b.order)
    flat = residual.to(F64).flatten(1)
    whole = flat @ seam.split_fn(b.weights.hc_fn).to(F64).T
    assert torch.allclose(exact[..., :-1].sum(0), whole, rtol=1e-12, atol=1e-12)
    assert torch.allclose(exact[..., -1].sum(0), flat.square().sum(-1), rtol=1e-12)
    got = seam.partials(residual, b.weights.hc_fn, b.order)
    assert bool(((got.to(F64) - exact).abs() <= 24 * 2.0**-24 * magnitude).all())


def reference_sinkhorn(logits: torch.Tensor, rounds: int, eps: float) -> torch.Tensor:
    """The form of the model's own code: softmax plus eps, column, then rows and columns."""
    m = logits.softmax(-1) + eps
    m = m / (m.sum(-2, keepdim=True) + eps)
    for _ in range(rounds - 1):
        m = m / (m.sum(-1, keepdim=True) + eps)
        m = m / (m.sum(-2, keepdim=True) + eps)
    return m


def test_sinkhorn_is_the_models_form() -> None:
    logits = 3 * Draws(0, "logits").normal(64, 4, 4)
    want = reference_sinkhorn(logits, 20, 1e-6)
    assert torch.allclose(seam.sinkhorn_steps(logits, 20, 1e-6)[-1], want, rtol=1e-12)
    got = seam.sinkhorn(logits.to(F32), 20, 1e-6)
    # 40 normalisations of 8 roundings (numerics: sinkhorn_step), and exp2's argument: 3 u of up to 16 log2 e
    tolerance = (40 * 8 + 3 * 24) * 2.0**-24
    exact = logits.to(F32).to(F64)
    assert torch.allclose(got.to(F64), reference_sinkhorn(exact, 20, 1e-6), rtol=tolerance, atol=0)
    assert not torch.allclose(got.to(F64), reference_sinkhorn(exact, 19, 1e-6), rtol=tolerance, atol=0)


def test_gates_follow_their_formulas(bench: Bench) -> None:
    b = bench()
    total = torch.cat([Draws(0, "mix").normal(5, b.sizes.mix), 1e3 + Draws(0, "sq").uniform(5, 1)], -1)
    gates = seam.gates_exact(total, b.weights, b.sizes)
    v = total[:, :-1] / (total[:, -1:] / (4 * b.sizes.hidden) + 1e-20).sqrt()
    scale, base = b.weights.hc_scale.to(F64), b.weights.hc_base.to(F64)
    assert torch.allclose(gates.pre, torch.sigmoid(v[:, :4] * scale[0] + base[:4]) + 1e-6)
    assert torch.allclose(gates.post, 2 * torch.sigmoid(v[:, 4:8] * scale[1] + base[4:8]))
    logits = (v[:, 8:] * scale[2] + base[8:]).reshape(-1, 4, 4)
    assert torch.allclose(gates.comb, reference_sinkhorn(logits, 20, 1e-6))


def test_no_fold_copies(bench: Bench) -> None:
    case = bench(fold=False).case
    for exact in (True, False):
        got = seam.residual_of(case.res_in, case.pend, case.post_in, case.comb_in, case.fold, exact)
        assert torch.equal(got, case.res_in) and got is not case.res_in


def test_exact_fold_differs_by_a_step_at_most(bench: Bench) -> None:
    case = bench().case
    arguments = (case.res_in, case.pend, case.post_in, case.comb_in, True)
    a, e = seam.residual_of(*arguments, exact=False), seam.residual_of(*arguments, exact=True)
    large = e.abs() > e.abs().amax() * 2.0**-10
    assert int((bf16_ordinal(a) - bf16_ordinal(e)).abs()[large].max()) <= 1
