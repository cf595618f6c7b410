"""The host bench: what it measures is what a server would launch, and its figures are there."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def bench(request: pytest.FixtureRequest) -> ModuleType:
    path = Path(request.config.rootpath) / "bench" / "host.py"
    spec = importlib.util.spec_from_file_location("flymono_bench_host", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("arch", "tp", "layer", "launches"), [("gfx950", 2, 3, 2), ("gfx942", 4, 21, 2)])
def test_figures_of_a_layer(bench: ModuleType, arch: str, tp: int, layer: int, launches: int) -> None:
    found = bench.measure(arch, tp, layer, 6, 2)
    assert found["launches"] == launches
    assert set(found["microseconds"]) == {
        "runner", "runner, caller's outputs", "empty launches", "addresses and outputs alone",
    }  # fmt: skip
    assert all(v > 0 for v in found["microseconds"].values())


def test_an_index_layer_is_measured_with_its_selection(bench: ModuleType) -> None:
    """gfx942 makes its keys in a launch of its own."""
    assert bench.measure("gfx942", 4, 2, 6, 1)["launches"] == 3
