"""Compiles the small FlyDSL kernels in child processes and launches them on the emulator."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from flymono.emulator import CodeObject, Emulator

ARCHS = ("gfx942", "gfx950")


@cache
def code_objects(arch: str) -> dict[str, CodeObject]:
    """Every kernel of fly_kernels.py for `arch`, by name; compiled once a session in a process of its own."""
    env = os.environ | {"COMPILE_ONLY": "1", "FLYDSL_RUNTIME_ENABLE_CACHE": "0"}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(__file__).with_name("fly_kernels.py")
        done = subprocess.run(
            [sys.executable, str(script), arch, folder],
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0 and "error:" not in done.stderr, done.stderr[-4000:]
        return {path.stem: CodeObject(path.read_bytes()) for path in Path(folder).glob("*.hsaco")}


def launch(
    arch: str,
    name: str,
    buffers: tuple[Any, Any, Any],
    n: int,
    groups: int = 1,
    code: CodeObject | None = None,
    **options: Any,
) -> Any:
    """Launch one kernel. A buffer is a numpy array (registered, passed by address) or an int (passed as it
    is)."""
    emulator = Emulator(arch, **options)
    args: list[int] = []
    for label, buffer in zip(("a", "b", "c"), buffers, strict=True):
        if isinstance(buffer, np.ndarray):
            emulator.register(label, buffer)
            args.append(buffer.ctypes.data)
        else:
            args.append(buffer)
    return emulator.launch(code or code_objects(arch)[name], name, groups, (*args, n))


def expected(name: str, a: np.ndarray, steps: int = 0) -> np.ndarray:
    """What `transpose` and `rounds` compute."""
    if name == "transpose":
        return a.reshape(-1, 32, 32).transpose(0, 2, 1).reshape(a.shape)
    out = a.astype(np.int64)
    for _ in range(steps):
        out = out + np.roll(out, -1)
    return out.astype(np.int32)
