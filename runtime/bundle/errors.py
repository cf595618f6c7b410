"""A finding about a bundle, and the error that holds all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...specs.findings import UserError, count
from .codes import BundleCode


@dataclass(frozen=True, order=True)
class BundleFinding:
    """One thing that is wrong: the artefact (or the bundle's path), what, and the command that mends it."""

    code: BundleCode
    where: str
    message: str
    fix: str

    def __str__(self) -> str:
        return f"{self.where}: {self.code} {self.message}\n    fix: {self.fix}"

    def to_json(self) -> dict[str, str]:
        """The four fields as strings."""
        return {"code": str(self.code), "where": self.where, "message": self.message, "fix": self.fix}


class BundleError(UserError):
    """A bundle that must not be used, with every reason."""

    def __init__(self, findings: Iterable[BundleFinding]) -> None:
        self.findings = tuple(findings)
        assert self.findings, "a refusal needs a reason"
        super().__init__("\n".join(map(str, self.findings)))

    def render(self) -> str:
        """Every finding, then how many."""
        return f"{self}\nerror: {count(len(self.findings), 'finding')} in the bundle"

    def __reduce__(self) -> tuple[type[BundleError], tuple[tuple[BundleFinding, ...]]]:
        return BundleError, (self.findings,)


def refuse_all(findings: Iterable[BundleFinding]) -> None:
    """Raise BundleError if there is any finding."""
    if found := tuple(findings):
        raise BundleError(found)
