"""Each hand-off between workgroups and ranks, taken out alone, goes red: other bits, a finding or a fault.

The list of schedules is fixed; a site is red if one of them shows it. Sites come from the plan, so a new one
is tried without a change here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from benches import Bench, bench, specs
from hand_offs import Code, Seen, artefact_of, code_of, observe, schedules, switch, with_holds, without

from flymono.gen.compiler import Compiler
from flymono.gen.store import Store
from flymono.runtime.plan import BuildKey, KernelPlan, plan_of

# a build and the contexts of its requests: every chunk of keys is live
GFX942 = (
    ("dsv41_k1-gfx942-tp4-s1-r2", ()),
    ("dsv41_k2-gfx942-tp4-s1-r2", (4000,)),
    ("dsv41_ffn-gfx942-tp4-s1", ()),
)
GFX950 = (
    ("dsv41_k1-gfx950-tp2-s1-r2", ()),
    ("dsv41_k2-gfx950-tp2-s1-r2-index", (4000,)),
    ("dsv41_ffn-gfx950-tp2-s1", ()),
)  # fmt: skip
CONTEXTS = dict(GFX942 + GFX950)
AWAITED_WHOLE = ("wo_b", "push", "slice", "router", "shared", "ug")
"""Stages of which every task must be done before any workgroup can push its last results."""


@cache
def plan(build: str) -> KernelPlan:
    return plan_of(specs(), BuildKey.parse(build))


def _is_implied(one: KernelPlan, name: str) -> bool:
    """Whether other hand-offs make this one good.

    A mark says that a workgroup has read the epoch, and so it has once it has done a task that all wait for.
    In other builds some workgroups have no such task.
    """
    awaited = [s for s in one.stages if s.name in AWAITED_WHOLE]
    return name == "epoch_marks" and all(any(s.tasks_of(w) for s in awaited) for w in range(one.grid))


def _sites(builds: tuple[tuple[str, tuple[int, ...]], ...], implied: bool = False) -> list[tuple[str, str]]:
    sites = [(build, site.name) for build, _ in builds for site in plan(build).sites]
    return [(build, name) for build, name in sites if _is_implied(plan(build), name) == implied]


@pytest.fixture(scope="module")
def ready(store: Store, compiler: Compiler) -> Callable[[str], tuple[Bench, Code, Seen]]:
    """A build whose hand-offs can be taken out, and what it shows with all of them in place."""

    @cache
    def make(build: str) -> tuple[Bench, Code, Seen]:
        one, changed = bench(build, CONTEXTS[build]), plan(build)
        changed = with_holds(changed, {s.name: switch(s) for s in changed.sites})
        code = code_of(artefact_of(changed, store, compiler))
        right = observe(one, code)
        assert not right.findings
        return one, code, right

    return make


Ready = Callable[[str], tuple[Bench, Code, Seen]]


def _shown_by(ready: Ready, build: str, name: str, only: str = "") -> str:
    """The first schedule (or `only` this one) that shows that the hand-off is gone, or nothing."""
    one, code, right = ready(build)
    site = one.plan.site(name)
    broken = without(code, site)
    for schedule, how in schedules(one.plan, site):
        if only in ("", schedule) and observe(one, broken, **how) != right:
            return schedule
    return ""


@pytest.mark.parametrize(("build", "name"), _sites(GFX942))
def test_a_removed_hand_off_goes_red(ready: Ready, build: str, name: str) -> None:
    assert _shown_by(ready, build, name)


@pytest.mark.slow
@pytest.mark.parametrize(("build", "name"), _sites(GFX950))
def test_a_removed_hand_off_goes_red_there_too(ready: Ready, build: str, name: str) -> None:
    assert _shown_by(ready, build, name)


@pytest.mark.slow
@pytest.mark.parametrize(("build", "name"), _sites(GFX942 + GFX950, implied=True))
def test_a_hand_off_that_others_imply(ready: Ready, build: str, name: str) -> None:
    """Green under the schedule that shows it in the FFN launch of gfx942, where some workgroups have no task
    that all wait for. Red: this build has come to need it."""
    assert not _shown_by(ready, build, name, "last producer starved")


def test_the_marks_are_needed_somewhere() -> None:
    assert ("dsv41_ffn-gfx942-tp4-s1", "epoch_marks") in _sites(GFX942)


def test_a_site_without_hold_does_not_wait(store: Store, compiler: Compiler) -> None:
    """The hold 0 in the plan does what the changed literal does."""
    build = GFX942[0][0]
    one, site = bench(build), plan(build).sites[0]
    schedule, shown = dict(schedules(one.plan, site))["first producer starved"], []
    for holds in ({}, {site.name: 0}):
        code = code_of(artefact_of(with_holds(one.plan, holds), store, compiler))
        shown.append(observe(one, code, **schedule))
    assert not shown[0].findings
    assert shown[1] != shown[0]
