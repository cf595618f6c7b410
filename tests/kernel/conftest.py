"""A runner of single kernels for all tests of this folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # small.py is a plain module of this folder

import small

from flymono.gen.build import Settings
from flymono.gen.compiler import Compiler
from flymono.gen.store import Store


@pytest.fixture(scope="session")
def run(compiler: Compiler, store: Store) -> small.Runner:
    return small.Runner(compiler, Settings(store, templates=small.TEMPLATES))
