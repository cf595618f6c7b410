"""Serving from a bundle where nothing can be compiled; a byte of it changed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from scenario import ROOT, needs_vllm, run

pytestmark = [needs_vllm, pytest.mark.slow, pytest.mark.timeout(1500)]
SERVERS = [("gfx950", 2), ("gfx942", 4)]


@cache
def bundle(folder: Path, arch: str, tp: int) -> Path:
    """A bundle of one-row steps."""
    path = folder / f"{arch}-tp{tp}"
    words = ["bundle", "--arch", arch, "--tp", str(tp), "--only", "*-s1", "--only", "*-s1-*", "-o", str(path)]
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); from flymono.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bundles")


def serving(path: Path, cache: Path) -> dict[str, str]:
    return {"FLYMONO_BUNDLE": str(path), "FLYMONO_TEST_NO_COMPILER": str(cache)}


@pytest.mark.parametrize(("arch", "tp"), SERVERS)
def test_a_layer_runs_from_a_bundle_without_a_compiler(
    arch: str, tp: int, folder: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    found = run("forward", arch, tp, 1, 3, env=serving(bundle(folder, arch, tp), cache))
    assert found[""]["differs"] == [[[]] * tp] and found[""]["counts"]["taken"] == 1
    assert not cache.exists(), "a server writes no artefacts"


def altered(path: Path, into: Path, name: str) -> Path:
    """A copy of the bundle with one byte of a file flipped."""
    shutil.copytree(path, into)
    file = into / name
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    return into


def test_a_flipped_byte_of_the_manifest_stops_the_server(folder: Path, tmp_path: Path) -> None:
    path = altered(bundle(folder, "gfx950", 2), tmp_path / "bundle", "manifest.json")
    said = run("altered", "gfx950", 2, env={"FLYMONO_BUNDLE": str(path)})["refused"]
    assert (
        "bundle-altered" in said and "manifest.json" in said and "flymono bundle --arch gfx950 --tp 2" in said
    )


@pytest.mark.parametrize(
    "name", ["code/dsv41_k2-gfx950-tp2-s1-r2.hsaco", "abi/dsv41_k2-gfx950-tp2-s1-r2.json"]
)
def test_a_flipped_byte_of_a_build_stops_the_server_when_it_is_loaded(
    folder: Path, tmp_path: Path, name: str
) -> None:
    path = altered(bundle(folder, "gfx950", 2), tmp_path / "bundle", name)
    said = run("forward", "gfx950", 2, 1, 3, env=serving(path, tmp_path / "cache"))[""]["raised"]
    assert name in said and "flymono bundle --arch gfx950 --tp 2" in said
