"""The shipped matrix: every launch of every layer at the rows that vLLM captures, all of them with a plan."""

from __future__ import annotations

import pytest

from flymono.gen.units import shipped
from flymono.runtime.plan import BuildKey, key_reasons, width_report
from flymono.runtime.plan.layer import layer_keys
from flymono.specs import Specs, load

MODEL = "deepseek_v41_flash"
DRAFTS = 5
REQUESTS = 8


@pytest.fixture(scope="module")
def specs() -> Specs:
    return load()


@pytest.fixture(scope="module")
def matrix(specs: Specs) -> frozenset[BuildKey]:
    return frozenset(shipped(specs))


def _captured(limit: int) -> tuple[int, ...]:
    """Rows of a target step: a token with its drafts for each request (attention.md 1.5), or none."""
    plain = {1, 2, 4, *range(8, limit + 1, 8)}
    return tuple(sorted(plain | {*range(1 + DRAFTS, limit + 1, 1 + DRAFTS)}))


def _steps(specs: Specs, arch: str) -> list[tuple[int, int, bool]]:
    """(TP size, rows, whether a draft layer's) of an arch."""
    limit = width_report(specs.model[MODEL], specs.arch[arch]).limit.rows
    drafts = range(DRAFTS, DRAFTS * REQUESTS + 1, DRAFTS)
    rows = [(n, False) for n in _captured(limit)] + [(n, True) for n in drafts]
    return [(tp, *of) for tp in specs.arch[arch].tp for of in rows]


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_every_layer_is_shipped(arch: str, specs: Specs, matrix: frozenset[BuildKey]) -> None:
    model = specs.model[MODEL]
    top = model.topology
    layers = {False: range(top.layers), True: range(top.layers, len(top.compress_ratios))}
    launched = {
        key
        for tp, rows, draft in _steps(specs, arch)
        for n in layers[draft]
        for key in layer_keys(model, specs.arch[arch], tp, rows, n)
    }
    alone = {BuildKey("ffn", arch, tp, rows, draft=draft) for tp, rows, draft in _steps(specs, arch)}
    here = {k for k in matrix if k.arch == arch}

    assert launched | alone <= here
    assert {k for k in here if k.kind != "k1"} == {k for k in launched | alone if k.kind != "k1"}


@pytest.mark.parametrize("part", range(8))
def test_every_shipped_build_has_a_plan(part: int, specs: Specs, matrix: frozenset[BuildKey]) -> None:
    listed = sorted(matrix)
    assert [key.id for key in listed[part::8] if key_reasons(specs, key)] == []
    assert len(matrix) == 200 + 2 * 212  # gfx942 TP4; gfx950 TP2 and TP4
