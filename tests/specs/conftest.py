"""Fixtures of the spec tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from .folder import SpecFolder


@pytest.fixture
def folder(tmp_path: Path) -> SpecFolder:
    """A fresh copy of the shipped specs."""
    return SpecFolder(tmp_path / "specs")
