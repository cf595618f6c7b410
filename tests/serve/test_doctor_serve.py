"""`flymono doctor --serve` on machines that are made up: the driver's list, device files, packages."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from flymono.cli import doctor, doctor_serve
from flymono.cli.doctor_serve import Wanted, report
from flymono.runtime.devices import topology

GIB = 1 << 30


def node(root: Path, number: int, version: int, units: int, gib: int) -> None:
    """A node of the driver's list as the kernel writes it."""
    place = root / str(number)
    (place / "mem_banks" / "0").mkdir(parents=True)
    simds = 4 * units
    text = f"cpu_cores_count {0 if units else 96}\nsimd_count {simds}\nsimd_per_cu {4 if units else 0}\n"
    text += f"gfx_target_version {version}\ndrm_render_minor {128 + number}\nunique_id 1234567890123456789\n"
    (place / "properties").write_text(text)
    heap = f"heap_type {1 if units else 0}\nsize_in_bytes {gib * GIB}\nflags 0\n"
    (place / "mem_banks" / "0" / "properties").write_text(heap)


def machine(tmp_path: Path, gpus: list[tuple[int, int, int]], tp: int = 4) -> Wanted:
    """A machine with one CPU and `gpus` (version, compute units, GiB), all of whose devices can be opened."""
    nodes, dev = tmp_path / "nodes", tmp_path / "dev"
    node(nodes, 0, 0, 0, 512)
    (dev / "dri").mkdir(parents=True)
    (dev / "shm").mkdir()
    (dev / "kfd").touch()
    for n, (version, units, gib) in enumerate(gpus, 1):
        node(nodes, n, version, units, gib)
        (dev / "dri" / f"renderD{128 + n}").touch()
    return Wanted(tp, None, nodes, dev)


def lines(wanted: Wanted, name: str) -> list[doctor.Line]:
    return doctor.guarded(dict(report(wanted))[name], name)


def states(wanted: Wanted, name: str) -> list[str]:
    return [line.state for line in lines(wanted, name)]


MI300X, MI355X = (90402, 304, 192), (90500, 256, 288)


def test_gfx_names_are_read_off_the_drivers_numbers() -> None:
    assert [topology.gfx_name(v) for v in (90402, 90500, 90010, 110000)] == [
        "gfx942",
        "gfx950",
        "gfx90a",
        "gfx1100",
    ]


def test_four_whole_gpus_are_fine(tmp_path: Path) -> None:
    wanted = machine(tmp_path, [MI300X] * 4)
    (found,) = lines(wanted, "gpus")
    assert found.state == "ok"
    assert found.text == "4 x gfx942 with 304 compute units"
    assert states(wanted, "access") == ["ok"]
    (memory,) = lines(wanted, "memory")
    assert memory.state == "ok" and "192.0 GiB on the GPU" in memory.text


@pytest.mark.parametrize(
    ("gpus", "tp", "says", "fix"),
    [
        ([], 4, "no AMD GPU", "amdgpu"),
        ([MI300X] * 2, 4, "TP4 needs 4", "smaller"),
        ([(90402, 38, 24)] * 8, 4, "cannot hold 256 workgroups", "SPX"),
        ([MI300X] * 4, 2, "no kernels for TP2", "TP4"),
        ([(90010, 104, 64)] * 4, 4, "no arch spec", "gfx942"),
    ],
    ids=["none", "too few", "partitioned", "TP2", "another gfx"],
)
def test_what_cannot_serve_is_named(
    tmp_path: Path, gpus: list[tuple[int, int, int]], tp: int, says: str, fix: str
) -> None:
    bad = [line for line in lines(machine(tmp_path, gpus, tp), "gpus") if line.state == "bad"]
    assert any(says in line.text and fix in line.fix for line in bad), bad


def test_gpus_of_two_archs_have_a_line_each(tmp_path: Path) -> None:
    wanted = machine(tmp_path, [MI300X] * 4 + [MI355X] * 4)
    assert states(wanted, "gpus") == ["ok", "ok"]


def test_memory_that_is_too_small_is_told(tmp_path: Path) -> None:
    (line,) = lines(machine(tmp_path, [(90402, 304, 128)] * 4), "memory")
    assert line.state == "bad" and "128.0 GiB" in line.text


def test_devices_that_cannot_be_opened_are_listed(tmp_path: Path) -> None:
    wanted = machine(tmp_path, [MI300X] * 2)
    (wanted.devices / "kfd").unlink()
    (wanted.devices / "dri" / "renderD130").unlink()
    (line,) = lines(wanted, "access")
    assert line.state == "bad"
    assert "kfd" in line.text and "renderD130" in line.text and "renderD129" not in line.text


def test_missing_shared_memory_is_told(tmp_path: Path) -> None:
    wanted = machine(tmp_path, [MI300X])
    (wanted.devices / "shm").rmdir()
    assert states(wanted, "shared memory") == ["bad"]


@pytest.mark.parametrize(
    ("version", "state"),
    [("0.33.0", "ok"), ("0.33.0+rocm700", "ok"), ("0.33.1.dev3", "ok"), ("0.34.0", "bad"), (None, "bad")],
)
def test_versions_of_vllm(monkeypatch: pytest.MonkeyPatch, version: str | None, state: str) -> None:
    def said(package: str) -> str:
        if version is None:
            raise importlib.metadata.PackageNotFoundError(package)
        return version

    monkeypatch.setattr(doctor_serve.importlib.metadata, "version", said)
    assert [line.state for line in doctor_serve._vllm()] == [state]
