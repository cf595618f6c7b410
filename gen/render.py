"""Render a unit: template + plan -> one flat, formatted Python module with a header, and its line map.

Invariants
 - The text depends on the unit and the templates alone: no date, path, user or host enters it.
 - A value that has no literal form in Python (an object, a float that is not finite) is refused where
   the template writes it, so no `<object at 0x...>` can end up in a generated module.
 - Every failure names the template line: `templates/k1.py.j2:12: ...`.
"""

from __future__ import annotations

import ast
import math
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jinja2
from jinja2.ext import Extension

from .findings import Finding, GenError, RenderError
from .fmt import format_python
from .linemap import LineMap, TemplateLine, line_map, mark_template, strip_marks
from .unit import Unit, digest

STATEMENT = "#:"
TEMPLATES = Path(__file__).resolve().parent.parent / "templates"


@dataclass(frozen=True)
class Rendered:
    """A generated module: `source`, SHA-256 `digest` of it, and where each line came from."""

    id: str
    source: str
    digest: str
    line_map: LineMap

    @property
    def filename(self) -> str:
        """Content-addressed: a file of this name never changes under a module that was loaded from it."""
        return f"{self.id}.{self.digest[:12]}.py"

    def origin(self, line: int) -> TemplateLine | None:
        """Template line of generated line `line` (from 1), None for the header."""
        return self.line_map[line - 1] if 0 < line <= len(self.line_map) else None

    def where(self, line: int) -> str:
        """`dsv41_k1-....py:40 (templates/k1.py.j2:12)`, for messages."""
        origin = self.origin(line)
        return f"{self.id}.py:{line}" + (f" ({origin})" if origin else "")


class _Marks(Extension):
    """Jinja hook that marks each template line before it is parsed (see linemap)."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        return mark_template(source, f"templates/{name}", STATEMENT)


def _literal(value: object) -> object:
    """What `{{ value }}` writes: text as it is; other literals, and tuples of them, as Python."""
    if isinstance(value, (jinja2.Undefined, str)):
        return value  # StrictUndefined raises when it is written
    _check_literal(value)
    return repr(value)


def _check_literal(value: object) -> None:
    if isinstance(value, (tuple, list)):
        for item in value:
            _check_literal(item)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value!r} has no literal form in Python")
    elif not (value is None or isinstance(value, (bool, int, float, str))):
        raise ValueError(
            f"a {type(value).__name__} cannot be written into a module: name the field that is meant"
        )


def _quoted(value: object) -> str:
    """Filter `py`: any literal, strings in quotes."""
    _check_literal(value)
    return repr(value)


def environment(folder: Path = TEMPLATES) -> jinja2.Environment:
    """The Jinja environment of all templates: line statements `#:`, undefined names are errors."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        line_statement_prefix=STATEMENT,
        undefined=jinja2.StrictUndefined,
        finalize=_literal,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        auto_reload=True,
        extensions=[_Marks],
    )
    env.filters["py"] = _quoted
    return env


def _place(error: BaseException, folder: Path) -> str:
    """`templates/x.py.j2:LINE` of a Jinja error: its own position, or the innermost frame in a template."""
    if isinstance(error, jinja2.TemplateSyntaxError):
        return f"templates/{error.name}:{error.lineno}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(str(folder))]
    return (
        f"templates/{Path(frames[-1].filename).relative_to(folder)}:{frames[-1].lineno}"
        if frames
        else "templates/"
    )


def _fix(error: BaseException) -> str:
    if isinstance(error, jinja2.UndefinedError):
        return "compute the value in runtime/plan and pass it, or correct the name"
    if isinstance(error, jinja2.TemplateNotFound):
        return "templates are found by their name under templates/"
    return "correct the template"


def render_text(template: str, context: Mapping[str, object], folder: Path = TEMPLATES) -> str:
    """The marked text of one template. Raises RenderError with the template's file and line."""
    try:
        return environment(folder).get_template(template).render(dict(context))
    except (jinja2.TemplateError, ValueError, TypeError, KeyError) as error:
        if isinstance(error, jinja2.TemplateNotFound):
            text, where = f"no template {error.name!r}", f"templates/{template}"
        else:
            text, where = (
                f"{error.message if isinstance(error, jinja2.TemplateError) else error}",
                _place(error, folder),
            )
        raise RenderError([Finding("GEN_TEMPLATE", where, text, _fix(error))]) from None


def header(unit: Unit) -> str:
    """The comment block on top: what this is, from which specs, what it costs, how to make it again."""
    named = max((len(name) for name, _ in unit.specs), default=0)
    specs = [f"#   {name:<{named}}  {short}" for name, short in unit.specs]
    width = max((len(label) for label, _ in unit.costs), default=0)
    costs = [f"#   {label:<{width}}  {text}" for label, text in unit.costs]
    parts = [
        f"# {unit.id}: generated from templates/{unit.template}; do not edit.",
        f"# Again: {unit.command}" if unit.command else "",
        f"# Why each number is what it is: {unit.reasons}" if unit.reasons else "",
        "#\n# Specs (first 12 digits of SHA-256 of the resolved values):" if specs else "",
        *specs,
        "#\n# Costs of one launch, by the plan:" if costs else "",
        *costs,
    ]
    return "\n".join(p for p in parts if p) + "\n"


def render(unit: Unit, folder: Path = TEMPLATES) -> Rendered:
    """Render, format and parse `unit`. Raises RenderError."""
    body, places = strip_marks(render_text(unit.template, unit.context, folder))
    top = header(unit)
    text = top + body
    places = [*[None] * top.count("\n"), *places]
    _parse(unit.id, text, places)
    try:
        source = format_python(text)
    except GenError as error:
        raise RenderError(error.findings) from None
    return Rendered(unit.id, source, digest(source), line_map(text, places, source))


def _parse(build: str, text: str, places: list[TemplateLine | None]) -> None:
    """Refuse text that is not Python, at the template line that wrote it."""
    try:
        ast.parse(text)
    except SyntaxError as error:
        line = min(max(error.lineno or 1, 1), len(places))
        snippet = text.splitlines()[line - 1].strip()
        raise RenderError(
            [
                Finding(
                    "GEN_SYNTAX",
                    str(places[line - 1] or f"{build}.py:{line}"),
                    f"{error.msg} in generated text: {snippet}",
                    "a template is Python with {{ }} only where an expression may stand",
                )
            ]
        ) from None
