"""What users read: every code once, in one golden file; and the codes themselves."""

from __future__ import annotations

import string
from collections.abc import Callable
from pathlib import Path

import pytest

from flymono.specs.findings import Code, Finding, SpecError, UserError, Where, near
from flymono.specs.tree import read_text

from .folder import SpecFolder
from .test_bad_input import CASES
from .test_yaml import BOMB


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> dict[Code, Finding]:
    """For each code that specs can produce, the first finding of the bad-input cases."""
    found: dict[Code, Finding] = {}
    for i, (file, old, new, *_) in enumerate(CASES):
        folder = SpecFolder(tmp_path_factory.mktemp(str(i)) / "specs")
        folder.edit(file, old, new.replace("«", ""))
        for finding in folder.findings():
            if finding.code not in found:
                where = Where(
                    finding.where.file.removeprefix(f"{folder.root}/"), finding.where.line, finding.where.col
                )
                found[finding.code] = Finding(where, finding.code, finding.text, finding.fix)
    for text in (
        BOMB,
        "<<: 1",
        "a: !!int 1",
        "a: 1\n---\nb: 1",
        "",
        "a:\tb",
        "[" * 99,
        "1: x",
        "a: [",
        "a: x: y",
    ):
        for finding in read_text(text, "f.yaml").findings:
            found.setdefault(finding.code, finding)
    return found


def test_every_message(sample: dict[Code, Finding], golden: Callable[[str, str], None]) -> None:
    golden("specs/messages.txt", "\n".join(str(sample[code]) for code in Code if code in sample) + "\n")


def test_the_sample_has_most_codes(sample: dict[Code, Finding]) -> None:
    """The rest needs two files, a file system or a compiler, and is tested beside those."""
    elsewhere = [
        "MISSING_ROOT",
        "MISSING_FILES",
        "UNREADABLE",
        "STRAY_FILE",
        "TOO_LARGE",
        "NOT_UTF8",
        "TOO_MANY_NODES",
        "BAD_VALUE",
        "UNKNOWN_PARENT",
        "INHERIT_CYCLE",
        "OVERRIDE_ONLY",
        "OVERRIDE_ALONE",
        "OVERRIDE_UNKNOWN",
        "OVERRIDE_SAME",
        "MFMA_TWICE",
        "PREFIX_TAKEN",
        "BUILD_ROWS",
        "NO_STRATEGY",
        "PLAN_REFUSES",
        "PROBE_REFUSES",
        "PROBE_ADMITS",
        "BUDGET_TWICE",
        "BUDGET_EMPTY",
        "BUDGET_BITS",
        "UNKNOWN_TERM",
        "UNUSED_TERM",
    ]
    assert {code.name for code in Code} - {code.name for code in sample} == set(elsewhere)


def test_codes_are_distinct_members_with_texts() -> None:
    assert len(Code) == len(Code.__members__)  # an alias would be two names of one code
    for code in Code:
        assert code.value.text.strip() == code.value.text != ""
        assert code.value.fix
        fields = {
            name
            for text in (code.value.text, code.value.fix)
            for _, name, _, _ in string.Formatter().parse(text)
        }
        finding = code.at(Where("f"), **{name: 1 for name in fields if name})
        assert "{" not in str(finding).replace("{}", "")


def test_findings_are_sorted_and_unique() -> None:
    a, b = Code.TAB.at(Where("b", 1, 1)), Code.TAB.at(Where("a", 10, 2))
    c = Code.TAB.at(Where("a", 9, 5))
    assert SpecError([a, b, c, a]).findings == (c, b, a)


def test_an_error_without_a_fix() -> None:
    assert UserError("no").render() == "error: no"
    assert near("x", []) == "there is none to choose from"


def test_paths_are_shown_from_here() -> None:
    assert str(Where(str(Path.cwd() / "a" / "b.yaml"), 2, 3)) == "a/b.yaml:2:3"
    assert str(Where("/nowhere/b.yaml", 2, 3)) == "/nowhere/b.yaml:2:3"
