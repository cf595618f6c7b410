"""Pages of plans and runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flymono.specs import Specs, load

sys.path.insert(0, str(Path(__file__).parent))  # pages.py is a plain module of this folder


@pytest.fixture(scope="session")
def specs() -> Specs:
    return load()
