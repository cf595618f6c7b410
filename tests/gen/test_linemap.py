"""From generated lines back to template lines, through Jinja and ruff."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toys import TEMPLATES, unit

from flymono.gen.fmt import format_python
from flymono.gen.linemap import TemplateLine, align, line_map, mark_template, strip_marks
from flymono.gen.render import render, render_text


def test_marks_leave_no_trace_and_name_each_line() -> None:
    text, places = strip_marks(mark_template("a = 1\n#: if x\nb = 2\n", "templates/t", "#:"))

    assert text == "a = 1\n#: if x\nb = 2\n"
    assert places == [
        TemplateLine("templates/t", 1),
        TemplateLine("templates/t", 3),
        TemplateLine("templates/t", 3),
    ]


@pytest.mark.parametrize("line", ["{{ f(", "x {% if y %}", "{# note", "a \\"])
def test_lines_that_end_in_a_tag_are_not_marked(line: str) -> None:
    assert mark_template(line + "\n", "t", "#:") == line + "\n"


def test_every_line_of_a_rendered_module_points_at_the_text_that_wrote_it() -> None:
    rendered = render(unit(chain=3), TEMPLATES)

    for number, line in enumerate(rendered.source.splitlines(), 1):
        origin = rendered.origin(number)
        if origin is None:
            assert line.startswith("#")
            continue
        written = (TEMPLATES.parent / origin.path).read_text().splitlines()[origin.line - 1]
        first = line.split("(")[0].split("=")[0].strip()
        assert not first or first.split("{{")[0] in written, (number, line, origin)


def test_a_loop_body_maps_every_repetition_to_its_one_line() -> None:
    rendered = render(unit(chain=3), TEMPLATES)
    lines = [n for n, text in enumerate(rendered.source.splitlines(), 1) if "v * 2.0" in text]

    assert len(lines) == 3
    assert len({rendered.origin(n) for n in lines}) == 1


def test_formatting_that_splits_and_joins_lines_keeps_the_map() -> None:
    before = (
        "x = f(alpha,\n  beta)\nlong_call(" + ", ".join(f"argument_{i}" for i in range(12)) + ")\ny = 'z'\n"
    )
    after = format_python(before)
    origin = align(before, after)

    assert origin[0] == 1
    assert {o for o, line in zip(origin, after.splitlines(), strict=True) if "argument" in line} == {3}
    assert origin[-1] == 4


NAMES = st.text("abcxyz", min_size=1, max_size=8).map(lambda s: "v" + s)
STATEMENTS = st.one_of(
    st.builds(lambda n, a: f"{n} = call({', '.join(a)})", NAMES, st.lists(NAMES, max_size=30)),
    st.builds(lambda n, s: f"{n}   =   '{s}'", NAMES, st.text("abc ", max_size=5)),
    st.builds(lambda n: f"if {n}:\n        {n} = 1", NAMES),
    st.just("# a comment"),
)


@given(st.lists(STATEMENTS, min_size=1, max_size=12))
def test_the_map_follows_names_through_ruff(statements: list[str]) -> None:
    before = "\n".join(statements) + "\n"
    after = format_python(before)
    places = [TemplateLine("t", n) for n in range(1, before.count("\n") + 1)]
    mapped = line_map(before, list(places), after)

    assert ast.dump(ast.parse(before)) == ast.dump(ast.parse(after))
    old = before.splitlines()
    for line, place in zip(after.splitlines(), mapped, strict=True):
        name = line.strip().rstrip("),").split(" ")[0].split(",")[0]
        if name.startswith("v"):
            assert place is not None
            assert name in old[place.line - 1]


def test_an_error_deep_in_an_include_names_the_included_file() -> None:
    marked = render_text("good.py.j2", unit().context, TEMPLATES)

    assert "templates/base.j2:1" in marked
