"""Row counts that a bundle serves whole, and those of a server that it lacks.

A width is served if every variant of the shipped matrix exists at it: a step runs all of its layers, and
one that lacks a build would stop in the middle.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...specs.loader import Specs
from ..plan import BuildKey, at_widths, is_draft, model_of, shipped, width_report
from .manifest import command_of
from .opened import Bundle


@dataclass(frozen=True)
class Gap:
    """A width that the host captures and the bundle lacks: its missing builds, and what makes them."""

    rows: int
    draft: bool
    missing: tuple[str, ...]
    command: str

    def __str__(self) -> str:
        """One line for a log."""
        whose = "draft steps" if self.draft else "steps"
        text = f"{whose} of {self.rows} rows are not in the bundle ({len(self.missing)} builds)"
        return f"{text}; {self.command} makes them"


def widths(bundle: Bundle, specs: Specs, draft: bool = False) -> tuple[int, ...]:
    """Row counts of which the bundle has every build, of the target's layers or of the draft's."""
    variants = _variants(specs, bundle.arch, bundle.tp, draft)
    there = {build.of.rows for build in bundle.builds.values()}
    return tuple(n for n in sorted(there) if not _missing(bundle, variants, n))


def gaps(bundle: Bundle, specs: Specs, sizes: Iterable[int], drafts: Iterable[int] = ()) -> tuple[Gap, ...]:
    """What `bundle` lacks of a host's capture sizes: rows of target steps, and of draft steps.

    Sizes above the arch's row limit are no gaps: no bundle can have them.
    """
    found: list[tuple[int, bool, tuple[str, ...]]] = []
    for draft, wanted in ((False, sizes), (True, drafts)):
        variants = _variants(specs, bundle.arch, bundle.tp, draft)
        limit = _limit(specs, bundle.arch, variants)
        for rows in sorted({n for n in wanted if 0 < n <= limit}):
            if missing := _missing(bundle, variants, rows):
                found.append((rows, draft, missing))
    command = _command(bundle, specs, {(rows, draft) for rows, draft, _ in found})
    return tuple(Gap(*gap, command) for gap in found)


def _variants(specs: Specs, arch: str, tp: int, draft: bool) -> tuple[BuildKey, ...]:
    return tuple(k for k in shipped(specs) if (k.arch, k.tp, is_draft(specs, k)) == (arch, tp, draft))


def _missing(bundle: Bundle, variants: tuple[BuildKey, ...], rows: int) -> tuple[str, ...]:
    return tuple(key.id for key in at_widths(variants, [rows]) if key.id not in bundle.builds)


def _limit(specs: Specs, arch: str, variants: tuple[BuildKey, ...]) -> int:
    models = [model_of(specs, prefix) for prefix in {key.model for key in variants}]
    return min((width_report(m, specs.arch[arch]).limit.rows for m in models if m is not None), default=0)


def _command(bundle: Bundle, specs: Specs, missing: set[tuple[int, bool]]) -> str:
    """The command of a bundle that has what this one has, and the missing widths too."""
    rest = []
    for draft, option in ((False, "--widths"), (True, "--draft-widths")):
        usual = {key.rows for key in _variants(specs, bundle.arch, bundle.tp, draft)}
        held = {*widths(bundle, specs, draft), *(rows for rows, of in missing if of is draft)}
        if further := sorted(held - usual):
            rest.append(f"{option} {','.join(map(str, further))}")
    return command_of(bundle.arch, bundle.tp, " ".join(rest))
