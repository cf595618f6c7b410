"""What can be wrong with weights; every finding of a file or folder is reported at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...specs.findings import UserError, count


@dataclass(frozen=True, order=True)
class WeightFinding:
    """One fault: where (file, and tensor if one is meant), what, and what to do."""

    where: str
    tensor: str
    what: str
    fix: str

    def __str__(self) -> str:
        place = f"{self.where}: {self.tensor}" if self.tensor else self.where
        return f"{place}: {self.what}\n    fix: {self.fix}"


class WeightsError(UserError):
    """Weights that cannot be used, with every reason."""

    def __init__(self, findings: Iterable[WeightFinding]) -> None:
        self.findings = tuple(findings)
        super().__init__(f"{count(len(self.findings), 'finding')} in the weights")

    def render(self) -> str:
        """Every finding, then the count."""
        return "\n".join(
            [*map(str, self.findings), f"error: {count(len(self.findings), 'finding')} in the weights"]
        )

    def __str__(self) -> str:
        fixes = "; ".join(dict.fromkeys(f.fix for f in self.findings))
        return "; ".join(f"{f.tensor or f.where}: {f.what}" for f in self.findings) + f" (fix: {fixes})"
