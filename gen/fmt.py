"""Format generated Python with ruff, by a fixed configuration that no file of the user can change."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

from .findings import Finding, GenError

LINE_LENGTH = 110
_ARGS = [
    "format",
    "--isolated",
    "--no-cache",
    "--quiet",
    "--target-version",
    "py311",
    "--line-length",
    str(LINE_LENGTH),
    "--stdin-filename",
    "generated.py",
    "-",
]


@lru_cache(maxsize=1)
def ruff_command() -> tuple[str, ...]:
    """How to call the ruff that came with flymono's dependencies, wherever scripts were installed.

    Raises GenError if the package is not there; a ruff on PATH may have another version and is not used.
    """
    try:
        from ruff.__main__ import find_ruff_bin

        return (os.fsdecode(find_ruff_bin()),)
    except (ImportError, FileNotFoundError):
        beside = Path(sys.executable).with_name("ruff")
        if beside.exists():
            return (str(beside),)
    raise GenError(
        [
            Finding(
                "GEN_NO_RUFF",
                "",
                "the formatter of generated code (ruff) is not installed",
                "pip install 'ruff>=0.17' into the environment that runs flymono",
            )
        ]
    )


def format_python(source: str) -> str:
    """`source` as ruff formats it. Raises GenError if ruff refuses it (it is then not Python)."""
    run = subprocess.run([*ruff_command(), *_ARGS], input=source, capture_output=True, text=True, timeout=120)
    if run.returncode:
        raise GenError(
            [
                Finding(
                    "GEN_FORMAT",
                    "",
                    f"ruff could not format the generated module: {run.stderr.strip()}",
                    "the rendered text is not valid Python: look at the template",
                )
            ]
        )
    return run.stdout
