"""The base wheel beside vLLM: nothing of the environment would change."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from scenario import ROOT, needs_vllm

pytestmark = [needs_vllm, pytest.mark.slow]


def pip(*arguments: str) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(call, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel without its compiled core, which asks for nothing more."""
    folder = tmp_path_factory.mktemp("wheel")
    how = (
        "--no-deps",
        "--no-build-isolation",
        "-C",
        "wheel.cmake=false",
        "-C",
        "wheel.py-api=py3",
        "-w",
        str(folder),
    )
    done = pip("wheel", *how, str(ROOT))
    assert done.returncode == 0, done.stderr[-2000:]
    (found,) = folder.glob("flymono-*.whl")
    return found


def would_install(wheel: Path) -> set[str]:
    """Names that pip would install or replace, without asking an index."""
    done = pip("install", "--dry-run", "--no-index", "--quiet", "--report", "-", str(wheel))
    assert done.returncode == 0, done.stderr[-2000:]
    return {one["metadata"]["name"].lower() for one in json.loads(done.stdout)["install"]}


def test_no_package_of_the_environment_would_change(wheel: Path) -> None:
    assert would_install(wheel) <= {"flymono"}


def test_a_wheel_that_asks_for_more_would_be_seen(wheel: Path, tmp_path: Path) -> None:
    """The same wheel with a requirement that vLLM's torch does not meet."""
    changed = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith(".dist-info/METADATA"):
                data = data.replace(
                    b"\nRequires-Dist: numpy", b"\nRequires-Dist: torch<2\nRequires-Dist: numpy", 1
                )
            new.writestr(name, data)
    done = pip("install", "--dry-run", "--no-index", "--report", "-", str(changed))
    assert done.returncode != 0 and "torch<2" in done.stdout + done.stderr
