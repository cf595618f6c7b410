"""What gen reports: findings with a code, a place and a fix, always all of them at once.

    UserError (specs)             printed without a traceback, exit code 2
    └── GenError                  every failure of gen; carries findings
        ├── RenderError               template missing, undefined name, text that is not Python
        ├── LintError                 source that FlyDSL would miscompile in silence
        ├── CompileError              FlyDSL, LLVM or the linker refused, crashed or printed an error
        ├── CheckError                compiled, but the code object is not what the plan says
        └── StoreError                artefact damaged, disk full, lock not obtained

`flymono build`, which goes on after a failure, ends with exit code 1 instead, unless every failure is a
StoreError: then no kernel is wrong, but the place for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from ..specs.findings import UserError


@dataclass(frozen=True, order=True)
class Finding:
    """One thing that is wrong: where it is, what it is, and what to do about it."""

    code: str
    where: str
    message: str
    fix: str = ""

    def __str__(self) -> str:
        """`where: CODE message`, then the fix on its own line."""
        head = f"{self.where}: {self.code} {self.message}" if self.where else f"{self.code} {self.message}"
        return f"{head}\n    fix: {self.fix}" if self.fix else head

    def to_json(self) -> dict[str, str]:
        """The four fields as strings."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, str]) -> Finding:
        """Inverse of `to_json`."""
        return cls(data["code"], data["where"], data["message"], data.get("fix", ""))


class GenError(UserError):
    """A failure of gen with every finding that belongs to it."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(map(str, self.findings)))

    def render(self) -> str:
        """Every finding, then how many."""
        count = len(self.findings)
        return f"{self}\nerror: {count} finding" + ("" if count == 1 else "s")


class RenderError(GenError):
    """The template did not become a Python module."""


class LintError(GenError):
    """The source holds constructs that FlyDSL compiles to something else."""


class CompileError(GenError):
    """No usable code object came out of the compiler."""


class CheckError(GenError):
    """The code object contradicts the plan or the arch spec."""


class StoreError(GenError):
    """The artefact store could not give or take an artefact."""
