"""`flymono run`, `verify` and `trace` with `--device hip`: judged as on the emulator, with its bits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from benches import specs
from torch_on_cpu import CpuTorch

from flymono.cli import main as cli
from flymono.runtime.devices import hip
from flymono.runtime.devices.gpu import GpuError
from flymono.runtime.devices.gpus import HipDevice
from flymono.runtime.plan.points import POINTS
from flymono.runtime.run.command import Options, run
from flymono.runtime.run.layer_command import run_layers
from flymono.runtime.run.layer_options import LayerOptions
from flymono.runtime.run.result import RunResult
from flymono.runtime.run.verify import Wanted, lines_of, report, verify, write
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


def test_a_layer_is_right_on_all_ranks_and_has_the_emulators_bits() -> None:
    how = {"arch": "gfx950", "tp": 2, "rows": 1, "layer": 2}
    (found,), (want,) = (
        tuple(run_layers(LayerOptions(device=d, **how), specs())) for d in ("hip", "emulator")
    )
    for one, other in zip(found.results, want.results, strict=True):
        same(one, other)


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


# ------------------------------------------------------------------ verify, trace


WANTED = Wanted("gfx950", 2, rows=(1,), layers=())


@pytest.mark.slow
def test_verify_writes_a_report_to_send_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["verify", "--arch", "gfx950", "--rows", "1", "--layers", "", "-o", str(tmp_path)])
    said, found = capsys.readouterr().out, json.loads((tmp_path / "report.json").read_text())
    assert end.value.code == 0 and found["ok"] and "right on 2 x emulated gfx950" in said
    assert [one["name"] for one in found["cases"]] == [
        "K1, 1 rows", "FFN launch, 1 rows", "FFN launch of the draft, 1 rows",
    ]  # fmt: skip
    launches = [launch for one in found["cases"] for launch in one["launches"]]
    assert all(launch["bits"] and all(launch["bits"].values()) for launch in launches)
    assert all(len(launch["code"]) == 64 and launch["outputs"] for launch in launches)
    assert found["machine"]["rocm-bindings-hip"] != "-"
    assert "emulator's bits in" in (tmp_path / "report.txt").read_text()


def test_verify_tells_a_wrong_result_and_goes_on_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU that spoils a byte of K1's queries, and one that cannot launch the FFN."""
    launched = HipDevice.launch_ranks

    def spoiling(self: HipDevice, queues: Any) -> Any:
        (queue, *_) = queues
        if any("_ffn" in launch.kernel for launch in queue):
            raise GpuError("hipModuleLaunchKernel: hipErrorOutOfMemory", fix="free some memory")
        counted = launched(self, queues)
        dict(queue[0].arguments)["q"].view(torch.uint8).view(-1)[5] ^= 0x40
        return counted

    monkeypatch.setattr(HipDevice, "launch_ranks", spoiling)
    wanted = replace(WANTED, against=False)
    done = verify(wanted, specs())
    assert [one.ok for one in done] == [False] * 3 and "hipErrorOutOfMemory" in done[1].error
    lines = [line for one in done for line in lines_of(one)]
    assert any("WRONG" in line for line in lines) and any("wq_b q" in line for line in lines)
    found = report(wanted, "a device", done)
    write(tmp_path, found, done)
    assert json.loads((tmp_path / "report.json").read_text())["ok"] is False
    assert "ended with an error" in (tmp_path / "report.txt").read_text()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--arch gfx942", "GPU 0 is gfx950, not gfx942"),
        ("--arch gfx950 --tp 4", "TP4 needs 4 GPUs"),
        ("--arch gfx950 --rows x", "--rows is 'x'"),
        ("--arch gfx950 --rows 1,49 --layers 99", "there is no layer 99"),
        ("--arch gfx950 --device cuda", "no device 'cuda'"),
    ],
)
def test_verify_refuses_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["verify", *line.split(), "-o", str(tmp_path)])
    assert end.value.code == 2 and said in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_trace_of_a_gpu_has_every_stage_of_every_workgroup(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["trace", "--arch", "gfx950", "--rows", "1", "--ffn", "--draft", "--device", "hip",
                  "-o", str(tmp_path)])  # fmt: skip
    assert end.value.code == 0 and "last through" in capsys.readouterr().out
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    assert {e["pid"] for e in spans} == {0, 1} and {e["tid"] for e in spans} == set(range(256))
    assert {e["name"] for e in spans} == set(POINTS["ffn"][1:])
    assert len(spans) == 2 * 256 * (len(POINTS["ffn"]) - 1) and all(e["dur"] >= 0 for e in spans)
    assert min(e["ts"] for e in spans) == 0 and max(e["dur"] for e in spans) > 0
    assert "Workgroups by the clock" in (tmp_path / "trace.html").read_text()
