"""What an installation is made of: bounds in pyproject.toml, exact versions in constraints.txt."""

from __future__ import annotations

import os
import subprocess
import tomllib
from collections.abc import Iterator
from importlib import metadata
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from flymono.cli import doctor
from flymono.cli.extras import EXTRAS, extra_of, missing

BASE = {"numpy", "pydantic", "pyyaml"}


def requirements(project: dict[str, Any]) -> Iterator[Requirement]:
    """Everything that pyproject.toml names: to build, to serve, to run, to develop."""
    groups = project["dependency-groups"].values()
    names = [text for group in groups for text in group if isinstance(text, str)]
    yield from map(Requirement, (*project["build-system"]["requires"], *names))
    yield from to_run(project)


def to_run(project: dict[str, Any]) -> Iterator[Requirement]:
    """What serving needs, and what the extras bring."""
    extras = [text for listed in project["project"]["optional-dependencies"].values() for text in listed]
    for text in (*project["project"]["dependencies"], *extras):
        if Requirement(text).name != "flymono":  # an extra that has another one's packages
            yield Requirement(text)


@pytest.fixture
def project(repo: Path) -> dict[str, Any]:
    return tomllib.loads((repo / "pyproject.toml").read_text())


@pytest.fixture
def exact(repo: Path) -> dict[str, str]:
    lines = (repo / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): value for name, value in pairs}


def test_every_requirement_has_an_exact_version_within_its_bound(
    project: dict[str, Any], exact: dict[str, str]
) -> None:
    for requirement in requirements(project):
        name = canonicalize_name(requirement.name)
        assert name in exact, f"{name} is not in constraints.txt"
        assert requirement.specifier.contains(exact[name]), f"{requirement} excludes {exact[name]}"


def test_flydsl_is_pinned_and_its_bindings_are_not_replaced(project: dict[str, Any]) -> None:
    found = {canonicalize_name(r.name): r for r in requirements(project)}
    assert str(found["flydsl"].specifier) == "==0.5.0"
    assert not any("mlir" in name for name in found)  # the PyPI project of that name is an empty placeholder


def test_doctor_looks_for_what_the_project_needs(project: dict[str, Any]) -> None:
    found = [r for r in to_run(project) if r.name not in EXTRAS["hip"]]  # a GPU's is asked of with --serve
    assert {r.name for r in found} == {*doctor.NEEDED, "ziglang"}  # its linker has a line of its own
    assert {r.name: str(r.specifier) for r in found if "==" in str(r.specifier)} == {
        name: f"=={version}" for name, version in doctor.PINNED.items()
    }


def test_the_wheel_requires_what_serving_needs(project: dict[str, Any]) -> None:
    """Beside vLLM nothing may be replaced: lower bounds only, no torch, nothing of the compiler."""
    base = [Requirement(text) for text in project["project"]["dependencies"]]
    assert {r.name for r in base} == BASE
    assert {s.operator for r in base for s in r.specifier} == {">="}
    assert "dependencies" not in project["project"].get("dynamic", [])


def test_the_installed_metadata_says_the_same() -> None:
    try:
        found = [Requirement(text) for text in metadata.requires("flymono") or ()]
    except metadata.PackageNotFoundError:
        pytest.skip("flymono runs from its source tree here")
    assert {canonicalize_name(r.name) for r in found if r.marker is None} == BASE


def test_every_extra_is_named_by_the_command_line(project: dict[str, Any]) -> None:
    """What is said of an absent package is what pyproject.toml brings it with."""
    listed = project["project"]["optional-dependencies"]
    own = {
        extra: {canonicalize_name(Requirement(t).name) for t in texts} - {"flymono"}
        for extra, texts in listed.items()
    }
    assert own == {extra: set(packages) for extra, packages in EXTRAS.items()}
    inner = {extra: {e for t in texts for e in Requirement(t).extras} for extra, texts in listed.items()}
    assert inner == {"cli": set(), "gen": {"cli"}, "hip": set(), "all": {"gen"}}


@pytest.mark.parametrize(
    ("module", "extra"),
    [("typer", "cli"), ("flydsl._mlir.ir", "gen"), ("elftools.elf", "gen"), ("torch", "all"),
     ("rocm.hip", "hip"), ("ml_dtypes", "all"), ("yaml", None), ("elsewhere", None)],
)  # fmt: skip
def test_an_absent_package_names_its_extra(module: str, extra: str | None) -> None:
    refused = missing(ModuleNotFoundError(f"No module named {module!r}", name=module))
    assert extra_of(module) == extra
    assert (refused.fix if refused else None) == (f"pip install 'flymono[{extra}]'" if extra else None)


def test_versions_agree(project: dict[str, Any]) -> None:
    from flymono import __version__

    assert project["project"]["version"] == __version__


def test_licence_is_whole(repo: Path) -> None:
    text = (repo / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_readme_names_commands_that_exist(repo: Path) -> None:
    from flymono.cli.main import COMMANDS

    readme = (repo / "README.md").read_text()
    makefile = (repo / "Makefile").read_text()
    for command in COMMANDS:
        assert command == "demo" or f"`flymono {command}" in readme
    for target in ("demo", "test", "setup"):
        assert f"make {target}" in readme
        assert f"\n{target}:" in makefile


def test_setup_without_a_compiler_says_what_to_do(repo: Path, tmp_path: Path) -> None:
    """A PATH that has only a shell's tools: exit 2 and one line a system, before anything is installed."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "dirname", "mktemp", "rm", "python3", "cat"):
        (tools / name).symlink_to(_which(name))
    env = {"PATH": str(tools), "VENV": str(tmp_path / "venv"), "HOME": str(tmp_path)}
    done = subprocess.run(["sh", str(repo / "scripts/setup.sh")], env=env, capture_output=True, text=True)
    assert done.returncode == 2
    assert "apt-get install" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_setup_refuses_an_old_python(repo: Path, tmp_path: Path) -> None:
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    env = {**os.environ, "PYTHON": str(old), "VENV": str(tmp_path / "venv")}
    done = subprocess.run(["sh", str(repo / "scripts/setup.sh")], env=env, capture_output=True, text=True)
    assert done.returncode == 2
    assert "Python 3.11 or newer" in done.stderr


def test_the_running_flydsl_is_the_pinned_one() -> None:
    assert version("flydsl") == "0.5.0"


def _which(name: str) -> str:
    import shutil
    import sys

    found = sys.executable if name == "python3" else shutil.which(name)
    assert found is not None
    return found
