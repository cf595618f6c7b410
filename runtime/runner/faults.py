"""What ranks left behind when waits gave up: fault words as a report that a person can act on.

Reading needs no device: words are ints, and the plans of what may have been launched give sites their names.
The cause is looked for upstream: of a rank's own records the one first in program order counts, since a wait
that comes later may only have begun earlier.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...specs.findings import UserError
from ..plan import KernelPlan
from ..plan.faults import CODE_SHIFT, FROM, MARKED, MOST_SITES, OWN, TICKS_PER_SECOND, fault_words
from ..plan.tags import WORD, TagRule
from ..plan.waits import Site

_STATE = (1 << CODE_SHIFT) - 1
_LAUNCHES = {"k1": "K1", "k2": "K2 or FFN"}


@dataclass(frozen=True)
class Wait:
    """A wait that ended without what it waited for. Names are "?" where no plan knows the launch; `awaited`
    are the ranks whose data was missing (none: this rank's own); `seen` says in words how old the oldest data
    was; `marked`: ended by a mark and not by its bound."""

    build: str
    stage: str
    site: str
    region: str
    producer: str
    workgroup: int
    wave: int
    awaited: tuple[int, ...]
    epoch: int
    seen: str
    marked: bool

    def render(self) -> str:
        """One line."""
        whose = f" of rank {' and '.join(map(str, self.awaited))}" if self.awaited else ""
        what = f"stage {self.stage} waits for {self.region} of {self.producer}{whose} (site {self.site})"
        where = f"workgroup {self.workgroup} wave {self.wave}"
        return f"{self.build}, epoch {self.epoch}, {where}: {what}; {self.seen}"


@dataclass(frozen=True)
class FaultReport:
    """What one rank knows of a fault. `waits` are its own, in program order; `origin` is the rank whose wait
    gave up first as far as this one has heard, and `remote` that wait, if it was another rank's."""

    rank: int
    origin: int
    waits: tuple[Wait, ...]
    remote: Wait | None

    @property
    def wait(self) -> Wait | None:
        """The wait to look at: this rank's first in program order if the fault began here, or if it misses
        data of a rank that has not reported; else the other rank's."""
        first = self.waits[0] if self.waits else None
        here = first is not None and (self.origin == self.rank or bool({*first.awaited} - {self.origin}))
        return first if here or self.remote is None else self.remote

    def render(self) -> str:
        """Lines for a log: the cause, then what else had to end."""
        lines = [f"rank {self.rank}: a wait gave up on rank {self.origin}"]
        cause = self.wait
        if cause is not None:
            where = f"on rank {self.origin}: " if cause is self.remote else ""
            lines.append(f"  {where}{cause.render()}")
        rest = [w for w in self.waits if w is not cause]
        lines += [f"  with it {'(by the mark) ' if w.marked else ''}{w.render()}" for w in rest]
        if cause is not None and cause.awaited:
            others = ", ".join(f"rank {r}" for r in cause.awaited)
            lines.append(f"  look at {others}: dead, late by more than the bound, or launched something else")
        return "\n".join(lines)


class FaultError(UserError):
    """Waits of a launch gave up; nothing that was computed since can be believed."""

    exit_code = 1

    def __init__(self, reports: Sequence[FaultReport], bound: int = 0) -> None:
        lasted = f" after {bound / TICKS_PER_SECOND:g} s" if bound else ""
        super().__init__(f"waits of a kernel gave up{lasted}:\n" + "\n".join(r.render() for r in reports))
        self.reports = tuple(reports)


def fault_report(rank: int, words: Sequence[int], plans: Iterable[KernelPlan]) -> FaultReport | None:
    """The report of a rank's fault words (int32, signed or not), None if nothing is wrong.

    `plans`: those of every build that may have been launched.
    """
    layout, read = fault_words(), [int(w) % WORD for w in words]
    if len(read) < layout.words:
        raise ValueError(f"{len(read)} fault words, the kernels write {layout.words}")
    head, mark = (read[at : at + layout.stride] for at in (layout.head, layout.mark))
    if not head[0] and not mark[0]:
        return None
    known = {p.code: p for p in plans if p.sites}
    records = [read[layout.stride * n :][: layout.stride] for n in range(1, MOST_SITES + 1)]
    waits = tuple(_wait(known.get(r[3]), *r[:3]) for r in records if r[0])
    other = mark[0] and _origin(mark[0], rank) != rank
    remote = _wait(known.get(mark[0] >> CODE_SHIFT), *mark[1:]) if other else None
    return FaultReport(rank, _origin((head if head[0] else mark)[0], rank), waits, remote)


def _origin(state: int, rank: int) -> int:
    state &= _STATE
    return rank if state in (0, OWN) else state - FROM


def _wait(plan: KernelPlan | None, where: int, oldest: int, tag: int) -> Wait:
    number, workgroup, wave, mask = where & 0xFF, where >> 8 & 0xFFF, where >> 20 & 7, where >> 24
    site = next((s for s in plan.sites if s.id == number), None) if plan else None
    ranks = tuple(r for r in range(8) if mask >> r & 1)
    rule = plan.tag if plan else TagRule("", 2, 2 if tag % 2 == 0 else 1)
    epoch = (tag - rule.offset) % WORD // rule.scale
    build = plan.key.id if plan else f"an unknown {_LAUNCHES['k1' if tag % 2 else 'k2']} build"
    names = (site.stage, site.name, site.region, site.producer) if site else ("?", f"{number}", "?", "?")
    return Wait(
        build, *names, workgroup, wave, ranks, epoch, _seen(site, oldest, tag, epoch), bool(where & MARKED)
    )


def _seen(site: Site | None, oldest: int, tag: int, epoch: int) -> str:
    """How old what it found was. Words of the epoch buffer are epochs, pairs have tags."""
    if site is not None and site.space == "epoch":
        return f"the oldest mark is that of epoch {oldest - 1}" if oldest else "a mark was never made"
    if oldest == 0:
        return "it saw memory that was never written"
    behind = (tag - oldest) % WORD
    launch = "K1" if oldest % 2 else "K2 or the FFN launch"
    age = f"{behind // 2} epochs before" if behind // 2 else "the same"
    return f"the oldest tag it saw is {oldest}: {launch} of epoch {(oldest - 1) // 2} ({age})" + (
        "" if behind < WORD // 2 else ", ahead of this launch"
    )
