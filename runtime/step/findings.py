"""One fault of a step: argument, row, value, limit, what to do; and the error that holds all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor, nonzero

from ...specs.findings import UserError, count
from .codes import StepCode


@dataclass(frozen=True)
class StepFinding:
    """What is wrong with one argument, in one row where rows have values of their own.

    `also` counts further entries of the same row that are wrong alike.
    """

    code: StepCode
    argument: str
    value: str
    limit: str
    fix: str
    row: int | None = None
    also: int = 0

    def __str__(self) -> str:
        where = self.argument if self.row is None else f"{self.argument}, row {self.row}"
        more = f" (and {count(self.also, 'further entry').replace('entrys', 'entries')})" if self.also else ""
        return f"{self.code}: {where}: {self.value}{more}; {self.limit}\n    fix: {self.fix}"


class StepError(UserError):
    """A step that must not be launched, with every reason."""

    def __init__(self, launch: str, findings: Iterable[StepFinding]) -> None:
        self.launch, self.findings = launch, tuple(findings)
        assert self.findings, "a refusal needs a reason"
        super().__init__(f"{count(len(self.findings), 'finding')} in the arguments of {launch}")

    def render(self) -> str:
        """Every finding, then the count."""
        return "\n".join([*map(str, self.findings), f"error: {self}"])

    def __reduce__(self) -> tuple[type[StepError], tuple[str, tuple[StepFinding, ...]]]:
        return StepError, (self.launch, self.findings)


def by_row(
    code: StepCode, argument: str, bad: Tensor, values: Tensor, limits: Sequence[str], fix: str,
    noun: str = "",
) -> list[StepFinding]:  # fmt: skip
    """A finding for each row with a True in `bad` ([S] or [S, n]), showing its first value.

    `limits` has one text a row, or a single one; `noun` names an entry, with its place in the row.
    """
    grid = bad.reshape(len(bad), -1)
    shown = values.reshape(grid.shape)
    found = []
    for row in nonzero(grid.any(1)).flatten().tolist():
        places = nonzero(grid[row]).flatten().tolist()
        place = f"{noun} {places[0]} is " if noun else ""
        value, limit = f"{place}{int(shown[row, places[0]])}", limits[row if len(limits) > 1 else 0]
        found.append(StepFinding(code, argument, value, limit, fix, row, len(places) - 1))
    return found
