"""Verdicts: one output of one stage against its budget, with the worst element and a histogram.

The rule of a verdict (bits, bound, rounded) must be the rule that the numerics spec states for that output;
a comparison that the spec does not know is an error and not a pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from ..specs.findings import UserError
from ..specs.schema import Budget, NumericsSpec
from .bounds import Value

RATIO_EDGES = (0.0, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0)


@dataclass(frozen=True)
class Verdict:
    """How one output fared. `worst` and `budget` belong to the same element and are in `unit`."""

    stage: str
    output: str
    shape: tuple[int, ...]
    worst: float
    budget: float
    ok: bool
    unit: str
    where: str
    histogram: tuple[tuple[str, int], ...]

    @property
    def name(self) -> str:
        return f"{self.stage}.{self.output}"


class BudgetError(UserError, LookupError):
    """A numerics spec that does not state, or states otherwise, what an output is compared by."""


@dataclass(frozen=True)
class Judge:
    """Makes verdicts of one stage under a numerics spec."""

    numerics: NumericsSpec
    stage: str

    def _budget(self, output: str, rule: str) -> Budget:
        found = [b for b in self.numerics.budgets if (b.stage, b.output) == (self.stage, output)]
        if len(found) != 1 or found[0].rule != rule:
            stated = ", ".join(b.rule for b in found) or "nothing"
            raise BudgetError(
                f"{self.numerics.name}: {self.stage}.{output} is compared by rule {rule!r}, but the spec "
                f"states {stated}",
                fix=f"add or correct the budget in specs/numerics/{self.numerics.name}.yaml",
            )
        return found[0]

    def bits(self, output: str, got: Tensor, want: Tensor, labels: Sequence[str] = ()) -> Verdict:
        """Equal bit for bit; worst is the number of elements that differ."""
        self._budget(output, "bits")
        differs = _raw(got) != _raw(want)
        count = int(differs.sum())
        where = "" if not count else _at(differs.to(torch.int64), got, want)
        split = (("equal", differs.numel() - count), ("different", count))
        return Verdict(self.stage, output, tuple(got.shape), count, 0.0, count == 0, "elements", where, split)

    def tags(self, output: str, tags: Tensor, tag: int) -> Verdict:
        """Every mailbox pair carries the launch's tag."""
        return self.bits(output, tags, torch.full_like(tags, tag))

    def flags(self, output: str, flags: Tensor, tag: int) -> Verdict:
        """Every flag (last axis: value, tag) is 1 under the launch's tag."""
        want = torch.ones_like(flags)
        want[..., 1] = tag
        return self.bits(output, flags, want)

    def bound(self, output: str, got: Tensor, value: Value) -> Verdict:
        """|got - exact| <= error element by element."""
        self._budget(output, "bound")
        off = _propagated(got, value.exact, (got.to(torch.float64) - value.exact).abs())
        error_of = torch.nan_to_num(value.error)
        ratio = torch.where(off == 0, 0.0, off / error_of)
        worst = int(ratio.argmax())
        ok = bool((off <= error_of).all())
        where = _at(ratio, got, value.exact)
        shape, error = tuple(got.shape), float(error_of.flatten()[worst])
        off_worst = float(off.flatten()[worst])
        return Verdict(self.stage, output, shape, off_worst, error, ok, "absolute", where, _ratios(ratio))

    def rounded(
        self, output: str, unit: str, got: Tensor, low: Tensor, high: Tensor, steps: Tensor
    ) -> Verdict:
        """low <= got <= high. `steps` counts representable values between got and the interval (0 inside).

        Reported is the element farthest outside or, when there is none, the one with the widest interval:
        its distance from the farther end, and the width it was allowed (0 where one value is right).
        """
        self._budget(output, "rounded")
        low, high = low.to(torch.float64), high.to(torch.float64)
        value = got.to(torch.float64)
        outside = _propagated(value, low, torch.maximum(low - value, value - high).clamp_min(0.0))
        width = torch.nan_to_num(high - low)
        distance = _propagated(value, low, torch.maximum(value - low, high - value))
        missed = bool((outside > 0).any())
        worst = outside if missed else distance
        flat = int(worst.argmax())
        numbers = (float(distance.flatten()[flat]), float(width.flatten()[flat]))
        where, shape = f"{_at(worst, got, low)} .. {float(high.flatten()[flat]):.9g}", tuple(got.shape)
        return Verdict(self.stage, output, shape, *numbers, not missed, unit, where, _freedom(steps, width))

    def ranked(self, output: str, ids: Tensor, low: Tensor, high: Tensor) -> Verdict:
        """Chosen entries [..., K] of [..., E] values known to low .. high, in descending order.

        Worst is the place that is farthest out of order: how much better the best entry not chosen before it
        is, and by how much the two may be off together. NaN counts as the least value.
        """
        self._budget(output, "ranked")
        low, high = (torch.where(torch.isnan(v), -torch.inf, v.to(torch.float64)) for v in (low, high))
        known = ids.to(torch.int64).clamp(0, low.shape[-1] - 1)
        before = _chosen_before(known, low.shape[-1])
        rivals = torch.where(before, -torch.inf, low[..., None, :])
        rival = rivals.argmax(-1)
        best, own = rivals.amax(-1), high.gather(-1, known)
        wrong = (best > own) | (ids != known) | before.gather(-1, known[..., None])[..., 0]
        middle = ((low + high) / 2).nan_to_num(neginf=-1e300)
        off = (middle.gather(-1, rival) - middle.gather(-1, known)).clamp_min(0.0)
        half = ((high - low) / 2).nan_to_num(0.0)
        allowed = half.gather(-1, rival) + half.gather(-1, known)
        rank = torch.where(wrong, off + 1.0, off / (allowed + 1e-300) / 2)
        flat = int(rank.argmax())
        counts = ((off == 0) & ~wrong, (off > 0) & ~wrong, wrong)
        names = ("in order", "exchanged within the bounds", "wrong")
        split = tuple((name, int(count.sum())) for name, count in zip(names, counts, strict=True))
        numbers = (float(off.flatten()[flat]), float(allowed.flatten()[flat]))
        where, ok = _at(rank, ids, rival), not bool(wrong.any())
        return Verdict(self.stage, output, tuple(ids.shape), *numbers, ok, "score", where, split)

    def relative(self, output: str, got: Tensor, exact: Tensor, budget: Tensor) -> Verdict:
        """|got - exact| <= budget * |exact| in the norm of the last axis; `budget` has a number a row."""
        self._budget(output, "relative")
        wide = exact.to(torch.float64)
        size = wide.norm(dim=-1)
        distance = _propagated(size, size, (got.to(torch.float64) - wide).norm(dim=-1))
        off = torch.where(distance == 0, 0.0, distance / size)
        allowed = budget.to(torch.float64).expand_as(off)
        ratio = torch.where(off == 0, 0.0, off / allowed)
        flat = int(ratio.argmax())
        numbers = (float(off.flatten()[flat]), float(allowed.flatten()[flat]))
        where, ok = _at(ratio, off, allowed), bool((off <= allowed).all())
        return Verdict(
            self.stage, output, tuple(got.shape), *numbers, ok, "of the row's norm", where, _ratios(ratio)
        )


