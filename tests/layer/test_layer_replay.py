"""Launches again and again on one group: the same bits, whatever runs between and however ranks drift."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from flymono.runtime.devices.emulator import EmulatorDevice
from flymono.runtime.run.layer_options import LayerOptions
from flymono.specs import load


@pytest.fixture(scope="module")
def bench(request: pytest.FixtureRequest) -> ModuleType:
    path = Path(request.config.rootpath) / "bench" / "replay.py"
    spec = importlib.util.spec_from_file_location("flymono_bench_replay", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def device() -> EmulatorDevice:
    return EmulatorDevice(load().arch["gfx950"], {"seed": 0, "order": "random"})


@pytest.fixture(scope="module")
def tracks(bench: ModuleType, device: EmulatorDevice) -> Iterator[list]:
    """K1 and K2 in one queue a rank, an FFN launch on the same scratch, and the layer at another width."""
    yield bench.tracks_of(LayerOptions(arch="gfx950", tp=2, rows=2, layer=3), True, device)


@pytest.mark.slow
def test_replays_with_other_launches_between_keep_every_bit(
    bench: ModuleType, device: EmulatorDevice, tracks: list
) -> None:
    before = [t.group.at(0) for t in tracks]
    said: list[str] = []
    assert bench.replay(tracks, device, 3, said.append) == []
    after = [t.group.at(0) for t in tracks]
    assert len(set(before)) == len(set(after)) == 1, "one epoch for all launches of a rank"
    assert after[0] - before[0] == 3 * len(tracks)
    assert [len(t.kernels) for t in tracks] == [2, 1, 2]


@pytest.mark.slow
def test_a_changed_input_changes_bits(bench: ModuleType, device: EmulatorDevice, tracks: list) -> None:
    """The detector can fail: a weight byte that differs is seen in the digests."""
    first = tracks[1].bits(device)
    weight = tracks[1].kernels[0].given[0]["sgu"].view(-1)
    weight[:4096] ^= 1
    assert tracks[1].bits(device) != first
    weight[:4096] ^= 1
    assert tracks[1].bits(device) == first
