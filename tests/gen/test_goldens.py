"""Goldens of a small matrix: modules, plans and figures. `make goldens` rewrites them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from flymono.gen import goldens
from flymono.gen.api import build
from flymono.runtime.plan import BuildKey
from flymono.specs import Specs, load

Golden = Callable[[str, str], None]
KINDS = ("py", "plan.json", "figures.json", "outputs.json")


@pytest.fixture(scope="module")
def specs() -> Specs:
    return load()


@pytest.mark.parametrize("name", goldens.MATRIX)
def test_the_generated_module_is_the_golden_one(name: str, specs: Specs, golden: Golden) -> None:
    golden(f"builds/{name}.py", goldens.source_text(specs, name))


@pytest.mark.parametrize("name", goldens.MATRIX)
def test_the_plan_is_the_golden_one(name: str, specs: Specs, golden: Golden) -> None:
    golden(f"builds/{name}.plan.json", goldens.plan_text(specs, name))


@pytest.mark.parametrize("name", goldens.MATRIX)
def test_the_figures_are_the_golden_ones(name: str, specs: Specs, golden: Golden, k1_store: Path) -> None:
    artefact = build(BuildKey.parse(name), specs, k1_store)

    golden(f"builds/{name}.figures.json", goldens.figures_text(artefact))


@pytest.mark.parametrize("name", goldens.DEMO)
def test_the_outputs_are_the_golden_ones(name: str, specs: Specs, golden: Golden, k1_store: Path) -> None:
    """Seeded inputs on the emulator, in check mode: bits may only change on purpose."""
    pytest.importorskip("flymono.emulator._core")
    from flymono.runtime.devices.emulator import EmulatorDevice
    from flymono.runtime.run import k1
    from flymono.runtime.run.command import Options, prepare

    key = BuildKey.parse(name)
    ready = prepare(Options(arch=key.arch, tp=key.tp, rows=key.rows), specs)
    device = EmulatorDevice(specs.arch[key.arch], {"seed": 0})
    given = k1.arguments_of(ready.plan, ready.case, ready.weights)
    done = k1.launch(ready.plan, build(key, specs, k1_store), device, given)
    outputs = {
        n: t.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        for n, t in done.outputs(ready.plan).items()
    }

    golden(f"builds/{name}.outputs.json", goldens.outputs_text(outputs))


def test_no_golden_is_left_over(repo: Path) -> None:
    folder = repo / "tests" / "golden" / "builds"
    allowed = {f"{name}.{kind}" for name in goldens.MATRIX for kind in KINDS}

    assert {p.name for p in folder.iterdir()} <= allowed
    assert sum(p.stat().st_size for p in folder.iterdir()) < 500_000, "goldens stay small"
