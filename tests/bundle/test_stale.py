"""A bundle of other specs, or of a planner that lays things out differently, is refused by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flymono.runtime.bundle import Bundle, BundleCode, BundleError, host_digest
from flymono.runtime.plan import BuildKey, KernelPlan, plan_of
from flymono.runtime.vllm.resources import BundleKernels
from flymono.specs import Specs, load

from .conftest import COMMAND, IDS

K1 = IDS[0]


@pytest.fixture(scope="module")
def plan(specs: Specs) -> KernelPlan:
    return plan_of(specs, BuildKey.parse(K1))


def findings(error: pytest.ExceptionInfo[BundleError]) -> list[tuple[BundleCode, str]]:
    assert {f.fix for f in error.value.findings} == {COMMAND}
    return [(f.code, f.message) for f in error.value.findings]


def test_what_was_just_made_is_current(bundle: Bundle, specs: Specs, plan: KernelPlan) -> None:
    bundle.check(specs)
    bundle.check_specs(specs)
    bundle.check_plan(plan)


def test_other_specs(bundle: Bundle) -> None:
    other = load(overrides={"gfx942.title": "another", "deepseek_v41_flash.rms_eps": 1.0e-6})
    for use in (bundle.check_specs, bundle.check):
        with pytest.raises(BundleError) as error:
            use(other)
        found = findings(error)
        assert [code for code, _ in found] == [BundleCode.STALE_SPEC] * 2
        assert "arch/gfx942" in found[0][1]
        assert "model/deepseek_v41_flash" in found[1][1]


def test_a_spec_of_another_gpu_does_not_matter(bundle: Bundle) -> None:
    bundle.check_specs(load(overrides={"gfx950.title": "another"}))


def _moved(plan: KernelPlan) -> KernelPlan:
    first, *rest = plan.scratch.regions
    regions = (replace(first, offset=first.offset + 256), *rest)
    return replace(plan, scratch=replace(plan.scratch, regions=regions))


def _argument(plan: KernelPlan, **changed: Any) -> KernelPlan:
    first, *rest = plan.abi.arguments
    return replace(plan, abi=replace(plan.abi, arguments=(replace(first, **changed), *rest)))


def _shorter(plan: KernelPlan) -> KernelPlan:
    return replace(plan, abi=replace(plan.abi, arguments=plan.abi.arguments[:-1]))


STALE = {
    "argument-name": (lambda p: _argument(p, name="other"), "the plan's is other"),
    "argument-shape": (lambda p: _argument(p, shape=(1,)), "has shape"),
    "argument-dtype": (lambda p: _argument(p, dtype="f64"), "the plan's has f64"),
    "argument-offset": (lambda p: _argument(p, offset=8), "has offset 0, the plan's has 8"),
    "an argument less": (_shorter, "the plan's is none"),
    "kernarg": (lambda p: replace(p, abi=replace(p.abi, kernarg_bytes=8)), "take"),
    "a region moved": (_moved, "memory layout"),
    "grid": (lambda p: replace(p, grid=128), "memory layout"),
    "epoch words": (lambda p: replace(p, epoch=replace(p.epoch, marks=8)), "memory layout"),
}


@pytest.mark.parametrize("name", STALE)
def test_a_plan_that_differs(bundle: Bundle, plan: KernelPlan, name: str) -> None:
    change, text = STALE[name]
    with pytest.raises(BundleError) as error:
        bundle.check_plan(change(plan))
    ((code, message),) = findings(error)
    assert code is BundleCode.STALE_PLAN
    assert text in message
    assert error.value.findings[0].where.endswith(K1)


def test_words_do_not_make_a_bundle_stale(bundle: Bundle, plan: KernelPlan) -> None:
    other = _argument(replace(plan, grid_why="another reason"), doc="other words")
    bundle.check_plan(other)
    assert host_digest(other) == host_digest(plan)


def test_stale_builds_come_all_at_once(bundle: Bundle, specs: Specs, monkeypatch: pytest.MonkeyPatch) -> None:
    from flymono.runtime.bundle import opened

    monkeypatch.setattr(opened, "plan_of", lambda specs, key: _argument(plan_of(specs, key), name="other"))
    with pytest.raises(BundleError) as error:
        bundle.check(specs)
    assert [f.where.rpartition("/")[2] for f in error.value.findings] == list(IDS)


def test_a_server_loads_no_build_of_another_plan(bundle: Bundle, plan: KernelPlan) -> None:
    """The same specs, planned otherwise: what a newer flymono beside an older bundle would do."""
    kernels = BundleKernels(bundle)
    assert kernels.code(plan)[1] == plan.key.symbol
    with pytest.raises(BundleError) as error:
        kernels.code(_moved(plan))
    assert [code for code, _ in findings(error)] == [BundleCode.STALE_PLAN]
