"""Budgets hold for every arithmetic that the hardware may have: MFMA models, 1-ulp functions, other orders.

The evaluations here differ from the promised order only where nothing is promised; each is adversarial in
its own way, and all must pass with the same budgets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from flymono.reference import f32, front, seam
from flymono.reference.draws import Draws
from flymono.reference.formats import F32, F64, pow2
from flymono.reference.k1 import K1
from flymono.reference.quant import Blocks

Bench = Callable[..., Any]
STRATEGIES = pytest.mark.parametrize(
    "options",
    [
        {"gemv": "scaled_mfma"},
        {"gemv": "fp8_mfma_fma", "fp8": "fnuz"},
        {"gemv": "scaled_mfma", "index": True},
    ],
    ids=["scaled", "split", "index"],
)


def chain(acc: Tensor, x: Tensor, w: Tensor) -> Tensor:
    """A fused multiply-add a product, in ascending k: x [S, K], w [N, K], acc [S, N]."""
    for k in range(x.shape[-1]):
        acc = f32.fma_near(x[:, None, k], w[None, :, k], acc)
    return acc


def exponent(value: Tensor, smallest: int) -> Tensor:
    e = torch.frexp(value).exponent.to(torch.int64) - 1
    return torch.where(value == 0, -200, e.clamp_min(smallest))


def truncating(acc: Tensor, x: Tensor, w: Tensor) -> Tensor:
    """Aligned truncation in groups of 16 at the largest product exponent, 24 fraction bits."""
    for k in range(0, x.shape[-1], 16):
        a, b = x[:, None, k : k + 16], w[None, :, k : k + 16]
        product = a * b
        e = exponent(a, -40) + exponent(b, -40)
        unit = pow2(e.amax(-1) - 24)[..., None]
        dot = (torch.trunc(product / unit) * unit).sum(-1)
        top = torch.maximum(e.amax(-1), exponent(acc.to(F64), -126))
        unit = pow2(top - 24)
        acc = (dot + torch.floor(acc.to(F64) / unit) * unit).to(F32)
    return acc


def perturbed(sign: float) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """An exact sum moved by 2**-23 of its largest term, always to one side."""

    def step(acc: Tensor, x: Tensor, w: Tensor) -> Tensor:
        product = x[:, None] * w[None]
        largest = torch.maximum(product.abs().amax(-1), acc.to(F64).abs())
        return (acc.to(F64) + product.sum(-1) + sign * 2.0**-23 * largest).to(F32)

    return step


MODELS = {"chain": chain, "truncating": truncating, "up": perturbed(1.0), "down": perturbed(-1.0)}


def gemv_under(mfma: Callable[[Tensor, Tensor, Tensor], Tensor], k1: K1, x: Tensor, w: Tensor) -> Tensor:
    """A K range by the kernel's split, under an MFMA model; sums over waves as promised."""
    total, order = torch.zeros(x.shape[0], w.shape[0]), k1.order
    for wave in range(order.waves):
        acc = torch.zeros_like(total)
        for at in range(wave * order.k_step, x.shape[1], order.waves * order.k_step):
            if order.gemv == "scaled_mfma":
                acc = mfma(acc, x[:, at : at + order.k_step], w[:, at : at + order.k_step])
                continue
            for b in range(at, at + order.k_step, 32):
                block = mfma(torch.zeros_like(acc), x[:, b : b + 32], w[:, b : b + 32])
                acc = acc + block
        total = total + acc
    return total


def under(mfma: Callable[[Tensor, Tensor, Tensor], Tensor]) -> type[K1]:
    class Under(K1):
        def qkvp(self, x8: Blocks) -> Tensor:
            halves = zip(x8.values().chunk(2, -1), self.weights.wqkv_values.chunk(2, -1), strict=True)
            return torch.stack([gemv_under(mfma, self, xs, ws) for xs, ws in halves])

        def wqb(self, qx8: Blocks) -> Tensor:
            u = gemv_under(mfma, self, qx8.values(), self.weights.wqb_values).to(torch.bfloat16)
            return torch.unflatten(u, -1, (self.sizes.heads, self.sizes.head_dim))

    return Under


