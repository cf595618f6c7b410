"""The import contracts of pyproject.toml: kept by the code, and red for a planted violation of each."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest

# a violation of each contract, by its name: (file, line)
PLANTED = {
    "specs imports nothing of ours": ("specs", "from ..gen import findings"),
    "runtime.plan imports specs only: pure ints, no torch, no FlyDSL": ("runtime/plan", "import torch"),
    "mono imports runtime.plan only": ("mono", "from ..reference import rope"),
    "mono reads numbers from the plan, not from specs": ("mono", "from ..specs import schema"),
    "gen imports specs, runtime.plan, mono": ("gen", "import flymono.emulator"),
    "reference imports specs only, never the kernels": ("reference", "from flymono.mono import __version__"),
    "emulator imports specs only": ("emulator", "def late():\n    from ..runtime.plan import keys"),
    "serving imports neither compiler nor emulator": (
        "runtime/bundle",
        "def late():\n    from ...gen import api",
    ),
    "nothing imports the command line": ("reference", "from ..cli import main"),
}


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the tree at `folder`, not on one that is installed editable."""
    code = (
        "import sys; sys.path.insert(0, 'src'); "
        "sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in type(f).__module__]; "
        "from importlinter.cli import lint_imports_command as c; c()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, "--no-cache"], cwd=folder, capture_output=True, text=True, timeout=300
    )


def broken(output: str) -> set[str]:
    """Names of the contracts that import-linter reports as broken."""
    return set(re.findall(r"^(.+?) BROKEN", output, re.MULTILINE))


@pytest.fixture
def copy(repo: Path, tmp_path: Path) -> Path:
    """The Python files of the checkout, without tests and products, to plant violations in."""
    target = tmp_path / "copy"
    for folder in ("specs", "gen", "mono", "reference", "emulator", "runtime", "cli"):
        for path in (repo / folder).rglob("*.py"):
            (target / path.relative_to(repo)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target / path.relative_to(repo))
    (target / "templates").mkdir()
    shutil.copytree(repo / "src", target / "src", symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(repo / "pyproject.toml", target)
    return target


def test_the_code_keeps_every_contract(repo: Path) -> None:
    done = lint(repo)
    assert done.returncode == 0, done.stdout


def test_each_contract_bites(copy: Path) -> None:
    for i, (folder, line) in enumerate(PLANTED.values()):
        (copy / folder / f"planted{i}.py").write_text(f'"""Planted."""\n\n{line}\n')
    done = lint(copy)
    assert done.returncode == 1, done.stdout + done.stderr
    assert broken(done.stdout) == set(PLANTED)


def test_a_violation_is_planted_for_each_contract(repo: Path) -> None:
    config = tomllib.loads((repo / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert {contract["name"] for contract in config["contracts"]} == set(PLANTED)


def test_only_the_command_line_makes_bundles(repo: Path) -> None:
    """`runtime/bundle/make.py` may import gen, so nothing that a server imports may import it."""
    graph = grimp.build_graph("flymono", cache_dir=None)
    users = graph.find_modules_that_directly_import("flymono.runtime.bundle.make")
    assert users
    assert {name.split(".")[1] for name in users} == {"cli"}


@pytest.mark.parametrize("folder", ["gen", "mono"])
def test_runtime_is_closed_but_for_the_plan(copy: Path, folder: str) -> None:
    (copy / "runtime/planted.py").write_text('"""Planted."""\n')
    (copy / folder / "planted.py").write_text('"""Planted."""\n\nfrom ..runtime.plan import keys\n')
    assert lint(copy).returncode == 0
    (copy / folder / "planted.py").write_text('"""Planted."""\n\nfrom ..runtime import planted\n')
    wanted = {"gen": "gen imports specs, runtime.plan, mono", "mono": "mono imports runtime.plan only"}
    assert broken(lint(copy).stdout) == {wanted[folder]}
