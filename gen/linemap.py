"""From a line of a generated module back to the line of the template that wrote it.

Invariants
 - While a template is loaded, every line that can reach the output gets an invisible mark with its own
   file and line (`mark_template`). Jinja copies marks like any text, so loops, includes and macros are
   attributed to the line that wrote the text, not to the one that called it.
 - `strip_marks` removes every mark again before anything else sees the text.
 - ruff only moves tokens between lines. `align` therefore maps formatted to unformatted lines over the
   token sequence, in which everything ruff may add or drop (line ends, commas, brackets, quotes) is left out.
"""

from __future__ import annotations

import difflib
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

# Private-use characters: they cannot stand in a template, and are no white space for Jinja or Python.
_OPEN, _CLOSE = "\ue000", "\ue001"
_MARK = re.compile(f"{_OPEN}([^{_CLOSE}]*):(\\d+){_CLOSE}")
_TAGS = re.compile(r"\{\{|\}\}|\{%|%\}|\{#|#\}")
_NOISE = {"(", ")", ",", "[", "]"}
_SKIP = {tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


@dataclass(frozen=True, order=True)
class TemplateLine:
    """A place in a template: path relative to the project's `templates/` parent, and line from 1."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


LineMap = tuple[TemplateLine | None, ...]
"""Entry i: the template line of generated line i + 1, None where gen itself wrote it (the header)."""


def mark_template(source: str, path: str, statement_prefix: str) -> str:
    """`source` with a mark at the end of each line whose text can reach the output.

    Left alone: line statements, and lines that end inside or with a Jinja tag (a mark there would be
    part of the expression, or keep `trim_blocks` from seeing the line end).
    """
    out, open_tag = [], ""
    for number, line in enumerate(source.splitlines(), 1):
        statement = not open_tag and line.lstrip().startswith(statement_prefix)
        for tag in () if statement else _TAGS.findall(line):
            open_tag = _next_state(open_tag, tag)
        plain = not (statement or open_tag or line.rstrip().endswith(("%}", "#}", "\\")))
        out.append(f"{line}{_OPEN}{path}:{number}{_CLOSE}" if plain else line)
    return "\n".join(out) + ("\n" if source.endswith("\n") else "")


def _next_state(open_tag: str, tag: str) -> str:
    """Which Jinja tag is open after `tag`; closers of another kind are text."""
    closers = {"{{": "}}", "{%": "%}", "{#": "#}"}
    if open_tag:
        return "" if tag == closers[open_tag] else open_tag
    return tag if tag in closers else ""


def strip_marks(marked: str) -> tuple[str, list[TemplateLine | None]]:
    """Rendered text without marks, and the template line of each of its lines.

    A value that spans lines carries one mark at its end; its earlier lines take that of the next mark.
    """
    lines, places = [], list[TemplateLine | None]()
    for raw in marked.splitlines():
        found = _MARK.findall(raw)
        lines.append(_MARK.sub("", raw).rstrip())
        places.append(TemplateLine(found[-1][0], int(found[-1][1])) if found else None)
    following: TemplateLine | None = None
    for i in range(len(places) - 1, -1, -1):
        following = places[i] = places[i] or following
    return "\n".join(lines) + "\n", places


def _tokens(source: str) -> Iterator[tuple[str, int, int]]:
    """(normalised text, first line, last line) of each token that ruff keeps."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in _SKIP or token.string in _NOISE:
            continue
        text = (
            re.sub(r"^[rRbBuUfF]*['\"]+|['\"]+$", "", token.string)
            if token.type == tokenize.STRING
            else token.string
        )
        yield text.strip(), token.start[0], token.end[0]


def align(before: str, after: str) -> list[int | None]:
    """For each line of `after` (from 0) the line of `before` (from 1) that its first token came from.

    Blank lines and lines of brackets alone take the line of the token before them.
    """
    old, new = list(_tokens(before)), list(_tokens(after))
    origin: list[int | None] = [None] * len(after.splitlines())
    matcher = difflib.SequenceMatcher(None, [t[0] for t in old], [t[0] for t in new], autojunk=False)
    pairs = (
        zip(old, new, strict=True)
        if [t[0] for t in old] == [t[0] for t in new]
        else ((old[a + i], new[b + i]) for a, b, n in matcher.get_matching_blocks() for i in range(n))
    )
    for (_, old_first, old_last), (_, first, last) in pairs:
        for step in range(last - first + 1):
            if origin[first - 1 + step] is None:
                origin[first - 1 + step] = min(old_first + step, old_last)
    for i in range(1, len(origin)):
        origin[i] = origin[i] if origin[i] is not None else origin[i - 1]
    return origin


def line_map(unformatted: str, places: list[TemplateLine | None], formatted: str) -> LineMap:
    """Template line of each line of `formatted`, through `unformatted` whose lines have `places`."""
    return tuple(None if o is None else places[o - 1] for o in align(unformatted, formatted))
