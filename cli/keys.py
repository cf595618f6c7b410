"""Options that name builds, shared by gen, build and diff."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..specs.findings import UserError

if TYPE_CHECKING:
    from ..runtime.plan import BuildKey
    from ..specs.loader import Specs


def key_of(specs: Specs, arch: str, tp: int | None, rows: int, **rest: object) -> BuildKey:
    """A K1 key; without `tp` the arch's first size."""
    from ..runtime.plan import BuildKey

    offered = specs.arch[arch].tp
    return replace(BuildKey("k1", arch, offered[0] if tp is None else tp, rows), **rest)  # type: ignore[arg-type]


def selected(specs: Specs, filters: Sequence[str]) -> list[BuildKey]:
    """The build of each id in `filters`, shipped or not, and the shipped builds that match a part of an id
    or a glob; all shipped builds without filters.

    Raises UserError if a filter matches nothing.
    """
    from ..gen.units import shipped

    every = shipped(specs)
    found = [key for text in filters for key in _matching(text, every)]
    return list(dict.fromkeys(found)) if filters else list(every)


def _matching(text: str, every: Sequence[BuildKey]) -> list[BuildKey]:
    """A whole id names one build, although it may be a part of others (-s1 of -s12)."""
    from ..runtime.plan import BuildKey

    try:
        return [BuildKey.parse(text)]
    except ValueError:
        hits = [key for key in every if text in key.id or fnmatch.fnmatchcase(key.id, text)]
    if not hits:
        raise UserError(f"no shipped build matches {text!r}", fix="flymono build --list prints their ids")
    return hits
