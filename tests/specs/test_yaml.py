"""The strict reader: what YAML it refuses, where, and that nothing makes it raise."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flymono.specs.scalars import Trap, read_plain
from flymono.specs.tree import MAX_BYTES, MAX_DEPTH, MAX_NODES, plain, read, read_text

BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}]\n" for i in range(1, 30))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", ["3:1 DUPLICATE_KEY"]),
        ("m:\n  x: 1\n  x: 2\n  x: 3\n", ["3:3 DUPLICATE_KEY", "4:3 DUPLICATE_KEY"]),
        ("a: no\n", ["1:4 AMBIGUOUS"]),
        ("a: [1, 08, 1e5, 1_000, 12:30, +1]\n", [f"1:{c} AMBIGUOUS" for c in (8, 12, 17, 24, 31)]),
        ("a: ~\nb: null\nc:\n", ["1:4 AMBIGUOUS", "2:4 AMBIGUOUS", "3:3 EMPTY_VALUE"]),
        ("a: 2026-01-02\n", ["1:4 AMBIGUOUS"]),
        ("yes: 1\n", ["1:1 AMBIGUOUS"]),
        ("1: x\n", ["1:1 BAD_KEY"]),
        ('"a": 1\n', ["1:1 BAD_KEY"]),
        ("? [a, b]\n: 1\n", ["1:3 BAD_KEY"]),
        ("a:\n\tb: 1\n", ["2:1 TAB"]),
        ("a: 1\t# x\nb:\t2\n", ["1:5 TAB", "2:3 TAB"]),
        ("a: &x 1\nb: 2\n", ["1:4 ANCHORS"]),
        (BOMB, ["1:5 ANCHORS"]),
        ("<<: {a: 1}\n", ["1:1 MERGE_KEY"]),
        ("a: !!int 1\n", ["1:4 TAG"]),
        ("a: !!python/object/apply:os.system [ls]\n", ["1:4 TAG"]),
        ("a: 1\n---\nb: 2\n", ["2:1 SEVERAL_DOCUMENTS"]),
        ("", ["1:1 EMPTY_FILE"]),
        ("# only a remark\n", ["1:1 EMPTY_FILE"]),
        ("---\n", ["1:1 EMPTY_FILE"]),
        ("- a\n- b\n", ["1:1 WRONG_TYPE"]),
        ("just words\n", ["1:1 WRONG_TYPE"]),
        ("a: [1, 2\n", ["2:1 YAML_SYNTAX"]),
        ('a: "x\n', ["2:1 YAML_SYNTAX"]),
        ("a: b: c\n", ["1:5 YAML_SYNTAX"]),
        ("a: 1\n b: 2\n", ["2:3 YAML_SYNTAX"]),
        ("a: \x01\n", ["1:4 YAML_SYNTAX"]),
        ("[" * 10_000, [f"1:{MAX_DEPTH + 1} TOO_DEEP"]),
        ("{a: " * 10_000, [f"1:{4 * MAX_DEPTH + 1} TOO_DEEP"]),
        ("a: [" + "1, " * (MAX_NODES + 10) + "1]\n", [f"1:{5 + 3 * (MAX_NODES - 3)} TOO_MANY_NODES"]),
    ],
)
def test_refused(text: str, expected: list[str]) -> None:
    findings = read_text(text, "f.yaml").findings
    assert [f"{f.where.line}:{f.where.col} {f.code.name}" for f in findings] == expected


def test_several_findings_of_one_file_come_together() -> None:
    document = read_text("a: no\nb: {c: 08, c: 1}\nd:\n", "f.yaml")
    assert [f.code.name for f in document.findings] == [
        "AMBIGUOUS",
        "AMBIGUOUS",
        "DUPLICATE_KEY",
        "EMPTY_VALUE",
    ]


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"a: 1\nb: \xff\n", "2:4"),
        (b"\xe4: 1\n", "1:1"),
        (b"a: 1\nb: \xc3\xa4\xe4\n", "2:5"),
        (b"\xff\xfea\x00", "1:1"),
    ],
)
def test_bytes_that_are_not_utf8(tmp_path: Path, data: bytes, place: str) -> None:
    path = tmp_path / "f.yaml"
    path.write_bytes(data)
    (finding,) = read(path).findings
    assert f"{finding.where.line}:{finding.where.col} {finding.code.name}" == f"{place} NOT_UTF8"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "big.yaml").write_bytes(b"# " + b"x" * MAX_BYTES)
    (tmp_path / "folder.yaml").mkdir()
    os.mkfifo(tmp_path / "pipe.yaml")  # not to be waited for
    names = ("big.yaml", "folder.yaml", "none.yaml", "pipe.yaml")
    codes = [read(tmp_path / name).findings[0].code.name for name in names]
    assert codes == ["TOO_LARGE", "UNREADABLE", "UNREADABLE", "UNREADABLE"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("17", 17), ("-3", -3), ("0x4c", 76), ("0xFF", 255), ("1.0", 1.0), ("-0.5", -0.5),
        ("1.0e-20", 1e-20),
        ("2.5e+3", 2500.0), ("true", True), ("false", False), ("word", "word"), ("two words", "two words"),
        ("f32_16x16x4_f32", "f32_16x16x4_f32"), ("GB/s", "GB/s"), ("e5", "e5"), ("0x", "0x"),
        ("v1.0", "v1.0"),
    ],
)  # fmt: skip
def test_forms_that_all_readers_agree_on(text: str, value: object) -> None:
    got = read_plain(text)
    assert (got, type(got)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("08", "write 8 "), ("1e5", "write 100000.0, or 100000 "), ("1_000", "write 1000"),
        (".5", "write 0.5"),
        ("5.", "write 5.0"), ("+7", "write 7"), ("no", '"no"'), ("ON", '"ON"'), ("1e-7", "write an int (17"),
        ("0o17", "write an int"), ("9" * 30, "write an int"), (".inf", "write an int"),
        ("2001-02-03", '"2001-02-03"'),
    ],
)  # fmt: skip
def test_the_fix_names_an_admitted_form(text: str, fix: str) -> None:
    trap = read_plain(text)
    assert isinstance(trap, Trap)
    assert fix in trap.hint


@given(st.text())
@example("0x" + "f" * 400)
@example("9" * 5000)
@example("1." + "0" * 5000)
def test_every_plain_scalar_has_an_answer(text: str) -> None:
    if text:
        assert isinstance(read_plain(text), bool | int | float | str | Trap)


@given(st.text(alphabet="ab:[]{}-&*!|>'\"%@`#?,\n \t\\0189.e~=<\x00\x85\u2028\ud800é", max_size=60))
def test_no_text_makes_the_reader_raise(text: str) -> None:
    document = read_text(text, "f.yaml")
    assert document.findings or document.tree is not None
    if document.tree is not None:
        plain(document.tree)


@given(st.binary(max_size=80))
def test_no_bytes_make_the_reader_raise(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.yaml"
    path.write_bytes(data)
    document = read(path)
    assert document.findings or document.tree is not None