@STRATEGIES
@pytest.mark.parametrize("mfma", MODELS.values(), ids=MODELS.keys())
def test_budgets_hold_under_every_mfma_model(bench: Bench, options: dict[str, Any], mfma: Any) -> None:
    b = bench(rows=4, **options)
    comparison = b.compare(b.launch_with(under(mfma)))
    assert [v.name for v in comparison.stages() + comparison.end_to_end() if not v.ok] == []


@pytest.fixture(params=["random", "up", "down"])
def trans(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """rsq, rcp and exp2 off by an ulp: at random, or always to one side."""
    draws = Draws(0, "ulp")

    def moved(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def wrapper(x: Tensor) -> Tensor:
            exact = function(x)
            if request.param == "random":
                step = draws.integers(-1, 2, *exact.shape)
            else:
                step = torch.full(exact.shape, 1 if request.param == "up" else -1)
            bits = (exact.view(torch.int32).to(torch.int64) + step).to(torch.int32)
            return torch.where((exact == 0) | ~torch.isfinite(exact), exact, bits.view(F32))

        return wrapper

    for name in ("rsq", "rcp", "exp2"):
        monkeypatch.setattr(f32, name, moved(getattr(f32, name)))


@STRATEGIES
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.usefixtures("trans")
def test_budgets_hold_with_functions_an_ulp_off(bench: Bench, options: dict[str, Any], seed: int) -> None:
    b = bench(rows=12, seed=seed, **options)
    comparison = b.compare(b.launch_with(K1))
    assert [v.name for v in comparison.stages() + comparison.end_to_end() if not v.ok] == []


def test_moved_functions_do_change_something(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    b = bench()
    before = K1(b.case, b.weights, b.sizes, b.order).run()
    monkeypatch.setattr(f32, "rsq", lambda x: torch.nextafter(x.rsqrt(), torch.tensor(torch.inf)))
    after = K1(b.case, b.weights, b.sizes, b.order).run()
    assert not torch.equal(before.comb_out, after.comb_out)


class OtherOrders(K1):
    """Sums that nothing promises, taken in torch's order."""

    def pmix(self, residual: Tensor) -> Tensor:
        return seam.partials_exact(residual, self.weights.hc_fn, self.order)[0].to(F32)

    def gates(self, pmix: Tensor) -> seam.Gates:
        return seam.gates(pmix.flip(0), self.weights, self.sizes, self.order)

    def normed(self, lin: Tensor) -> Tensor:
        rstd = (lin.to(F32).square().mean(-1) + self.sizes.eps).rsqrt()
        return front.scaled(lin, rstd, self.weights.attn_w)


def test_budgets_hold_for_other_summation_orders(bench: Bench) -> None:
    b = bench(rows=12)
    assert [v.name for v in b.compare(b.launch_with(OtherOrders)).stages() if not v.ok] == []


def test_bounds_are_not_absurdly_wide(bench: Bench) -> None:
    """An adversarial error comes within a thousandth of its worst-case bound: the bound is not absurd."""
    b = bench(rows=4, gemv="fp8_mfma_fma")
    launch = b.launch_with(under(MODELS["up"]))
    comparison = b.compare(launch)
    verdict = next(v for v in comparison.wqkv() if v.output == "qkvp")
    assert verdict.worst > verdict.budget / 1000


def test_the_adversarial_models_differ_from_the_promised_order(bench: Bench) -> None:
    b = bench(rows=4)
    promised = K1(b.case, b.weights, b.sizes, b.order).run().qkvp
    for mfma in MODELS.values():
        assert not torch.equal(
            under(mfma)(b.case, b.weights, b.sizes, b.order).run().qkvp.to(F64), promised.to(F64)
        )
