"""What every HTML page shares: plotly figures with the script embedded once, and the shell around them.

Invariants
 - A page fetches nothing: script and style are in it, and no tag names another place.
 - The same content gives the same bytes: elements are numbered, not named at random.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

Figure = Any
"""A plotly figure; plotly publishes no types."""

KINDS = {"pairs": "#4c78a8", "flags": "#f58518", "data": "#54a24b", "words": "#9d755d"}
"""Colours of what a region holds, in every figure."""
PALETTE = ("#4c78a8", "#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d", "#bab0ac")
_CONFIG = {"displaylogo": False, "responsive": True}


class Figures:
    """Turns figures into HTML. One object a page: it numbers them, and `script` is empty without any."""

    def __init__(self) -> None:
        self._next = count(1)
        self._any = False

    def html(self, figure: Figure) -> Markup:
        """The element of one figure, without plotly's script."""
        self._any = True
        name = f"figure-{next(self._next)}"
        text = figure.to_html(full_html=False, include_plotlyjs=False, div_id=name, config=_CONFIG)
        return Markup(text)

    def blocks(self, titled: Iterable[tuple[str, Figure | None]]) -> list[tuple[str, Markup]]:
        """Titles and elements of the figures that there are."""
        return [(title, self.html(figure)) for title, figure in titled if figure is not None]

    @property
    def script(self) -> Markup:
        """Plotly itself, if any figure needs it."""
        if not self._any:
            return Markup()
        from plotly.offline import get_plotlyjs

        return Markup(get_plotlyjs())


def render(template: Path, figures: Figures, **values: object) -> str:
    """A template that extends `page.html.j2`, filled; ask after every figure has been made."""
    environment = Environment(
        loader=FileSystemLoader([template.parent, Path(__file__).parent]),
        undefined=StrictUndefined,
        autoescape=select_autoescape(["j2"]),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["n"] = lambda value: f"{value:,}" if isinstance(value, int) else value
    return environment.get_template(template.name).render(script=figures.script, **values)
