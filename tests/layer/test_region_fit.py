"""A launch on a scratch that was laid out for another build is refused before anything runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from benches import specs

from flymono.runtime.plan import BuildKey, KernelPlan, Unsupported, plan_of
from flymono.runtime.plan.scratch import Declared, Scratch, lay_out
from flymono.runtime.run.group import Group, Kernel

NOTHING: Any = None  # neither a device nor code: a refusal needs none


def _plan(build: str) -> KernelPlan:
    return plan_of(specs(), BuildKey.parse(build))


def _declared(layout: Scratch, halved: str) -> list[Declared]:
    """The regions of a layout, one of them with half its bytes."""
    names = Declared.__dataclass_fields__
    regions = [Declared(**{n: getattr(r, n) for n in names}) for r in layout.regions]
    return [replace(r, bytes=r.bytes // 2) if r.name == halved else r for r in regions]


def _refusal(group: Group, plan: KernelPlan) -> list[str]:
    with pytest.raises(Unsupported) as refused:
        group.launch(NOTHING, [Kernel(plan, NOTHING, ({},) * plan.key.tp)])
    return [reason.text for reason in refused.value.reasons]


@pytest.mark.parametrize("build", ["dsv41_k2-gfx950-tp2-s6-r0-draft", "dsv41_k2-gfx942-tp4-s6-r0-draft"])
def test_flags_of_one_group_on_a_scratch_for_two(build: str) -> None:
    """A draft build with one FP4 group a task has twice the flags that a layout for two groups holds."""
    plan = _plan(build)
    short = lay_out(_declared(plan.scratch, "ugf"))
    group = replace(Group.of([plan], plan.key.tp), layout=short)
    need, held = plan.scratch["ugf"].bytes, short["ugf"].bytes
    (flags,) = (text for text in _refusal(group, plan) if text.startswith("ugf:"))
    assert f"needs {need} bytes, the layout has {held}; would write" in flags
    behind = min((r for r in short.regions if r.offset > short["ugf"].offset), key=lambda r: r.offset)
    overrun = short["ugf"].offset + need - behind.offset
    assert f"would write {min(overrun, behind.bytes)} of {behind.bytes} bytes of {behind.name}" in flags


def test_a_draft_build_on_the_targets_scratch() -> None:
    target, draft = _plan("dsv41_k2-gfx950-tp2-s6-r2"), _plan("dsv41_k2-gfx950-tp2-s6-r0-draft")
    assert _refusal(Group.of([target], 2), draft)
    assert _refusal(Group.of([draft], 2), target)


def test_another_width() -> None:
    one, six = _plan("dsv41_k2-gfx942-tp4-s1-r2"), _plan("dsv41_k2-gfx942-tp4-s6-r2")
    assert len(_refusal(Group.of([one], 4), six)) > 10
