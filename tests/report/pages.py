"""Reading a page as a browser would, as far as tests need it."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Text outside scripts, places that the page names, ids; AssertionError where tags do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.places: list[str] = []
        self.ids: list[str] = []
        self.cells: list[str] = []
        self.scripts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self._open.append(tag)
        named = dict(attrs)
        self.places += [v or "" for k, v in attrs if k in ("src", "href", "action", "data", "poster")]
        self.ids += [named["id"] or ""] if "id" in named else []
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open[-1] == tag, f"</{tag}> closes {self._open[-1:]}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            self.scripts.append(data)
            return
        if any(tag in ("td", "th") for tag in self._open):
            self.cells[-1] += data
        if not self._open or self._open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        """Everything that is read, blanks made single."""
        return re.sub(r"\s+", " ", " ".join(self.words))

    def check_offline(self) -> None:
        """Names no place but its own anchors, and plotly's script is in it once."""
        assert [p for p in self.places if not p.startswith("#")] == []
        assert {p[1:] for p in self.places} <= set(self.ids)
        assert len(self.ids) == len(set(self.ids)), "an id twice"
        assert sum(len(s) > 1_000_000 for s in self.scripts) == 1
        assert "@import" not in self.text
