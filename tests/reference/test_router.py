"""Selection: our tie and NaN rules, the float32 form, and the bounds that near-ties are judged by."""

from __future__ import annotations

import pytest
import torch

from flymono.reference import router
from flymono.reference.bounds import Value
from flymono.reference.draws import Draws
from flymono.reference.formats import F32, F64
from flymono.reference.layer_sizes import LayerSizes
from flymono.reference.planted_layer import launches_of
from flymono.reference.verdict import Judge

from .layer_bench import FULL, TABLES, compare, ffn_bench


def sizes() -> LayerSizes:
    return LayerSizes.of(FULL, 4)


def test_the_lowest_id_wins_a_tie() -> None:
    x = torch.zeros(1, 384)
    assert router.select(x, torch.zeros(384), sizes(), False).ids.tolist() == [[0, 1, 2, 3, 4, 5]]
    x[0, [65, 130, 1]] = 2.0  # modulo 64: 1, 2, 1
    ids = router.select(x, torch.zeros(384), sizes(), False).ids
    assert ids.tolist() == [[1, 65, 130, 0, 2, 3]]


@pytest.mark.parametrize("exact", [False, True])
def test_nan_never_wins(exact: bool) -> None:
    x = Draws(0, "nan").normal(3, 384).to(F32)
    clean = router.select(x, torch.zeros(384), sizes(), exact)
    x[0, int(clean.ids[0, 0])] = torch.nan
    x[1, 200:] = torch.nan
    x[2] = torch.nan
    routing = router.select(x, torch.zeros(384), sizes(), exact)
    assert int(clean.ids[0, 0]) not in routing.ids[0].tolist()
    assert bool((routing.ids[1] < 200).all())
    assert routing.ids[2].tolist() == [0, 1, 2, 3, 4, 5]
    assert bool((routing.weights[2] == 0).all()) and bool(torch.isfinite(routing.weights).all())


def test_a_nan_bias_never_wins_either() -> None:
    bias = torch.zeros(384)
    bias[7] = torch.nan
    x = torch.zeros(1, 384)
    x[0, 7] = 9.0
    assert 7 not in router.select(x, bias, sizes(), False).ids.tolist()[0]


def test_weights_are_renormalised_and_scaled() -> None:
    x = Draws(1, "weights").normal(5, 384).to(F32)
    routing = router.select(x, torch.zeros(384), sizes(), False)
    assert torch.allclose(routing.weights.sum(-1), torch.full((5,), 1.5))
    everything_small = router.select(torch.full((1, 384), -200.0), torch.zeros(384), sizes(), False)
    assert bool((everything_small.weights == 0).all())


def test_scores_of_both_forms_lie_within_the_bounds() -> None:
    bounds = compare(ffn_bench(), launches_of(None, ffn_bench())).bounds[0]  # type: ignore[union-attr]
    x = torch.linspace(-40.0, 40.0, 128 * 64, dtype=F64).to(F32).reshape(64, 128)
    got = bounds.scores_of(Value(x.to(F64), torch.zeros(64, 128, dtype=F64)))  # type: ignore[union-attr]
    for value in (router.score(x).to(F64), router.score_exact(x.to(F64))):
        assert bool(((got.lo <= value) & (value <= got.hi)).all())
    middle = x.abs() < 5
    assert float((got.hi - got.lo)[middle].max()) < 3e-6


def judge() -> Judge:
    return Judge(TABLES["ffn"], "route")


def test_a_flip_passes_only_within_the_gap() -> None:
    middle = torch.tensor([[3.0, 2.0, 2.0 - 1e-6, 1.0]], dtype=F64)
    near = torch.tensor([[0, 2, 1]])
    assert judge().ranked("ids", near, middle - 1e-6, middle + 1e-6).ok
    verdict = judge().ranked("ids", near, middle - 1e-7, middle + 1e-7)
    assert not verdict.ok and verdict.where.startswith("[0, 1] got 2, reference 1")
    assert verdict.worst == pytest.approx(1e-6)
    assert judge().ranked("ids", torch.tensor([[0, 1, 2]]), middle, middle).ok


@pytest.mark.parametrize("ids", [[0, 0, 1], [0, 1, 4], [-1, 0, 1], [1, 0, 2]])
def test_lists_that_are_no_selection_are_wrong(ids: list[int]) -> None:
    value = torch.tensor([[3.0, 2.0, 1.0, 0.0]], dtype=F64)
    assert not judge().ranked("ids", torch.tensor([ids]), value, value).ok


def test_a_nan_score_that_was_chosen_is_wrong() -> None:
    value = torch.tensor([[torch.nan, 2.0, 1.0, 0.0]], dtype=F64)
    assert not judge().ranked("ids", torch.tensor([[0, 1, 2]]), value, value).ok
    assert judge().ranked("ids", torch.tensor([[1, 2, 3]]), value, value).ok
    nothing = torch.full((1, 4), torch.nan, dtype=F64)
    assert judge().ranked("ids", torch.tensor([[0, 1, 2]]), nothing, nothing).ok
