"""A small bundle, compiled once a test run: two key lists and a K1 of one row."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from flymono.cli.main import main
from flymono.runtime.bundle import Bundle
from flymono.specs import Specs, load

ARCH, TP = "gfx942", 4
IDS = tuple(f"dsv41_{name}" for name in (
    "k1-gfx942-tp4-s1-r2", "keylist-gfx942-tp4-s1-r1", "keylist-gfx942-tp4-s1-r2",
))  # fmt: skip
ONLY = [word for id in IDS for word in ("--only", id)]
ORDER = ["bundle", "--arch", ARCH, "--tp", str(TP)]
COMMAND = f"flymono bundle --arch {ARCH} --tp {TP} {' '.join(ONLY)} -o PATH"
WHEEL = f"flymono_bundle_{ARCH}_tp{TP}-0.1.0-py3-none-any.whl"


@dataclass(frozen=True)
class Said:
    """How a command ended."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def specs() -> Specs:
    return load()


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An artefact store for these builds, shared by the processes of a test run: the store has locks."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "bundle-store"


@pytest.fixture
def flymono(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    """`flymono("bundle", ...)` in this process, with the shared store."""
    monkeypatch.setenv("FLYMONO_CACHE", str(cache))
    monkeypatch.delenv("FLYMONO_BUNDLE", raising=False)

    def run(*args: object) -> Said:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in args])
        captured = capsys.readouterr()
        return Said(int(ended.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def original(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle that tests copy; do not change it."""
    out = tmp_path_factory.mktemp("original") / "bundle"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setenv("FLYMONO_CACHE", str(cache))
        main([*ORDER, *ONLY, "-o", str(out)])
    assert not ended.value.code
    return out


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(original, tmp_path / "bundle"))


@pytest.fixture
def bundle(folder: Path) -> Bundle:
    return Bundle.open(folder)
