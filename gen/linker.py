"""Find the linker that turns LLVM's object into a code object, and show it to FlyDSL.

FlyDSL looks only for `$ROCM_PATH/llvm/bin/ld.lld` (PATH is not searched). Taken, in this order:
 1. `$ROCM_PATH/llvm/bin/ld.lld` (or /opt/rocm), used in place;
 2. `ld.lld`, else the newest `ld.lld-NN`, of PATH and /usr/lib/llvm-*/bin;
 3. the lld inside the `ziglang` wheel, which flymono depends on.
For 2 and 3 a folder in the cache plays ROCM_PATH: it holds nothing but `llvm/bin/ld.lld`, a wrapper script.
Which linker it was never enters a cache key (it only lays out sections); the manifest records it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .findings import CompileError, Finding
from .unit import digest

# The first lld that lays out code objects of the ABI that FlyDSL 0.5.0 asks for (version 6).
OLDEST = 18


@dataclass(frozen=True)
class Linker:
    """`command` runs ld.lld; `kind` is rocm, system or ziglang; `rocm_path` is what FlyDSL is told."""

    kind: str
    command: tuple[str, ...]
    version: str
    rocm_path: Path


def version_of(command: tuple[str, ...]) -> str:
    """First line of `--version`; an empty string if it does not run or is not lld."""
    try:
        run = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    line = run.stdout.splitlines()[0] if run.returncode == 0 and run.stdout else ""
    return line if "LLD" in line else ""


def _major(version: str) -> int:
    found = re.search(r"LLD (\d+)", version)
    return int(found[1]) if found else 0


def _system() -> Iterator[tuple[str, ...]]:
    folders = [Path(p) for p in os.get_exec_path()] + sorted(Path("/usr/lib").glob("llvm-*/bin"))
    if plain := shutil.which("ld.lld"):
        yield (plain,)
    numbered = {
        p for f in folders if f.is_dir() for p in f.glob("ld.lld*") if re.fullmatch(r"ld\.lld(-\d+)?", p.name)
    }
    yield from ((str(p),) for p in sorted(numbered, key=_number, reverse=True))


def _number(path: Path) -> tuple[int, str]:
    found = re.search(r"(\d+)", path.name) or re.search(r"llvm-(\d+)", str(path))
    return (int(found[1]) if found else 0, str(path))


def candidates(rocm_path: str | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(kind, command) of every linker that might do, best first."""
    for root in (rocm_path, "/opt/rocm"):
        if root and (path := Path(root, "llvm/bin/ld.lld")).exists():
            yield "rocm", (str(path),)
    yield from (("system", c) for c in _system())
    if importlib.util.find_spec("ziglang"):
        yield "ziglang", (sys.executable, "-m", "ziglang", "ld.lld")


def find_linker(cache: Path, rocm_path: str | None = None) -> Linker:
    """The first linker that runs and is new enough. Writes the wrapper below `cache` if one is needed.

    `rocm_path` defaults to $ROCM_PATH. Raises CompileError with everything that was tried.
    """
    rocm_path = rocm_path if rocm_path is not None else os.environ.get("ROCM_PATH")
    tried = []
    for kind, command in candidates(rocm_path):
        version = version_of(command)
        if kind == "rocm" and version:
            return Linker(kind, command, version, Path(command[0]).parents[2])
        if version and _major(version) >= OLDEST:
            return Linker(kind, command, version, wrapper(cache, command))
        tried.append(f"{' '.join(command)}: {version or 'does not run as ld.lld'}")
    text = "no usable ld.lld; tried " + ("; ".join(tried) or "nothing, none was found")
    raise CompileError(
        [
            Finding(
                "GEN_NO_LINKER",
                "",
                text,
                f"pip install 'ziglang>=0.17', or install lld {OLDEST} or newer, or set ROCM_PATH",
            )
        ]
    )


def wrapper(cache: Path, command: tuple[str, ...]) -> Path:
    """A folder that FlyDSL takes for ROCm: `llvm/bin/ld.lld` runs `command`. Made once per command."""
    text = "#!/bin/sh\nexec " + " ".join(f"'{part}'" for part in command) + ' "$@"\n'
    root = cache / "linker" / digest(text)[:12]
    script = root / "llvm" / "bin" / "ld.lld"
    if not (script.exists() and script.read_text() == text and os.access(script, os.X_OK)):
        script.parent.mkdir(parents=True, exist_ok=True)
        fresh = script.with_name(f".ld.lld.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(script)
    return root
