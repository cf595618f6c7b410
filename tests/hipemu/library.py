"""Builds the stand-in library for a machine without a GPU, with the system's C++ compiler or zig's."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from filelock import FileLock

HERE = Path(__file__).parent
CORE = HERE.parents[1] / "emulator" / "core"
SOURCES = ("code.cpp", "device.cpp", "hip.cpp")
FLAGS = ("-std=c++20", "-O1", "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden", "-shared")


def compiler() -> list[str]:
    """The command of a C++20 compiler."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and shutil.which(name):
            return [name]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "c++"]
    raise FileNotFoundError("no C++ compiler: install one, or pip install ziglang")


def _digest() -> str:
    sha = hashlib.sha256(" ".join([*compiler(), *FLAGS]).encode())
    for path in sorted([*HERE.glob("*.[ch]pp"), *HERE.glob("*.h"), CORE / "capi.h", CORE / "roster.hpp"]):
        sha.update(path.name.encode() + path.read_bytes())
    return sha.hexdigest()[:16]


def built(folder: Path) -> Path:
    """`folder/DIGEST`, in which lib/libamdhip64.so is; made if it is not there. Raises CalledProcessError."""
    root = folder / _digest()
    library = root / "lib" / "libamdhip64.so"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        if not library.exists():
            library.parent.mkdir(parents=True, exist_ok=True)
            made = library.with_suffix(f".{os.getpid()}")
            sources = [str(HERE / name) for name in SOURCES]
            command = [*compiler(), *FLAGS, "-o", str(made), *sources, "-ldl", "-lpthread"]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
            made.rename(library)
    return root


def environment(folder: Path, **settings: object) -> dict[str, str]:
    """What a process needs to find the stand-in; `settings` without the prefix HIPEMU_, in any case."""
    from flymono.emulator import _core
    from flymono.emulator.codeobject_elf import MACHS

    found = {"ROCM_PATH": str(built(folder)), "HIPEMU_CORE": str(_core.__file__)}
    arch = str(settings.get("arch", "gfx950"))
    mach = next((number for number, name in MACHS.items() if name == arch), 0)
    return found | {
        f"HIPEMU_{n.upper()}": str(v) for n, v in ({"arch": arch, "mach": mach} | settings).items()
    }
