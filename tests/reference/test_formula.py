"""Budget formulas: arithmetic over known names and nothing else."""

from __future__ import annotations

import pytest

from flymono.reference.formula import FormulaError, Terms, evaluate, gamma, terms_of
from flymono.reference.sizes import K1Sizes, SumOrder
from flymono.specs.findings import UserError
from flymono.specs.schema import ModelSpec, NumericsSpec


def test_arithmetic() -> None:
    assert evaluate("2 ** -24", {}) == 2.0**-24
    assert evaluate("gamma(k_step + 4 * ceil(k_step / 16))", {"k_step": 128.0}) == gamma(160)
    assert evaluate("max(a, log2(64)) - 1", {"a": 3.0}) == 5


@pytest.mark.parametrize(
    "formula", ["unknown + 1", "__import__('os')", "(1).real", "[1, 2]", "1 +", "gamma(n=1)", "a if a else 1"]
)
def test_anything_else_is_refused(formula: str) -> None:
    with pytest.raises(FormulaError):
        evaluate(formula, {"a": 1.0})


@pytest.mark.parametrize("gemv", ["scaled_mfma", "fp8_mfma_fma"])
def test_every_shipped_term_has_a_small_positive_value(
    numerics: NumericsSpec, model: ModelSpec, gemv: str
) -> None:
    order = SumOrder(gemv=gemv)
    terms = terms_of(numerics, order.names(K1Sizes.of(model, 2)), gemv)
    relative = {k: v for k, v in terms.items() if k not in ("mfma_step", "second_order")}
    assert all(0 < v < 2.0**-11 for v in relative.values())
    assert terms["mfma_step"] == {"scaled_mfma": 160, "fp8_mfma_fma": 40}[gemv]


def test_a_strategy_without_a_formula_is_named(numerics: NumericsSpec, model: ModelSpec) -> None:
    with pytest.raises(FormulaError, match=r"mfma_step.*telepathy"):
        terms_of(numerics, SumOrder().names(K1Sizes.of(model, 2)), "telepathy")


def test_names_follow_the_model(model: ModelSpec) -> None:
    names = SumOrder().names(K1Sizes.of(model, 4))
    assert (names["slices"], names["wqkv_steps"], names["wqb_steps"]) == (160, 3, 2)
    assert (names["norm_values"], names["q_values"], names["kv_values"]) == (24, 8, 2)


@pytest.mark.parametrize("formula", ["1 / 0", "10.0 ** 999", "log2(0)", "gamma()", "gamma(1, 2)", "max()"])
def test_a_formula_without_a_value_is_the_users_error(formula: str) -> None:
    with pytest.raises(FormulaError, match="has no value") as caught:
        evaluate(formula, {})
    assert isinstance(caught.value, UserError) and caught.value.exit_code == 2


def test_a_term_that_was_deleted_is_the_users_error() -> None:
    with pytest.raises(FormulaError, match="no term 'u'"):
        Terms({"v": 1.0})["u"]
