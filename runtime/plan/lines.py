"""The line rule of plain loads (attention.md 5.8).

Published data is loaded through the L2 of the reader's XCD. Within a launch that is right only if no
workgroup reads any byte of a 128-byte line before the last writer of that line has published it: an earlier
read would leave a stale copy of the whole line in that L2. The rule is checked on byte ranges, so a layout,
a flag scheme or a reader that breaks it is found before a kernel exists.

A publication is the moment at which a task's stores are visible and its flags are set; a reader has seen the
publications whose flags it waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .scratch import Scratch

Publication = tuple[str, int, int]
"""(stage, task, part of the task that is published on its own)."""
CODE_BYTES = 4
"""Scale codes lie in scratch as one int32 each (attention.md 2.2)."""


@dataclass(frozen=True)
class Write:
    """Bytes [lo, hi) of scratch that become visible with `by`."""

    by: Publication
    lo: int
    hi: int


@dataclass(frozen=True)
class Read:
    """Bytes [lo, hi) of scratch that `reader` loads plainly once it has seen `after`."""

    reader: str
    lo: int
    hi: int
    after: frozenset[Publication]


def line_faults(writes: Iterable[Write], reads: Iterable[Read], line: int) -> list[str]:
    """Every read that can pull a line whose last writer it has not waited for."""
    writers: dict[int, set[Publication]] = {}
    for w in writes:
        for at in _lines(w.lo, w.hi, line):
            writers.setdefault(at, set()).add(w.by)
    faults = []
    for r in reads:
        for at in _lines(r.lo, r.hi, line):
            missing = writers.get(at, set()) - r.after
            if missing:
                stage, task, part = min(missing)
                faults.append(
                    f"{r.reader} reads the line at byte {at * line} before {stage} {task} part {part}"
                )
    return faults


def _lines(lo: int, hi: int, line: int) -> range:
    return range(lo // line, (hi - 1) // line + 1)


def unit_faults(
    scratch: Scratch, units: Mapping[str, int], line: int, shared: Sequence[str] = ()
) -> list[str]:
    """Regions whose units (bytes that one task publishes and a reader awaits as one) meet in a line.

    Regions that are loaded past the L2 are free; of `shared` ones readers of this launch follow the units
    alone.
    """
    return [
        f"{name}: units of {unit} bytes at {scratch[name].offset} share lines of {line}: a reader of one "
        "would pull a line whose last writer it has not awaited"
        for name, unit in units.items()
        if scratch[name].load == "plain"
        and name not in shared
        and (unit % line or scratch[name].offset % line)
    ]
