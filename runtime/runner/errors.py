"""What can be wrong with a runner, in the same words on every rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from flymono.specs.findings import UserError


class Doing(StrEnum):
    """What ranks do together."""

    PLANNING = "planning"
    ALLOCATING = "allocating"
    OPENING = "opening peer memory"
    SCRATCH = "allocating scratch"
    LOADING = "loading kernels"
    RESTING = "coming to rest"
    STARTING_ANEW = "starting epochs anew"


@dataclass(frozen=True)
class Reason:
    """Why a rank cannot go on, and what it did then; `of`: for what."""

    rank: int
    doing: Doing
    text: str
    of: str = ""

    @property
    def what(self) -> str:
        """What it did, in words."""
        return f"{self.doing} of {self.of}" if self.of else str(self.doing)

    def __str__(self) -> str:
        return f"rank {self.rank}, {self.what}: {self.text}"


class RunnerError(UserError):
    """A runner that cannot be made or used. Where ranks agree on it, `reasons` are the same on every rank."""

    exit_code = 1

    def __init__(self, message: str, reasons: Sequence[Reason] = (), fix: str = "") -> None:
        super().__init__("".join([message, *(f"\n  {r}" for r in reasons)]), fix=fix)
        self.reasons = tuple(reasons)


class InputError(RunnerError):
    """Tensors that are not what a launch reads; all of them are listed."""

    def __init__(self, what: str, findings: Sequence[str]) -> None:
        super().__init__(f"{what}:" + "".join(f"\n  {f}" for f in findings))
        self.findings = tuple(findings)
