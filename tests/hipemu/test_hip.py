"""The HIP device on a stand-in runtime: memory, handles, code, capture, and what it refuses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch_on_cpu
from library import environment

from flymono.runtime.devices import hip, hip_library, hip_torch
from flymono.runtime.devices.gpu import GpuError
from flymono.runtime.devices.hip import HipGpu
from flymono.runtime.devices.hip_library import ENTRY_POINTS, Hip, mapped_libraries

Pair = tuple[HipGpu, HipGpu]


def test_properties(gpus: Pair) -> None:
    assert [g.arch for g in gpus] == ["gfx950"] * 2
    assert gpus[0].compute_units == 256
    assert gpus[0].torch_device == torch.device("cpu")
    assert gpus[0].current_stream() != gpus[1].current_stream()


@pytest.mark.parametrize("kind", ["device", "peer", "pinned"])
def test_memory_is_zero_and_stays(gpus: Pair, kind: hip.MemoryKind) -> None:
    memory = gpus[0].allocate(5000, kind)
    assert memory.tensor.shape == (5000,) and not memory.tensor.any()
    assert memory.tensor.data_ptr() == memory.address
    gpus[0].free(memory)
    gpus[0].free(memory)


def test_peer_memory_is_one_memory(gpus: Pair) -> None:
    mine = gpus[0].allocate(5000, "peer")
    theirs = gpus[1].open(gpus[0].export(mine))
    mine.tensor[4999] = 9
    assert (theirs.nbytes, int(theirs.tensor[4999]), theirs.own) == (5000, 9, False)
    gpus[1].free(theirs)
    mine.tensor[0] = 1


def test_memory_that_cannot_be_shared_or_opened(gpus: Pair) -> None:
    with pytest.raises(GpuError, match="device memory cannot be shared"):
        gpus[0].export(gpus[0].allocate(16))
    mine = gpus[0].allocate(16, "peer")
    handle = gpus[0].export(mine)
    with pytest.raises(GpuError, match="no handle of it"):
        gpus[1].open(handle[:-1])
    gpus[0].free(mine)
    with pytest.raises(GpuError, match="hipIpcOpenMemHandle: hipErrorMapFailed"):
        gpus[1].open(handle)


def test_nothing_is_made_in_a_capture(gpus: Pair) -> None:
    gpu = gpus[0]
    handle = gpus[1].export(gpus[1].allocate(16, "peer"))
    gpu.begin_capture()
    assert gpu.is_capturing() and not gpus[1].is_capturing()
    for call in (
        lambda: gpu.allocate(16),
        lambda: gpu.open(handle),
        lambda: gpu.load(b"", "k"),
        gpu.synchronise,
    ):
        with pytest.raises(GpuError, match="inside a capture"):
            call()
    gpu.end_capture().replay()
    assert not gpu.is_capturing()
    gpu.synchronise()


@pytest.mark.parametrize("code", [b"nothing" * 100, b"\x7fELF" + bytes(200)])
def test_bad_code(gpus: Pair, code: bytes) -> None:
    with pytest.raises(GpuError, match="loading k on gfx950: hipModuleLoadData: hipErrorInvalidImage"):
        gpus[0].load(code, "k")


def test_code_of_another_arch_and_a_kernel_that_is_not_there(gpus: Pair) -> None:
    samples = Path(__file__).parents[1] / "emulator"
    with pytest.raises(GpuError, match="hipErrorNoBinaryForGpu"):
        gpus[0].load((samples / "sample_gfx942.hsaco").read_bytes(), "k")
    with pytest.raises(GpuError, match="loading no_such on gfx950: hipModuleGetFunction: hipErrorNotFound"):
        gpus[0].load((samples / "sample_gfx950.hsaco").read_bytes(), "no_such")


def test_every_entry_point_stands_in_the_table() -> None:
    """What hip.py calls is in the table, and nothing else is."""
    text = "".join(Path(str(m.__file__)).read_text() for m in (hip, hip_library, torch_on_cpu))
    text = text.replace(text[text.index("ENTRY_POINTS = {") : text.index('"""What we call')], "")
    called = set(re.findall(r'"(hip[A-Z]\w+)"', text)) - {"hipError_t"}
    constants = {
        n
        for n in called
        if n.startswith(("hipStreamCaptureStatus", "hipStreamCaptureMode", "hipSuccess", "hipError"))
    }
    assert called - constants == set(ENTRY_POINTS)


