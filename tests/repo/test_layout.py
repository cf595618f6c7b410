"""The package's shape: one name for every folder, nothing importable past it, readable sizes."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDERS = ("specs", "gen", "mono", "reference", "emulator", "runtime", "cli")
FILE_LIMIT = 500
FUNCTION_REPORT = 60


@pytest.mark.parametrize("place", ["root", "src", "elsewhere"])
@pytest.mark.parametrize("name", FOLDERS)
def test_bare_import_fails(repo: Path, tmp_path: Path, name: str, place: str) -> None:
    """`import gen` fails, also from the repository root where a folder of that name lies on sys.path."""
    folder = {"root": repo, "src": repo / "src", "elsewhere": tmp_path}[place]
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", f"import {name}"], cwd=folder, env=env, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "ImportError" in done.stderr or "ModuleNotFoundError" in done.stderr


def test_every_folder_is_linked_into_the_package(repo: Path) -> None:
    for name in (*FOLDERS, "templates"):
        link = repo / "src/flymono" / name
        assert link.is_symlink()
        assert not link.readlink().is_absolute()
        assert link.resolve() == repo / name
        assert link.is_dir()


def python_files(repo: Path) -> list[Path]:
    """All Python files of the package."""
    return sorted(p for folder in FOLDERS for p in (repo / folder).rglob("*.py"))


def test_files_and_functions_stay_readable(repo: Path, record_property: pytest.RecordProperty) -> None:
    """A file past 500 lines is a design question; long functions are only reported (`pytest -rA`)."""
    sizes = {path: len(path.read_text().splitlines()) for path in python_files(repo)}
    for path in sizes:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= FUNCTION_REPORT:
                print(f"{path.relative_to(repo)}:{node.lineno} {node.name} ends at line {node.end_lineno}")
    ordered = sorted(sizes.values())
    record_property("files", len(ordered))
    record_property("median lines of a file", ordered[len(ordered) // 2])
    print(f"{len(ordered)} files, median {ordered[len(ordered) // 2]} lines, longest {ordered[-1]}")
    assert [str(path.relative_to(repo)) for path, lines in sizes.items() if lines > FILE_LIMIT] == []


def test_every_module_says_what_it_is_for(repo: Path) -> None:
    without = [p for p in python_files(repo) if not ast.get_docstring(ast.parse(p.read_text()))]
    assert [str(p.relative_to(repo)) for p in without] == []


def test_ignore_rules_hide_no_source(repo: Path) -> None:
    """`build/` in .gitignore once hid specs/build."""
    sources = [
        p for folder in (*FOLDERS, "templates", "tests", "docs", "src") for p in (repo / folder).rglob("*")
    ]
    suffixes = {".py", ".yaml", ".j2", ".json", ".cpp", ".hpp", ".def", ".inc", ".md", ".txt"}
    names = [
        str(p.relative_to(repo)) for p in sources if p.suffix in suffixes and "src/flymono/" not in str(p)
    ]
    if not (repo / ".git").exists():
        pytest.skip("not a git checkout")
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin"],
        cwd=repo,
        input="\n".join(names),
        capture_output=True,
        text=True,
    )
    assert done.stdout == ""
