"""Tests of whole launches on all ranks share `benches` and `hand_offs` (plain modules of this folder)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from flymono.gen.compiler import Compiler
from flymono.gen.linker import find_linker
from flymono.gen.store import Store

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)  # two test processes on two cores


@pytest.fixture(scope="session")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    with Compiler(find_linker(tmp_path_factory.mktemp("linker")), seconds=300) as server:
        yield server


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))
