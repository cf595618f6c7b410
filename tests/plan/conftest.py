"""The shipped specs, loaded once."""

from __future__ import annotations

import pytest

from flymono.specs import Specs, load


@pytest.fixture(scope="session")
def specs() -> Specs:
    return load()
