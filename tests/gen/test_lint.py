"""What FlyDSL miscompiles in silence is found, and what it handles is not reported."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

import pytest
from toys import TEMPLATES, unit

import flymono.mono
from flymono.gen.build import linted
from flymono.gen.findings import LintError
from flymono.gen.lint import lint


def codes(body: str, decorator: str = "@flyc.jit", before: str = "") -> list[str]:
    source = before + f"{decorator}\ndef f(a, b):\n" + indent(dedent(body), "    ")
    return [finding.code for _, finding in lint(source, "x.py")]


WRONG = {
    "return in if": ("if a < b:\n    return a\nreturn b\n", ["LINT_RETURN"]),
    "return in else": ("if a < b:\n    pass\nelse:\n    return a\n", ["LINT_RETURN"]),
    "return in while": ("while a < b:\n    return a\n", ["LINT_RETURN"]),
    "return in a static if": (
        "for i in range(a):\n    if const_expr(True):\n        return i\n",
        ["LINT_RETURN"],
    ),
    "for else": ("for i in range(a):\n    pass\nelse:\n    b = a\n", ["LINT_FOR_ELSE"]),
    "negative step": ("for i in range(a, 0, -1):\n    pass\n", ["LINT_NEGATIVE_STEP"]),
    "negative literal": ("for i in range(a, 0, -(2)):\n    pass\n", ["LINT_NEGATIVE_STEP"]),
    "while True": ("while True:\n    pass\n", ["LINT_WHILE_TRUE"]),
    "while 1": ("while 1:\n    pass\n", ["LINT_WHILE_TRUE"]),
    "break": ("for i in range(a):\n    break\n", ["LINT_BREAK"]),
    "continue in if in loop": ("while a < b:\n    if a < 3:\n        continue\n", ["LINT_BREAK"]),
    "name of a branch": ("if a < b:\n    c = a\nreturn c\n", ["LINT_REGION_NAME"]),
    "name of both branches": ("if a < b:\n    c = a\nelse:\n    c = b\nreturn c\n", ["LINT_REGION_NAME"]),
    "name of a loop": ("for i in range(a):\n    c = i\nb = c\n", ["LINT_REGION_NAME"]),
    "loop index behind the loop": ("for i in range(a):\n    pass\nb = i\n", ["LINT_REGION_NAME"]),
    "name of a plain if": ("if 1 == 1:\n    c = a\nreturn c\n", ["LINT_REGION_NAME"]),
    "name read in the next region": ("if a < b:\n    c = a\nif a < 3:\n    b = c\n", ["LINT_REGION_NAME"]),
    "try": ("if a < b:\n    try:\n        pass\n    except ValueError:\n        pass\n", ["LINT_TRY"]),
}
RIGHT = {
    "return at the end": "c = a\nif a < b:\n    c = b\nreturn c\n",
    "const_expr": "if const_expr(a):\n    c = 1\n    return c\nreturn b\n",
    "range_constexpr": "for i in range_constexpr(3):\n    c = i\n    if const_expr(i):\n        break\n",
    "python list loop": "for w in [1, 2]:\n    c = w\nelse:\n    c = 3\nreturn c\n",
    "defined before": "c = a\nfor i in range(a):\n    c = c + i\nreturn c\n",
    "redefined behind": "if a < b:\n    c = a\nc = b\nreturn c\n",
    "used inside only": "if a < b:\n    c = a\n    b = c + 1\nreturn b\n",
    "nested function": "def g(x):\n    return x + a\nif a < b:\n    b = g(a)\nreturn b\n",
    "comprehension": "c = [x + 1 for x in (1, 2)]\nreturn c\n",
    "positive step": "for i in range(0, a, 2):\n    pass\n",
    "loop flag": "go = a\nwhile go != 0:\n    go = go - 1\n",
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_source_is_found(name: str) -> None:
    body, want = WRONG[name]

    assert codes(body) == want


@pytest.mark.parametrize("name", RIGHT)
def test_right_source_is_not_reported(name: str) -> None:
    assert codes(RIGHT[name]) == []


@pytest.mark.parametrize(
    "decorator", ["@flyc.kernel(name='k')", "@flyc.jit", "@jit", "@ll.device", "@kernel()"]
)
def test_every_traced_function_is_read(decorator: str) -> None:
    assert codes("while True:\n    pass\n", decorator) == ["LINT_WHILE_TRUE"]


def test_plain_functions_are_python_and_not_read() -> None:
    assert codes("if a:\n    return 1\nfor i in range(3, 0, -1):\n    pass\n", "@cache") == []


def test_an_undecorated_helper_that_branches_at_run_time_is_found_at_its_call() -> None:
    helper = "def h(p):\n    if fx.thread_idx.x == 0:\n        store(p)\n\n"

    assert codes("h(a)\n", before=helper) == ["LINT_UNDECORATED"]
    assert codes("h(a)\n", before="@flyc.jit\n" + helper) == []


def test_findings_come_at_template_lines_all_at_once() -> None:
    with pytest.raises(LintError) as caught:
        linted(unit("lint.py.j2"), TEMPLATES)
    found = [(f.code, f.where.split(" ")[1]) for f in caught.value.findings]

    assert found == [
        ("LINT_RETURN", "(templates/lint.py.j2:9)"),
        ("LINT_NEGATIVE_STEP", "(templates/lint.py.j2:10)"),
        ("LINT_REGION_NAME", "(templates/lint.py.j2:11)"),
        ("LINT_FOR_ELSE", "(templates/lint.py.j2:13)"),
        ("LINT_WHILE_TRUE", "(templates/lint.py.j2:14)"),
    ]


MONO = sorted(Path(flymono.mono.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("path", MONO, ids=[p.stem for p in MONO])
def test_the_device_library_is_clean(path: Path) -> None:
    assert [str(f) for _, f in lint(path.read_text(), path.name)] == []
