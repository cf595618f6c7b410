"""The one name of a build: `<model>_<kind>-<arch>-tp<T>-s<rows>[-r<ratio>]` and what is not the default.

Invariants
 - `BuildKey.parse(key.id) == key` and `BuildKey.parse(text).id == text`: an id has one spelling.
 - A key says nothing about whether the build is supported; `plan_of` answers that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...specs.findings import UserError

DEFAULT_WINDOW = 128

_NUMBER = r"(?:0|[1-9][0-9]*)"
_ID = re.compile(
    rf"(?P<model>[a-z0-9]+)_(?P<kind>[a-z0-9]+)-(?P<arch>[a-z0-9_]+)"
    rf"-tp(?P<tp>{_NUMBER})-s(?P<rows>{_NUMBER})(?:-r(?P<ratio>{_NUMBER}))?"
    rf"(?P<nofold>-nofold)?(?P<index>-index)?(?:-w(?P<window>{_NUMBER}))?(?P<draft>-draft)?"
    rf"(?P<timeline>-timeline)?"
)
FORM = (
    "<model>_<kind>-<arch>-tp<T>-s<rows>[-r<ratio>][-nofold][-index][-w<window>][-draft][-timeline], "
    "no -r<ratio> for ffn"
)
WITHOUT_RATIO = frozenset({"ffn"})
"""Kinds that depend on no cache: their keys have the default ratio, which their ids leave out."""
DEFAULT_RATIO = 2


class BadBuildId(UserError, ValueError):
    """The text is not how a build is spelled."""

    __str__ = UserError.__str__


@dataclass(frozen=True, order=True)
class BuildKey:
    """One compiled kernel: `rows` is exact and not a bucket, `window` the width of the window list,
    `draft` the expert mixture of a draft layer (K1 has none: its draft builds differ by their window)."""

    kind: str
    arch: str
    tp: int
    rows: int
    ratio: int = DEFAULT_RATIO
    fold: bool = True
    index: bool = False
    window: int = DEFAULT_WINDOW
    timeline: bool = False
    model: str = "dsv41"
    draft: bool = False

    @property
    def id(self) -> str:
        """The build id; file names, symbols, trace tracks and test ids carry it."""
        parts = [f"{self.model}_{self.kind}", self.arch, f"tp{self.tp}", f"s{self.rows}"]
        plain = self.kind in WITHOUT_RATIO and self.ratio == DEFAULT_RATIO
        parts += [] if plain else [f"r{self.ratio}"]
        parts += ["nofold"] if not self.fold else []
        parts += ["index"] if self.index else []
        parts += [f"w{self.window}"] if self.window != DEFAULT_WINDOW else []
        parts += ["draft"] if self.draft else []
        parts += ["timeline"] if self.timeline else []
        return "-".join(parts)

    @property
    def symbol(self) -> str:
        """The id as a C identifier, for kernel symbols and Python modules."""
        return self.id.replace("-", "_")

    @classmethod
    def parse(cls, text: str) -> BuildKey:
        """The key of an id; BadBuildId (a ValueError) for anything but its one spelling."""
        match = _ID.fullmatch(text)
        if match is None:
            raise BadBuildId(f"{text!r} is not a build id", fix=f"the form is {FORM}")
        key = cls._from_match(match)
        if key.id != text:
            raise BadBuildId(f"{text!r} is not how that build is spelled", fix=f"write {key.id}")
        return key

    @classmethod
    def _from_match(cls, match: re.Match[str]) -> BuildKey:
        part = match.groupdict()
        return cls(
            kind=part["kind"],
            arch=part["arch"],
            tp=int(part["tp"]),
            rows=int(part["rows"]),
            ratio=DEFAULT_RATIO if part["ratio"] is None else int(part["ratio"]),
            fold=part["nofold"] is None,
            index=part["index"] is not None,
            window=int(part["window"] or DEFAULT_WINDOW),
            timeline=part["timeline"] is not None,
            model=part["model"],
            draft=part["draft"] is not None,
        )
