"""No code outside `specs/` asks for the name of an arch: it asks the spec for a capability.

Exempt are tests, which name archs to test them, and tables from ELF machine numbers to names, which are no
comparisons. What counts as one: `==`, `in` and the like, `match`, `startswith`, a lookup in a literal table
keyed by arch names, and the same in templates and C++.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

GFX = re.compile(r"gfx[0-9]")
FOLDERS = (
    "gen",
    "mono",
    "templates",
    "reference",
    "emulator",
    "runtime",
    "cli",
    "examples",
    "bench",
    "scripts",
    "src",
)

_NAME = r"\"?(Arch::)?gfx[0-9a-f]+\"?"
TEXT_COMPARISON = re.compile(
    rf"[=!<>]=\s*[\"']?{_NAME}|{_NAME}[\"']?\s*[=!<>]=|case\s+{_NAME}\s*:"
    rf"|\b(strcmp|strncmp|starts_with|ends_with|startswith|endswith|compare)\s*\([^)\n]*[\"']gfx"
    rf"|\b(not\s+)?in\s*[\[(][^\])\n]*[\"']gfx"
)  # fmt: skip


def python_comparisons(source: str) -> Iterator[int]:
    """Lines of a Python source that compare with an arch name."""
    for node in ast.walk(ast.parse(source)):
        if _compares(node):
            place = node.pattern if isinstance(node, ast.match_case) else node
            yield int(getattr(place, "lineno", 0))


def _compares(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return any(_names_arch(part) for part in (node.left, *node.comparators))
    if isinstance(node, ast.match_case):
        return _names_arch(node.pattern)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in ("startswith", "endswith", "removeprefix", "match", "search", "fullmatch"):
            return any(_names_arch(argument) for argument in node.args)
        return node.func.attr == "get" and _keyed_by_arch(node.func.value)
    return isinstance(node, ast.Subscript) and _keyed_by_arch(node.value)


def _names_arch(node: ast.AST) -> bool:
    return any(
        isinstance(n, ast.Constant) and isinstance(n.value, str) and GFX.search(n.value)
        for n in ast.walk(node)
    )


def _keyed_by_arch(node: ast.AST) -> bool:
    return isinstance(node, ast.Dict) and any(key is not None and _names_arch(key) for key in node.keys)


def text_comparisons(source: str) -> Iterator[int]:
    """Lines of a template or a C++ source that compare with an arch name."""
    for number, line in enumerate(source.splitlines(), 1):
        if TEXT_COMPARISON.search(line.partition("//")[0]):
            yield number


def comparisons(path: Path) -> Iterator[int]:
    """Lines of a file that compare with an arch name."""
    if path.suffix == ".py":
        yield from python_comparisons(path.read_text())
    elif path.suffix in (".j2", ".cpp", ".hpp", ".h", ".inc", ".def"):
        yield from text_comparisons(path.read_text())


def test_no_comparison_with_an_arch_name(repo: Path) -> None:
    files = sorted(p for folder in FOLDERS for p in (repo / folder).rglob("*") if p.is_file())
    found = [f"{p.relative_to(repo)}:{line}" for p in files for line in comparisons(p)]
    assert found == [], "ask the arch spec for a capability instead"


@pytest.mark.parametrize(
    "code",
    [
        'if arch == "gfx942": pass',
        'if arch.name != "gfx950": pass',
        'x = 1 if "gfx942" in target else 2',
        'x = arch in ("gfx90a", "gfx942")',
        'assert arch in {"gfx950"}',
        'if arch.startswith("gfx95"): pass',
        'if re.match("gfx9.0", arch): pass',
        'width = {"gfx942": 6, "gfx950": 16}[arch]',
        'width = {"gfx942": 6}.get(arch, 16)',
        'match arch:\n    case "gfx942": pass',
        'while not (a and b == "gfx942:sramecc+"): pass',
    ],
)
def test_it_bites_in_python(code: str) -> None:
    assert list(python_comparisons(code))


@pytest.mark.parametrize(
    "code", ['DEMO = (("gfx942", 4),)', 'MACHS = {0x4C: "gfx942"}', '"""for gfx942"""', "f(arch='gfx942')"]
)
def test_names_alone_are_admitted(code: str) -> None:
    assert list(python_comparisons(code)) == []


@pytest.mark.parametrize(
    "code",
    [
        "return arch == Arch::gfx942 ? a : b;",
        'if (name == "gfx942") {',
        "if (Arch::gfx950 != arch) {",
        "case Arch::gfx942: return 1;",
        'if (name.starts_with("gfx95")) {',
        "#: if arch == 'gfx942'",
        "{% if spec.name in ['gfx942'] %}",
    ],
)
def test_it_bites_in_text(code: str) -> None:
    assert list(text_comparisons(code))


@pytest.mark.parametrize(
    "code", ['{"gfx942", Arch::gfx942},', "// if arch == gfx942", "Arch arch = Arch::gfx942;"]
)
def test_tables_and_remarks_are_admitted(code: str) -> None:
    assert list(text_comparisons(code)) == []