def test_a_missing_entry_point_is_named(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENTRY_POINTS, "hipFree", "hipFreeOfAnotherTime")
    with pytest.raises(GpuError, match=r"libamdhip64.so has no hipFreeOfAnotherTime"):
        Hip()


def test_a_partitioned_gpu_is_refused(built: Path) -> None:
    text = failing(built, "HipGpu(load(), 0, CpuTorch(0))", compute_units=64)
    assert "shows 64 compute units, a launch needs 256 at a time" in text


def test_a_gpu_of_another_arch_is_refused(built: Path) -> None:
    assert "is gfx90a" in failing(built, "HipGpu(load(), 0, CpuTorch(0))", arch="gfx90a", mach=0)


def test_two_runtimes_are_refused_by_name(built: Path, runtime: Path, tmp_path: Path) -> None:
    copy = tmp_path / "libamdhip64.so.7"
    copy.write_bytes((runtime / "lib" / "libamdhip64.so").read_bytes())
    text = failing(
        built, f"ctypes.CDLL({str(copy)!r}); ctypes.CDLL({str(runtime)!r} + '/lib/libamdhip64.so'); Hip()"
    )
    assert "two HIP runtimes" in text and str(copy) in text and str(runtime) in text


def test_the_mapped_runtime_is_taken_and_not_the_found_one(
    built: Path, runtime: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "libamdhip64.so.7"
    copy.write_bytes((runtime / "lib" / "libamdhip64.so").read_bytes())
    done = python(built, f"ctypes.CDLL({str(copy)!r}); print(Hip().library, len(mapped_libraries()))")
    assert done.stdout.split() == [str(copy), "1"]


def test_no_runtime_at_all(built: Path, tmp_path: Path) -> None:
    assert "no HIP runtime" in failing(built, f"os.environ['ROCM_PATH'] = {str(tmp_path)!r}; Hip()")


def test_what_is_mapped_is_read_from_the_maps() -> None:
    line = "7f00-7f01 r-xp 0000 fd:01 {} {}"
    lines = [
        line.format(5, "/a/libamdhip64.so.7.0"),
        line.format(5, "/a/libamdhip64.so.7.0"),
        line.format(6, "/b/libc.so"),
    ]
    assert mapped_libraries("\n".join([*lines, "7f02-7f03 rw-p 0000 00:00 0"])) == [
        Path("/a/libamdhip64.so.7.0")
    ]
    assert len(mapped_libraries("\n".join([*lines, line.format(7, "/c d/libamdhip64.so")]))) == 2


def test_what_differs_from_a_gpu_is_one_small_file() -> None:
    for module in (hip_torch, torch_on_cpu):
        lines = Path(str(module.__file__)).read_text().splitlines()
        assert len(lines) < 60
    for module in (hip, hip_library):
        assert "torch.cuda" not in Path(str(module.__file__)).read_text()


def test_memory_for_torch_is_described_as_torch_takes_it() -> None:
    pages = hip_torch._Pages(4096, 10).__cuda_array_interface__
    assert (pages["data"], pages["shape"], pages["typestr"]) == ((4096, False), (10,), "|u1")


def python(built: Path, code: str, **settings: object) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own that finds the stand-in."""
    head = (
        f"import ctypes, os, sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from flymono.runtime.devices.hip import HipGpu\n"
        "from flymono.runtime.devices.hip_library import Hip, mapped_libraries\n"
        "from flymono.specs import load\nfrom torch_on_cpu import CpuTorch\n"
    )
    env = os.environ | environment(built, **settings)
    return subprocess.run(
        [sys.executable, "-c", head + code], env=env, capture_output=True, text=True, timeout=300
    )


def failing(built: Path, code: str, **settings: object) -> str:
    """What it says when it fails."""
    done = python(built, code, **settings)
    assert done.returncode != 0
    return done.stderr
