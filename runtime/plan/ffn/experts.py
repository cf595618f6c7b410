"""What the routed experts cost: bytes of an expert, and of a step whose picks fall on experts as they may.

The selected experts dominate a step's HBM traffic and are known at run time only. The plan states the worst
case (as many distinct experts as picks or experts there are) and answers for a given case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..arith import align_up, cdiv
from ..dims import Dims
from ..strategy import Strategy
from .shape import FfnShape


@dataclass(frozen=True)
class ExpertBytes:
    """Bytes that a rank reads of one expert, if each is read once."""

    w13: int
    w13_s: int
    w2: int
    w2_s: int

    @property
    def total(self) -> int:
        """All four tensors."""
        return self.w13 + self.w13_s + self.w2 + self.w2_s


@dataclass(frozen=True)
class Case:
    """Routed traffic of one step: bytes requested of each tensor, and bytes of the experts that it picks."""

    slots: int
    tiles: int
    requested: ExpertBytes
    unique: ExpertBytes


def expert_bytes(d: Dims, how: Strategy) -> ExpertBytes:
    """One expert: of w13 the real columns, of w2 whole rows (with the padding that the layout holds)."""
    w, c, g = d.intermediate, d.hidden, d.mx_group
    if how.weight_layout == "row_major":
        wide = d.intermediate_padded
        return ExpertBytes(2 * w * c // 2, 2 * w * c // g, c * wide // 2, c * align_up(wide // g, 8))
    return ExpertBytes(2 * w * c // 2, 2 * w * c // g, c * w // 2, c * (w // g))


def case_of(f: FfnShape, one: ExpertBytes, picks_per_expert: Sequence[int]) -> Case:
    """The traffic of a step in which the picked experts have so many picks each.

    Gate/up reads an expert once a pick tile (once in all where the step fits one tile), down once.
    """
    picked = [n for n in picks_per_expert if n]
    if sum(picked) != f.picks or len(picked) > f.max_slots or max(picked) > f.rows:
        raise ValueError(f"{f.rows} rows pick {f.picks} of {f.experts} experts, a row an expert once")
    tiles = sum(cdiv(n, f.pick_width) for n in picked) if f.by_tile else len(picked)
    slots = len(picked)
    return Case(
        slots,
        tiles,
        ExpertBytes(tiles * one.w13, tiles * one.w13_s, slots * one.w2, slots * one.w2_s),
        ExpertBytes(slots * one.w13, slots * one.w13_s, slots * one.w2, slots * one.w2_s),
    )


def widest_case(f: FfnShape) -> list[int]:
    """The most distinct experts: picks spread as evenly as they can."""
    each, more = divmod(f.picks, f.max_slots)
    return [each + 1] * more + [each] * (f.max_slots - more)
