"""Which builds a server's layers have: what the plan admits, and what a bundle holds of it.

Invariant: each distinct build is asked for once, whatever the number of layers that launch it and of plans
that a server makes while its layers come to be (`builds_of`).
"""

from __future__ import annotations

from collections.abc import Iterable

from ....specs.schema import ArchSpec, ModelSpec
from ..keys import BuildKey
from ..layer import layer_keys
from ..support import SpecSet, key_reasons
from ..unsupported import Class, Reason, Unsupported
from ..width import width_report
from .codes import ServeCode, listed, reason
from .host import Host, Path

Widths = tuple[int, ...] | None
"""Rows that a bundle has every build of; None: not known, so every width up to the limit."""


_KEPT: dict[tuple[int, int, int, int], Builds] = {}
_KEPT_MOST = 8


def builds_of(specs: SpecSet, model: ModelSpec, arch: ArchSpec, tp: int) -> Builds:
    """The builds of a model on an arch at a TP size. Specs are frozen and kept alive here, so that the
    answer for the same objects is the same."""
    key = (id(specs), id(model), id(arch), tp)
    if key not in _KEPT:
        while len(_KEPT) >= _KEPT_MOST:
            _KEPT.pop(next(iter(_KEPT)))
        _KEPT[key] = Builds(specs, model, arch, tp)
    return _KEPT[key]


class Builds:
    """Which builds have a plan on an arch at a TP size, each distinct build asked once.

    Reasons do not depend on a step's rows, but for the row limit: they are asked at its widest step.
    """

    def __init__(self, specs: SpecSet, model: ModelSpec, arch: ArchSpec, tp: int) -> None:
        self.specs, self.model, self.arch, self.tp = specs, model, arch, tp
        self._known: dict[BuildKey, tuple[Reason, ...]] = {}
        self.limit, self.limit_why, self.everywhere = 1, "", list[Reason]()
        try:
            limit = width_report(model, arch).limit
            self.limit, self.limit_why = limit.rows, f"{limit.by}: {limit.why}"
        except Unsupported as refused:
            self.everywhere += refused.reasons
        self.everywhere += [r for r in self.reasons(self.ffn(False)) if r.code.klass is Class.STOP]

    def ffn(self, draft: bool, rows: int | None = None) -> BuildKey:
        """The FFN launch of a mixture."""
        return BuildKey(
            "ffn", self.arch.name, self.tp, rows or self.limit, model=self.model.prefix, draft=draft
        )

    def whole(self, layer: int, rows: int | None = None) -> tuple[BuildKey, ...]:
        """The launches of a whole layer."""
        return layer_keys(self.model, self.arch, self.tp, rows or self.limit, layer)

    def reasons(self, key: BuildKey) -> tuple[Reason, ...]:
        """Why `key` has no plan."""
        if key not in self._known:
            self._known[key] = tuple(key_reasons(self.specs, key))
        return self._known[key]

    def launches(self, layer: int, path: Path, draft: bool, rows: int) -> tuple[BuildKey, ...]:
        """What a layer launches on its path in a step of `rows`."""
        if path is Path.WHOLE:
            return self.whole(layer, rows)
        return (self.ffn(draft, rows),) if path is Path.FFN else ()

    def widths(self, layers: Iterable[tuple[int, Path, bool]], held: frozenset[str] | None) -> Widths:
        """Widths for which the `held` builds hold every launch of `layers` (number, path, draft); None where
        what is held is not known or nothing is launched."""
        wanted = [one for one in layers if one[1] is not Path.STOCK]
        if held is None or not wanted:
            return None
        rows = {BuildKey.parse(name).rows for name in held}
        return tuple(s for s in sorted(rows) if s <= self.limit and self._has(wanted, s, held))

    def _has(self, layers: list[tuple[int, Path, bool]], rows: int, held: frozenset[str]) -> bool:
        needed = {key for layer, path, draft in layers for key in self.launches(layer, path, draft, rows)}
        return all(key.id in held for key in needed)


def width_reason(host: Host, rows: list[int], built: Widths, limit: int, *, draft: bool) -> Reason:
    """The reason of widths that the bundle lacks, with the nearest that it has: the next wider one if any."""
    known = built or ()
    near = min((s for s in known if s >= rows[-1]), default=max(known, default=0))
    return reason(
        ServeCode.WIDTH_NOT_BUILT, what="draft steps of " if draft else "", rows=",".join(map(str, rows)),
        limit=limit, built=listed(known), arch=host.arch, tp=host.tp, near=near or "no",
    )  # fmt: skip
