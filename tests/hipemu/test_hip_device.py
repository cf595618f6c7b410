"""`flymono run --device hip`: judged as on the emulator, with its bits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from benches import specs
from torch_on_cpu import CpuTorch

from flymono.runtime.devices import hip
from flymono.runtime.devices.gpu import GpuError
from flymono.runtime.devices.gpus import HipDevice
from flymono.runtime.run.command import Options, run
from flymono.runtime.run.ffn_command import run_ffn
from flymono.runtime.run.layer_command import run_layers
from flymono.runtime.run.layer_options import LayerOptions
from flymono.runtime.run.result import RunResult
from flymono.specs import UserError


@pytest.fixture(autouse=True)
def on_cpu(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Torch has no GPU here."""
    monkeypatch.setattr(hip, "GpuTorch", CpuTorch)
    yield


def same(found: RunResult, want: RunResult) -> None:
    assert found.ok and found.device == f"{found.ranks} x emulated gfx950 (gfx950)"
    assert found.digests == want.digests and found.ranks == want.ranks
    assert [(v.name, v.worst) for v in found.verdicts] == [(v.name, v.worst) for v in want.verdicts]
    assert found.counters.instructions == 0 and want.counters.instructions > 0


def test_k1_is_right_and_has_the_emulators_bits() -> None:
    found, want = (run(Options(arch="gfx950", tp=2, rows=1, device=d), specs()) for d in ("hip", "emulator"))
    same(found, want)


@pytest.mark.slow
def test_a_layer_is_right_on_all_ranks_and_has_the_emulators_bits() -> None:
    how = {"arch": "gfx950", "tp": 2, "rows": 1, "layer": 2}
    (found,), (want,) = (
        tuple(run_layers(LayerOptions(device=d, **how), specs())) for d in ("hip", "emulator")
    )
    for one, other in zip(found.results, want.results, strict=True):
        same(one, other)


@pytest.mark.slow
def test_an_ffn_launch_too() -> None:
    (found,), (want,) = (
        tuple(run_ffn(LayerOptions(arch="gfx950", tp=2, rows=1, draft=True, device=d), specs()))
        for d in ("hip", "emulator")
    )
    same(found.results[0], want.results[0])


def test_gpus_that_are_not_there_or_of_another_arch() -> None:
    with pytest.raises(GpuError, match="TP4 needs 4 GPUs in this process, GPU 2 is not to be had"):
        HipDevice.of(specs(), "gfx950", 4)
    with pytest.raises(GpuError, match="GPU 0 is gfx950, not gfx942"):
        HipDevice.of(specs(), "gfx942", 2)


def test_options_of_the_emulator_beside_a_gpu() -> None:
    with pytest.raises(UserError) as caught:
        run(Options(arch="gfx950", rows=1, device="hip", mfma="fma", check=False), specs())
    assert "--mfma, --check" in str(caught.value) and caught.value.exit_code == 2
    with pytest.raises(UserError, match="there is no device 'cuda'"):
        run(Options(arch="gfx950", rows=1, device="cuda"), specs())
