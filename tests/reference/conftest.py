"""Fixtures of the reference's tests: the shipped specs, a small model, and evaluated cases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import pytest
import torch

from flymono.reference.case import K1Case, make_case
from flymono.reference.compare import Comparison, Launch
from flymono.reference.k1 import K1
from flymono.reference.planted import Planted, launch_of
from flymono.reference.regions import pack
from flymono.reference.sizes import K1Sizes, SumOrder
from flymono.reference.weights import K1Weights, random_weights
from flymono.specs import Specs, load
from flymono.specs.schema import ModelSpec, NumericsSpec

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def specs() -> Specs:
    return load()


@pytest.fixture(scope="session")
def model(specs: Specs) -> ModelSpec:
    return specs.model["deepseek_v41_flash"]


@pytest.fixture(scope="session")
def numerics(specs: Specs) -> NumericsSpec:
    return specs.numerics["k1"]


def shrink(model: ModelSpec) -> ModelSpec:
    """The same layer with a fifth of the hidden size and four heads a rank of TP2."""
    attention = model.attention.model_copy(update={"heads": 8, "q_lora_rank": 384, "o_groups": 2})
    return model.model_copy(update={"hidden": 1024, "attention": attention})


@pytest.fixture(scope="session")
def small(model: ModelSpec) -> ModelSpec:
    return shrink(model)


@dataclass(frozen=True)
class Bench:
    """One case with its weights, ready to be evaluated and compared."""

    case: K1Case
    weights: K1Weights
    sizes: K1Sizes
    order: SumOrder
    numerics: NumericsSpec

    def launch(self, bug: Planted | None = None) -> Launch:
        return launch_of(bug, self.case, self.weights, self.sizes, self.order)

    def launch_with(self, evaluation: type[K1], tag: int = 3) -> Launch:
        outputs = evaluation(self.case, self.weights, self.sizes, self.order).run()
        return Launch(outputs.tensors(), pack(outputs, tag), tag)

    def compare(self, launch: Launch) -> Comparison:
        return Comparison(self.case, self.weights, self.sizes, self.order, self.numerics, launch)

    def with_case(self, case: K1Case) -> Bench:
        return replace(self, case=case)


@pytest.fixture(scope="session")
def bench(small: ModelSpec, numerics: NumericsSpec) -> Callable[..., Bench]:
    """Build (once) a Bench of the small model: bench(rows=12, tp=2, gemv=..., **make_case options)."""
    weights = cache(lambda tp: random_weights(small, tp))

    @cache
    def make(
        *, rows: int = 12, tp: int = 2, gemv: str = "scaled_mfma", ratio: int = 2, **options: object
    ) -> Bench:
        case = make_case(small, rows=rows, tp=tp, ratio=ratio, **options)  # type: ignore[arg-type]
        return Bench(case, weights(tp), K1Sizes.of(small, tp), SumOrder(gemv=gemv), numerics)

    return make
