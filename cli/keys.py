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
    """Shipped builds that match any of `filters` (an id, a part of one, or a glob); all without filters.

    An id that is no shipped build is taken as it is, if it has the form of one. Raises UserError if a filter
    matches nothing.
    """
    from ..gen.units import shipped
    from ..runtime.plan import BuildKey

    every, out = shipped(specs), []
    for text in filters:
        hits = [k for k in every if k.id == text] or [
            k for k in every if text in k.id or fnmatch.fnmatchcase(k.id, text)
        ]
        if not hits:
            try:
                hits = [BuildKey.parse(text)]
            except ValueError:
                raise UserError(
                    f"no shipped build matches {text!r}", fix="flymono build --list prints their ids"
                ) from None
        out += hits
    return list(dict.fromkeys(out)) if filters else list(every)
