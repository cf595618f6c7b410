"""The summation order that budgets count is the one that the plan places."""

from __future__ import annotations

from math import prod

import pytest

from flymono.reference.regions import REGIONS
from flymono.reference.sizes import K1Sizes, SumOrder
from flymono.runtime.plan import BuildKey, K1Plan, plan_k1
from flymono.specs import Specs

BUILDS = ["dsv41_k1-gfx942-tp4-s6-r2", "dsv41_k1-gfx950-tp2-s6-r2", "dsv41_k1-gfx950-tp4-s48-r1-index"]


@pytest.fixture(params=BUILDS)
def plan(request: pytest.FixtureRequest, specs: Specs) -> K1Plan:
    made = plan_k1(specs, BuildKey.parse(request.param))
    assert isinstance(made, K1Plan)
    return made


def test_slices_waves_and_halves(plan: K1Plan, specs: Specs) -> None:
    sizes = K1Sizes.of(specs.model["deepseek_v41_flash"], plan.key.tp)
    order = SumOrder(gemv=plan.strategy.gemv)
    stages = {stage.name: stage for stage in plan.stages}
    assert stages["slice"].tasks == order.slices(sizes)
    assert stages["wqkv"].tasks == order.k_halves * sizes.qkv_rows // 16
    assert stages["wq_b"].tasks == sizes.q_rows // 16
    assert plan.waves == order.waves


def test_regions_hold_what_the_comparison_unpacks(plan: K1Plan, specs: Specs) -> None:
    sizes, order, rows = K1Sizes.of(specs.model["deepseek_v41_flash"], plan.key.tp), SumOrder(), plan.key.rows
    words = {
        "lin": rows * sizes.hidden,
        "pmix": order.slices(sizes) * rows * (sizes.mix + 1) * 2,
        "x8": rows * sizes.hidden // 4,
        "x8s": rows * sizes.hidden // 32,
        "xrdy": rows * 4,
        "qkvp": order.k_halves * rows * sizes.qkv_rows * 2,
        "qx8": rows * sizes.q_rank // 4,
        "qx8s": rows * sizes.q_rank // 32,
        "qrdy": rows * 2,
    }
    assert set(words) == set(REGIONS)
    for name, count in words.items():
        assert plan.scratch[name].bytes == 4 * count, name


def test_outputs_have_the_abis_shapes(plan: K1Plan, specs: Specs) -> None:
    sizes, rows = K1Sizes.of(specs.model["deepseek_v41_flash"], plan.key.tp), plan.key.rows
    elements = {
        "res_out": rows * sizes.streams * sizes.hidden,
        "comb_out": rows * sizes.streams**2,
        "q": rows * sizes.q_rows,
        "kt": rows * sizes.keys,
        "klen": 2 * rows,
    }
    for name, count in elements.items():
        shape = plan.abi[name].shape
        assert shape is not None and prod(int(n) for n in shape) == count, name
