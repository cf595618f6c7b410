"""Valid steps have no finding, whatever their rows, layer, contexts and padding; nor has stale data that no
kernel reads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from flymono.runtime.plan import plan_ffn
from flymono.runtime.plan.keys import BuildKey
from flymono.runtime.step import check_step, step_findings
from flymono.specs import Specs

from .conftest import Step, step_of

SHAPES = (("gfx942", 4), ("gfx950", 2), ("gfx950", 4))
LAYERS = (0, 1, 2, 3, 14, 20, 21, 39, 40, 42)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(SHAPES), st.integers(1, 9), st.sampled_from(LAYERS), st.integers(0, 3), st.data())
def test_valid_steps_have_no_finding(
    specs: Specs, shape: tuple[str, int], rows: int, layer: int, seed: int, data: Any
) -> None:
    padded = data.draw(st.integers(0, rows - 1))
    contexts = data.draw(st.sampled_from([(), (1,), (130, 513), (4000, 2, 100)]))
    step = step_of(specs, *shape, rows, layer, seed=seed, padded=padded, contexts=contexts)
    assert step_findings(step.plan, step.arguments) == ()
    for plan in step.plan.plans:
        assert step_findings(plan, step.arguments) == ()


def test_a_long_context_and_the_widest_step(specs: Specs) -> None:
    step = step_of(specs, "gfx942", 4, 42, 3, contexts=(70_000, 1))
    check_step(step.plan, step.arguments)


def test_an_ffn_launch_needs_its_ranks_alone(specs: Specs, selecting: Step) -> None:
    plan = plan_ffn(specs, BuildKey("ffn", "gfx942", 4, 6))
    names = ("rank", "peers", "sym")
    check_step(plan, {n: selecting.arguments[n] for n in names})


def stale(tensor: Tensor, mask: Tensor, value: int) -> Tensor:
    """`tensor` with `value` where `mask` holds."""
    return torch.where(mask, torch.full_like(tensor, value), tensor)


@pytest.mark.parametrize("name", ["selecting", "indexed", "inside"])
def test_what_kernels_mask_may_hold_anything(name: str, request: pytest.FixtureRequest) -> None:
    step: Step = request.getfixturevalue(name)
    given, rows = step.copy(), step.plan.plans[0].key.rows
    slot, pos, lens = (given[n] for n in ("slot", "pos", "swa_lens"))
    assert isinstance(slot, Tensor) and isinstance(pos, Tensor) and isinstance(lens, Tensor)
    live = slot >= 0
    assert not live.all()
    visible = torch.where(live, (pos + 1) // step.plan.kind.ratio, 0)
    beyond = torch.arange(512)[None] >= visible[:, None]
    given["topk"] = stale(given["topk"], beyond, 2**30)  # type: ignore[arg-type]
    after = torch.arange(128)[None] >= (lens * live)[:, None]
    given["swa_idx"] = stale(given["swa_idx"], after, -(2**31))  # type: ignore[arg-type]
    given["t2r"] = stale(given["t2r"], ~live, -77)  # type: ignore[arg-type]
    given["swa_lens"] = stale(lens, ~live, 10**6)
    klen = given["klen"]
    assert isinstance(klen, Tensor)
    klen[rows:] = -1  # compressed keys of a row: no launch reads them
    assert step_findings(step.plan, given) == ()
    for plan in step.plan.plans:
        assert step_findings(plan, given) == ()


def test_keys_behind_the_last_chunk_are_not_read(selecting: Step) -> None:
    plan, given = selecting.launch("k2"), selecting.copy()
    kt, klen = given["kt"], given["klen"]
    assert isinstance(kt, Tensor) and isinstance(klen, Tensor)
    chunk = plan.attention.split.chunk  # type: ignore[attr-defined]
    row = next(r for r in range(12) if 0 < int(klen[r]) <= 640 - chunk)
    kt[row, -(-int(klen[row]) // chunk) * chunk :] = 2**30
    kt[11] = 2**30  # a padded row
    assert step_findings(plan, given) == ()


def test_nothing_is_changed(selecting: Step) -> None:
    before = selecting.copy()
    step_findings(selecting.plan, selecting.arguments)
    assert all(
        torch.equal(v, before[n]) if isinstance(v, Tensor) and not v.is_floating_point() else True  # type: ignore[arg-type]
        for n, v in selecting.arguments.items()
    )


def test_a_cache_view_as_the_host_has_it(selecting: Step) -> None:
    """[blocks, states, 584] strided over larger pages, with the stride of dimension 0."""
    given = selecting.copy()
    swa, stride, block = given["swa"], given["swa_stride"], given["swa_block"]
    assert isinstance(swa, Tensor) and isinstance(stride, int) and isinstance(block, int)
    given["swa"] = torch.as_strided(swa, (swa.numel() // stride, block, 584), (stride, 584, 1))
    assert step_findings(selecting.plan, given) == ()
