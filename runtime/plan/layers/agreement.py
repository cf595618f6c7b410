"""One plan on all ranks, or none: what a rank says of its plan, and what speaks against a group of them.

Invariant: `differences` is a function of what all ranks said and gives every rank the same reasons, so that
all fall back together or none does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..unsupported import Reason
from .codes import ServeCode, reason
from .model import ModelPlan


@dataclass(frozen=True)
class Vote:
    """What a rank hands to the others: its plan's digest, a letter a layer, and the codes of its own faults
    (no peer memory, no bundle), which one rank may have alone."""

    digest: str
    paths: str
    codes: tuple[str, ...] = ()


def vote_of(plan: ModelPlan, faults: Sequence[Reason] = ()) -> Vote:
    """The vote of a rank; `faults` are reasons that it found beyond its plan."""
    codes = {str(r.code) for r in (*plan.stops, *faults)}
    return Vote(plan.digest, "".join(str(one.path)[0] for one in plan.layers), tuple(sorted(codes)))


def differences(votes: Sequence[Vote | None], seconds: int = 60) -> tuple[Reason, ...]:
    """Reasons against the group, by rank; None is a rank that did not answer within `seconds`."""
    found = []
    silent = [rank for rank, vote in enumerate(votes) if vote is None]
    if silent:
        found.append(reason(ServeCode.RANK_SILENT, ranks=_ranks(silent), seconds=seconds))
    spoken = [(rank, vote) for rank, vote in enumerate(votes) if vote is not None]
    if not spoken:
        return tuple(found)
    first, says = spoken[0]
    others = [(rank, vote) for rank, vote in spoken if vote != says]
    if others:
        what = _first_difference(says, others[0][1], others[0][0])
        ranks = _ranks([rank for rank, _ in others])
        found.append(reason(ServeCode.RANKS_DIFFER, ranks=ranks, first=first, what=what))
    return tuple(found)


def _first_difference(says: Vote, other: Vote, rank: int) -> str:
    """In words: codes that one side has alone, else the first layer on another path."""
    if alone := sorted(set(says.codes) ^ set(other.codes)):
        return ", ".join(
            f"{code} on {'its own' if code in other.codes else 'the first'} side" for code in alone
        )
    for layer, (a, b) in enumerate(zip(says.paths, other.paths, strict=False)):
        if a != b:
            return f"layer {layer} is {b!r} on rank {rank} and {a!r} there"
    return "their specs, limits or bundles differ"


def _ranks(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))
