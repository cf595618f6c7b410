"""Rendering: the same text everywhere, a header that explains, errors at template lines."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from toys import TEMPLATES, unit

from flymono.gen.findings import RenderError
from flymono.gen.fmt import format_python
from flymono.gen.linemap import strip_marks
from flymono.gen.render import environment, header, render


def refused(template: str, **context: object) -> str:
    with pytest.raises(RenderError) as caught:
        render(unit(template, **context), TEMPLATES)
    return str(caught.value)


def test_the_same_unit_gives_the_same_bytes_and_name() -> None:
    one, two = render(unit(), TEMPLATES), render(unit(), TEMPLATES)

    assert one == two
    assert one.filename == f"toy-good-gfx942.{one.digest[:12]}.py"
    assert render(unit(grid=8), TEMPLATES).filename != one.filename


def test_the_header_names_template_specs_costs_and_command() -> None:
    top = header(unit())

    for part in (
        "toy-good-gfx942",
        "templates/good.py.j2",
        "arch/gfx942",
        "0123456789ab",
        "8,192",
        "flymono gen toy --arch gfx942",
    ):
        assert part in top


def test_the_header_names_where_reasons_are() -> None:
    assert "flymono plan show X" in header(replace(unit(), reasons="flymono plan show X"))
    assert "Why each number" not in header(unit())


def test_no_path_date_or_host_enters_the_text(tmp_path: Path) -> None:
    source = render(unit(), TEMPLATES).source

    assert str(TEMPLATES) not in source
    assert not re.search(r"20\d\d-\d\d|/home|/tmp|/usr", source)


def test_the_text_is_formatted() -> None:
    source = render(unit(), TEMPLATES).source

    assert format_python(source) == source


def test_an_undefined_name_is_an_error_at_its_template_line() -> None:
    assert refused("undefined.py.j2").startswith(
        "templates/undefined.py.j2:7: GEN_TEMPLATE 'width' is undefined"
    )


def test_text_that_is_not_python_is_an_error_at_its_template_line() -> None:
    assert refused("syntax.py.j2").startswith("templates/syntax.py.j2:7: GEN_SYNTAX '(' was never closed")


def test_a_template_syntax_error_is_an_error_at_its_template_line(tmp_path: Path) -> None:
    (tmp_path / "broken.py.j2").write_text("x = 1\n#: if grid\ny = 2\n")
    with pytest.raises(
        RenderError, match=r"^templates/broken\.py\.j2:\d: GEN_TEMPLATE Unexpected end of template"
    ):
        render(replace(unit(), template="broken.py.j2"), tmp_path)


def test_a_missing_template_is_named() -> None:
    assert "GEN_TEMPLATE no template 'nowhere.py.j2'" in refused("nowhere.py.j2")


@pytest.mark.parametrize("thing", [object(), float("inf"), (1, float("nan")), {"a": 1}, Path("x")])
def test_a_value_without_a_literal_form_is_refused_where_it_is_written(thing: object) -> None:
    assert refused("object.py.j2", thing=thing).startswith("templates/object.py.j2:7: GEN_TEMPLATE")


def written(template: str, value: object) -> str:
    return strip_marks(environment(TEMPLATES).from_string(template).render(v=value))[0].strip()


@pytest.mark.parametrize(
    ("value", "text"), [(3, "3"), ((1, 2), "(1, 2)"), (0.5, "0.5"), (None, "None"), (True, "True")]
)
def test_literals_are_written_as_python(value: object, text: str) -> None:
    assert written("{{ v }}", value) == text


def test_the_py_filter_quotes_text() -> None:
    assert written("{{ v | py }}", "a'b") == '"a\'b"'
