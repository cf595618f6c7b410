"""What a view of a plan shows, for the terminal and for HTML: where tasks sit, what crosses from launch to
launch, which bytes belong together.

Invariants
 - Placed tasks of all workgroups and queued ones add up to the stage's tasks.
 - Every pointer argument of a launch is in exactly one group; a name without a group is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .arith import cdiv
from .base import KernelPlan
from .layer import LayerPlan
from .placement import Stage
from .traffic import Traffic

GROUPS = {
    "attention weights": "wqkv wqkv_s qn_w kvn_w wqb wqb_s cos_sin sink woa woa_s wob wob_s",
    "selected experts": "w13 w13_s w2 w2_s",
    "shared expert": "sgu sgu_s sw2 sw2_s",
    "seam and router": "hc_fn hc_scale hc_base attn_w ffn_w gate_w bias",
    "caches": "swa comp zrec",
    "key tables": "kt klen pos slot swa_idx swa_lens comp_bt topk t2r",
    "activations": "part pend res_in post_in comb_in pre_in q normed_out qr_out "
    "res_out post_out comb_out pre_out out",
    "scratch": "scratch",
    "epoch, peers": "epoch fault peers tl",
}
"""Launch arguments that a reader thinks of together, by ABI name."""


@dataclass(frozen=True)
class Placed:
    """One stage on the grid: tasks that the table gives each workgroup, and those that a queue hands out.

    `first` is the workgroup of task 0: workgroups below it are reached past the end of the grid.
    """

    stage: str
    tasks: int
    first: int
    held: tuple[int, ...]
    queued: int

    def columns(self, each: int) -> list[tuple[int, bool]]:
        """For every `each` workgroups: tasks of the busiest, and whether all with tasks are past the wrap."""
        starts = range(0, len(self.held), each)
        parts = [range(at, min(at + each, len(self.held))) for at in starts]
        return [(max(self.held[w] for w in part), self._wrapped(part)) for part in parts]

    def _wrapped(self, part: Iterable[int]) -> bool:
        return all(w < self.first for w in part if self.held[w])

    @property
    def wraps(self) -> bool:
        """Whether tasks run past the last workgroup and go on at workgroup 0."""
        return any(self.held[: self.first])


@dataclass(frozen=True)
class Moved:
    """Bytes of a group of arguments in one launch; scratch stays in the Infinity Cache."""

    group: str
    arguments: tuple[Traffic, ...]

    @property
    def requested(self) -> int:
        """Bytes that lanes ask for: loads and stores."""
        return sum(t.requested_read + t.requested_write for t in self.arguments)

    @property
    def unique(self) -> int:
        """Each byte once, loaded or stored; 0 of scratch, whose sheet states the buffer's size."""
        return sum(t.unique_read + t.unique_write for t in self.arguments if t.name != "scratch")

    @property
    def notes(self) -> tuple[tuple[str, str], ...]:
        """(argument names, why they are asked for as they are), a line a reason."""
        why = dict[str, list[str]]()
        for t in self.arguments:
            if t.note and t.requested_read:
                why.setdefault(t.note, []).append(t.name)
        return tuple((" ".join(names), note) for note, names in why.items())


@dataclass(frozen=True)
class Passed:
    """An argument that one launch writes and a later one reads, each under its own name."""

    writer: str
    reader: str
    name: str
    becomes: str
    bytes: int


def placed(plan: KernelPlan) -> tuple[Placed, ...]:
    """Every stage that has tasks, in program order."""
    return tuple(_placed(s) for s in plan.stages if s.tasks)


def _placed(stage: Stage) -> Placed:
    fixed = stage.tasks if stage.queue is None else min(stage.tasks, stage.queue.static)
    held = tuple(sum(task < fixed for task in stage.tasks_of(w)) for w in range(stage.grid))
    return Placed(stage.name, stage.tasks, stage.first, held, stage.tasks - fixed)


def place_text(stage: Stage) -> str:
    """The workgroups of a stage in words: `148..255 0..39`."""
    used, grid = min(stage.tasks, stage.span), stage.grid
    if used * stage.stride >= grid:
        return "all" if not stage.first else f"all, from {stage.first}"
    step = f" by {stage.stride}" if stage.stride > 1 else ""
    last = stage.first + (used - 1) * stage.stride
    if last < grid:
        return (f"{stage.first}..{last}" if used > 1 else f"{stage.first}") + step
    below = last % stage.stride if stage.stride > 1 else 0
    return f"{stage.first}..{grid - 1} {below}..{last % grid}{step}"


def part_size(grid: int, columns: int) -> int:
    """Workgroups a column, if `columns` are to be had at most: equal parts, unless they would be few."""
    need = cdiv(grid, max(1, columns))
    return next((n for n in range(need, 2 * need + 1) if grid % n == 0), need)


def moved(plan: KernelPlan) -> tuple[Moved, ...]:
    """Bytes of a launch by group, in the order of `GROUPS`; groups that nothing moves are left out."""
    known = {name: group for group, names in GROUPS.items() for name in names.split()}
    found = dict[str, list[Traffic]]()
    for t in plan.cost.traffic:
        found.setdefault(known[t.name], []).append(t)
    all_of = [Moved(group, tuple(found.get(group, ()))) for group in GROUPS]
    return tuple(m for m in all_of if m.requested)


def pushed(plan: KernelPlan) -> int:
    """Bytes that a rank stores into the peer buffers, its own included; as many it reads from its own."""
    peer = getattr(plan, "peer", None)
    return 0 if peer is None else int(peer.pushed)


def passed(layer: LayerPlan) -> tuple[Passed, ...]:
    """What launches hand to later ones through arguments: `res_out` is the next one's `res_in`."""
    found = list[Passed]()
    for i, writer in enumerate(layer.plans):
        for reader in layer.plans[i + 1 :]:
            found += _between(writer, reader)
    return tuple(found)


def _between(writer: KernelPlan, reader: KernelPlan) -> list[Passed]:
    taken = {a.name for a in reader.abi.arguments if a.type == "ptr" and a.read}
    found = []
    for t in writer.cost.traffic:
        into = t.name if t.name in taken else t.name.removesuffix("_out") + "_in"
        if t.unique_write and into in taken and t.name not in ("scratch", "epoch"):
            found.append(Passed(writer.key.kind, reader.key.kind, t.name, into, t.unique_write))
    return found


def terms(plan: KernelPlan) -> list[tuple[str, int, str]]:
    """What the bound is the largest of: name, nanoseconds, how they come about."""
    b = plan.cost.bound
    named = (("HBM", b.hbm_ns), ("matrix pipe", b.mfma_ns), ("hand-offs", b.handoff_ns))
    return [(name, ns, why) for (name, ns), why in zip(named, _parts(b.why), strict=True)]


def _parts(why: str) -> list[str]:
    """The sentence of a bound by its terms, long numbers with separators."""
    return [re.sub(r"\d{5,}", lambda m: f"{int(m[0]):,}", part) for part in why.split("; ")]


def same_limit(plans: Sequence[KernelPlan]) -> bool:
    """Whether one row limit holds for all launches."""
    return len({p.row_limit for p in plans}) == 1
