"""A right launch passes every budget in every kind of build, and every budget of the spec is used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from flymono.reference.bounds import Value
from flymono.reference.compare import Launch, compare_end_to_end, compare_stages
from flymono.reference.k1 import K1
from flymono.reference.regions import REGIONS, pack, unpack
from flymono.reference.verdict import Judge, Verdict, steps_outside
from flymono.specs.schema import NumericsSpec

Bench = Callable[..., Any]

BUILDS = [
    {"ratio": 0, "window": 128},
    {"ratio": 0, "window": 192, "fold": False},
    {"ratio": 0, "fold": False, "first": True},
    {"ratio": 1, "index": True},
    {"ratio": 1, "fp8": "fnuz", "gemv": "fp8_mfma_fma"},
    {"ratio": 2, "fold": False, "index": True, "fp8": "fnuz", "gemv": "fp8_mfma_fma"},
    {"ratio": 2, "rows": 1},
    {"ratio": 2, "rows": 17, "tp": 4},
]


def failures(verdicts: list[Verdict]) -> list[str]:
    return [f"{v.name}: {v.worst} > {v.budget} at {v.where}" for v in verdicts if not v.ok]


@pytest.mark.parametrize("options", BUILDS, ids=lambda o: "-".join(map(str, o.values())))
@pytest.mark.parametrize("seed", [0, 1])
def test_the_promised_order_passes(bench: Bench, options: dict[str, Any], seed: int) -> None:
    b = bench(**options, seed=seed)
    comparison = b.compare(b.launch())
    assert failures(comparison.stages() + comparison.end_to_end()) == []


def test_every_budget_is_used_and_no_other(bench: Bench, numerics: NumericsSpec) -> None:
    seen = set()
    for index in (False, True):
        b = bench(index=index)
        comparison = b.compare(b.launch())
        seen |= {(v.stage, v.output) for v in comparison.stages() + comparison.end_to_end()}
    assert seen == {(budget.stage, budget.output) for budget in numerics.budgets}


def test_regions_survive_a_round_trip(bench: Bench) -> None:
    b = bench()
    outputs = K1(b.case, b.weights, b.sizes, b.order).run()
    back = unpack(pack(outputs, 9), b.sizes, b.order, b.case.rows, b.case.fp8)
    assert torch.equal(back.lin, outputs.lin) and torch.equal(back.pmix, outputs.pmix)
    assert torch.equal(back.qkvp, outputs.qkvp) and torch.equal(back.x8.data, outputs.x8.data)
    assert torch.equal(back.qx8.codes, outputs.qx8.codes)
    assert bool((back.lin_tags == 9).all()) and bool((back.qrdy[:, 1] == 9).all())


def test_regions_may_be_longer_but_not_shorter(bench: Bench) -> None:
    b = bench()
    launch = b.launch()
    longer = {name: torch.cat([r, torch.zeros(256, dtype=torch.uint8)]) for name, r in launch.regions.items()}
    assert failures(b.compare(replace(launch, regions=longer)).stages()) == []
    with pytest.raises(ValueError, match="cannot hold"):
        b.compare(replace(launch, regions={**launch.regions, "lin": launch.regions["lin"][:-4]})).slice()
    with pytest.raises(KeyError, match="pmix"):
        b.compare(replace(launch, regions={n: launch.regions[n] for n in REGIONS if n != "pmix"})).slice()


def test_functions_and_class_agree(bench: Bench) -> None:
    b = bench()
    launch = b.launch()
    arguments = (b.case, b.weights, b.sizes, b.order, b.numerics, launch)
    assert compare_stages(*arguments) == b.compare(launch).stages()
    assert compare_end_to_end(*arguments) == b.compare(launch).end_to_end()


def test_a_comparison_that_the_spec_does_not_know_is_an_error(numerics: NumericsSpec) -> None:
    zero = torch.zeros(2)
    with pytest.raises(LookupError, match=r"slice\.lost"):
        Judge(numerics, "slice").bits("lost", zero, zero)
    with pytest.raises(LookupError, match="states bits"):
        Judge(numerics, "slice").bound("lin", zero, Value(zero.double(), zero.double()))


def test_verdicts_name_the_worst_element(numerics: NumericsSpec) -> None:
    judge = Judge(numerics, "gate")
    exact, error = torch.zeros(2, 4, dtype=torch.float64), torch.full((2, 4), 0.5, dtype=torch.float64)
    got = torch.zeros(2, 4)
    got[1, 2] = 0.4
    verdict = judge.bound("pre_out", got, Value(exact, error))
    assert verdict.ok and verdict.where.startswith("[1, 2] got 0.4")
    assert verdict.worst == pytest.approx(0.4)
    assert verdict.budget == 0.5
    got[0, 3] = 0.6
    assert not judge.bound("pre_out", got, Value(exact, error)).ok


def test_nan_is_wrong_unless_the_inputs_make_it(numerics: NumericsSpec) -> None:
    judge, value = Judge(numerics, "gate"), torch.zeros(3, dtype=torch.float64)
    nan = torch.full((3,), torch.nan)
    assert not judge.bound("pre_out", nan, Value(value, value + 1e9)).ok
    assert judge.bound("pre_out", nan, Value(nan.double(), nan.double())).ok
    assert not judge.bound("pre_out", value, Value(nan.double(), nan.double())).ok
    norm, none = Judge(numerics, "norm"), torch.zeros(3, dtype=torch.int64)
    assert not norm.rounded("normed", "absolute", nan, value, value, none).ok
    assert norm.rounded("normed", "absolute", nan, nan, nan, none).ok


def test_bits_see_signs_of_zero(numerics: NumericsSpec) -> None:
    judge = Judge(numerics, "slice")
    plus, minus = torch.zeros(4, dtype=torch.bfloat16), -torch.zeros(4, dtype=torch.bfloat16)
    verdict = judge.bits("lin", minus, plus)
    assert not verdict.ok and verdict.worst == 4
    assert verdict.histogram == (("equal", 0), ("different", 4))


def test_steps_outside_count_from_the_near_end() -> None:
    got, low, high = (torch.tensor(v) for v in ([1, 5, 9], [4, 4, 4], [6, 6, 6]))
    assert steps_outside(got, low, high).tolist() == [3, 0, 3]


def test_a_launch_under_another_tag_is_rejected(bench: Bench) -> None:
    b = bench()
    launch = b.launch()
    wrong = [
        v.name for v in b.compare(Launch(launch.outputs, launch.regions, launch.tag + 2)).stages() if not v.ok
    ]
    assert wrong == ["slice.lin_tags", "slice.pmix_tags", "norm.xrdy", "wqkv.qkvp_tags", "qkv.qrdy"]