def _chosen_before(ids: Tensor, count: int) -> Tensor:
    """bool [..., K, E]: whether an entry stands earlier in the list than place k."""
    here = torch.nn.functional.one_hot(ids, count).to(torch.int64)
    return (here.cumsum(-2) - here) > 0


def _propagated(got: Tensor, want: Tensor, off: Tensor) -> Tensor:
    """`off` with NaN settled: right where the stage's own inputs give NaN, infinitely off anywhere else."""
    both = torch.isnan(got) & torch.isnan(want)
    return torch.where(both, 0.0, torch.nan_to_num(off, nan=torch.inf, posinf=torch.inf))


def steps_outside(got: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Distance of ordinals from an interval of ordinals."""
    return torch.maximum(low - got, got - high).clamp_min(0)


def _raw(value: Tensor) -> Tensor:
    """Bit patterns, so that -0 differs from +0 and a NaN equals itself."""
    views = {torch.bfloat16: torch.int16, torch.float32: torch.int32, torch.float64: torch.int64}
    value = value.contiguous()
    return value.view(views[value.dtype]) if value.dtype in views else value


def _at(rank: Tensor, got: Tensor, want: Tensor) -> str:
    """Index of the worst element, and both values there."""
    flat = int(rank.argmax())
    index = [int(i) for i in torch.unravel_index(torch.tensor(flat), rank.shape)]
    values = (float(t.flatten()[flat]) for t in (got, want))
    return "[{}] got {:.9g}, reference {:.9g}".format(", ".join(map(str, index)), *values)


def _ratios(ratio: Tensor) -> tuple[tuple[str, int], ...]:
    """Counts of |error| / bound in halving bins."""
    edges = [*RATIO_EDGES, torch.inf]
    flat = ratio.flatten()
    counts = [int(((flat >= a) & (flat < b)).sum()) for a, b in pairwise(edges)]
    counts[-1] += int((flat == torch.inf).sum())
    labels = [f"{a:g} .. {b:g} of bound" for a, b in pairwise(edges)]
    return tuple(zip(labels, counts, strict=True))


def _freedom(steps: Tensor, width: Tensor) -> tuple[tuple[str, int], ...]:
    """How many elements had one right value, how many a choice, how many missed and by how much."""
    inside = steps == 0
    return (
        ("exact, one value possible", int((inside & (width == 0)).sum())),
        ("within a tie's neighbours", int((inside & (width > 0)).sum())),
        ("1 step outside", int((steps == 1).sum())),
        ("2 .. 15 steps outside", int(((steps > 1) & (steps < 16)).sum())),
        ("16 steps or more outside", int((steps >= 16).sum())),
    )
