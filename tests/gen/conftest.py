"""One compile server for all tests of this folder, and artefact stores in temporary folders."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # toys.py is a plain module of this folder

import toys

from flymono.gen.build import Settings
from flymono.gen.compiler import Compiler
from flymono.gen.linker import Linker, find_linker
from flymono.gen.store import Store


@pytest.fixture(scope="session")
def linker(tmp_path_factory: pytest.TempPathFactory) -> Linker:
    return find_linker(tmp_path_factory.mktemp("linker"))


@pytest.fixture(scope="session")
def compiler(linker: Linker) -> Iterator[Compiler]:
    with Compiler(linker, seconds=60) as server:
        yield server


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(Store(tmp_path / "store"), templates=toys.TEMPLATES)


@pytest.fixture(scope="session")
def k1_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store for the K1 builds of a test run, shared by its processes: the store has locks."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "k1-store"
