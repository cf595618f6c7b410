"""One compile server and one artefact store for all tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # small.py is a plain module of this folder

import small

from flymono.gen.build import Settings
from flymono.gen.compiler import Compiler
from flymono.gen.linker import find_linker
from flymono.gen.store import Store


@pytest.fixture(scope="session")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with Compiler(find_linker(tmp_path_factory.mktemp("linker")), seconds=300) as server:
        yield server


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="session")
def run(compiler: Compiler, store: Store) -> small.Runner:
    return small.Runner(compiler, Settings(store, templates=small.TEMPLATES))
