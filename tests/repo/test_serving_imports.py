"""What a server imports needs neither compiler nor emulator nor command line, nor their packages.

Each case is a fresh Python whose import system refuses everything else.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BLOCKED = (
    "flydsl", "jinja2", "markupsafe", "typer", "rich", "click", "ruff", "ziglang", "filelock", "platformdirs",
    "elftools", "msgpack", "ml_dtypes", "plotly", "safetensors", "rocm",
    "flymono.gen", "flymono.mono", "flymono.templates", "flymono.cli", "flymono.emulator",
)  # fmt: skip
WITHOUT_TORCH = ("specs", "runtime/plan", "runtime/bundle")
WITH_TORCH = ("runtime/weights", "runtime/step", "runtime/runner", "runtime/devices", "runtime/vllm")
NOT_SERVED = (
    "flymono.runtime.bundle.make", "flymono.specs.__main__",
    "flymono.runtime.devices.emulated", "flymono.runtime.devices.emulator",
    "flymono.runtime.devices.gpus", "flymono.runtime.devices.processes", "flymono.runtime.devices.segments",
)  # fmt: skip
_IMPORT = """
import importlib, sys
blocked = sys.argv[1].split(",")

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if any(name == b or name.startswith(b + ".") for b in blocked):
            raise ImportError(f"{name} is not for serving")

sys.meta_path.insert(0, Refuse())
for name in sys.argv[2:]:
    importlib.import_module(name)
"""


def modules(repo: Path, folder: str) -> list[str]:
    """Every module of a folder by its import name."""
    paths = sorted((repo / folder).rglob("*.py"))
    names = ["flymono." + p.relative_to(repo).with_suffix("").as_posix().replace("/", ".") for p in paths]
    return [n.removesuffix(".__init__") for n in names if n not in NOT_SERVED]


def run(repo: Path, blocked: tuple[str, ...], *names: str) -> subprocess.CompletedProcess[str]:
    call = [
        sys.executable,
        "-c",
        "import sys; sys.path.insert(0, 'src')" + _IMPORT,
        ",".join(blocked),
        *names,
    ]
    return subprocess.run(call, cwd=repo, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("folder", WITHOUT_TORCH)
def test_pure_parts_need_no_torch(repo: Path, folder: str) -> None:
    done = run(repo, (*BLOCKED, "torch", "numpy"), *modules(repo, folder))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("folder", WITH_TORCH)
def test_parts_that_hold_tensors_need_torch_alone(repo: Path, folder: str) -> None:
    done = run(repo, BLOCKED, *modules(repo, folder))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["flymono.runtime.bundle.make", "flymono.emulator", "flydsl"])
def test_what_is_blocked_is_blocked(repo: Path, module: str) -> None:
    done = run(repo, BLOCKED, module)
    assert done.returncode == 1
    assert "is not for serving" in done.stderr


def test_the_script_says_what_to_install(repo: Path) -> None:
    """The base wheel has the `flymono` script too, without the packages of the command line."""
    code = (
        "import sys; sys.path.insert(0, 'src'); sys.modules['typer'] = None\n"
        "from flymono.cli.start import main; main(['doctor'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=repo, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "pip install 'flymono[cli]'" in done.stderr
    assert "Traceback" not in done.stderr
