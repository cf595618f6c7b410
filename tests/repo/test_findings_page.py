"""Catalogues of finding codes: complete, used, and the page docs/findings.md is made from them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flymono.cli import codes
from flymono.cli.main import main
from flymono.emulator.findings import KINDS
from flymono.gen.findings import CODES


def literal_codes(path: Path) -> Iterator[str]:
    """Codes that a module of gen spells: capitals whose first word is a family of codes."""
    families = {code.split("_")[0] for code in CODES}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            word = re.fullmatch(r"([A-Z]+)(_[A-Z]+)+", node.value)
            if word and word[1] in families:
                yield node.value


def kinds(source: str) -> Iterator[str]:
    """Kinds that C++ text reports."""
    for call in re.findall(r'(?:report|fatal)\(w, c, ([^,]*?"[^,]*?),', source):
        yield from re.findall(r'"([a-z-]+)"', call)
    yield from re.findall(r'\.kind = "([a-z-]+)"', source)


def test_the_page_is_current(golden: Callable[[str, str], None]) -> None:
    golden("../../docs/findings.md", codes.page(codes.catalogues()))


def test_gen_reports_what_its_catalogue_lists_and_nothing_else(repo: Path) -> None:
    modules = [path for path in (repo / "gen").glob("*.py") if path.name != "findings.py"]
    assert {code for path in modules for code in literal_codes(path)} == set(CODES)


def test_the_core_reports_what_its_catalogue_lists_and_nothing_else(repo: Path) -> None:
    sources = [path.read_text() for path in (repo / "emulator/core").glob("*.cpp")]
    assert {kind for text in sources for kind in kinds(text)} == set(KINDS)


def test_every_row_has_every_column() -> None:
    for one in codes.catalogues():
        assert one.rows, one.title
        for code, cells in one.rows.items():
            assert len(cells) == len(one.heads) - 1, code
            assert all(cells), code


def test_a_code_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["codes", "ISA_SPILL", "lds-too-small"])
    said = capsys.readouterr().out
    assert not ended.value.code
    assert "ISA_SPILL (builds): Registers are spilled." in said
    assert "lds-too-small (plan): " in said


def test_an_unknown_code_is_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["codes", "ISA_SPIL"])
    assert ended.value.code == 2
    assert "did you mean `ISA_SPILL`?" in capsys.readouterr().err
