"""The shipped matrix: every launch of every layer at the rows that vLLM captures, all of them with a plan."""

from __future__ import annotations

import pytest

from flymono.gen.units import shipped
from flymono.runtime.plan import BuildKey, key_reasons, width_report
from flymono.runtime.plan.layer import layer_keys
from flymono.specs import Specs, load

MODEL = "deepseek_v41_flash"
CAPTURED = (6, 12, 18, 24, 36, 42, 48)  # with five drafts a request (attention.md 1.5)


@pytest.fixture(scope="module")
def specs() -> Specs:
    return load()


@pytest.fixture(scope="module")
def matrix(specs: Specs) -> frozenset[BuildKey]:
    return frozenset(shipped(specs))


def _steps(specs: Specs, arch: str) -> list[tuple[int, int]]:
    """(TP size, rows) of an arch."""
    limit = width_report(specs.model[MODEL], specs.arch[arch]).limit.rows
    return [(tp, rows) for tp in specs.arch[arch].tp for rows in CAPTURED if rows <= limit]


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_every_layer_is_shipped(arch: str, specs: Specs, matrix: frozenset[BuildKey]) -> None:
    model = specs.model[MODEL]
    layers = range(len(model.topology.compress_ratios))
    steps = _steps(specs, arch)
    launched = {k for s in steps for n in layers for k in layer_keys(model, specs.arch[arch], *s, n)}
    alone = {BuildKey("ffn", arch, *step, draft=draft) for step in steps for draft in (False, True)}
    here = {k for k in matrix if k.arch == arch}

    assert launched | alone <= here
    assert {k for k in here if k.kind != "k1"} == {k for k in launched | alone if k.kind != "k1"}


def test_every_shipped_build_has_a_plan(specs: Specs, matrix: frozenset[BuildKey]) -> None:
    assert [key.id for key in matrix if key_reasons(specs, key)] == []
    assert len(matrix) == 320
