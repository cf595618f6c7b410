"""What gen reports: findings with a code, a place and a fix, always all of them at once.

    UserError (specs)             printed without a traceback, exit code 2
    └── GenError                  every failure of gen; carries findings
        ├── RenderError               template missing, undefined name, text that is not Python
        ├── LintError                 source that FlyDSL would miscompile in silence
        ├── CompileError              FlyDSL, LLVM or the linker refused, crashed or printed an error
        ├── CheckError                compiled, but the code object is not what the plan says
        └── StoreError                artefact damaged, disk full, lock not obtained

`flymono build`, which goes on after a failure, ends with exit code 1 instead.
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


CODES = {
    # rendering
    "GEN_TEMPLATE": "A template is missing, names something undefined, or renders a value without a literal.",
    "GEN_SYNTAX": "The rendered text is not Python.",
    "GEN_FORMAT": "The formatter refused the rendered text.",
    "GEN_NO_RUFF": "The formatter of generated code is not installed.",
    # constructs that FlyDSL compiles to something else
    "LINT_RETURN": "A return inside a run-time if, for or while is ignored.",
    "LINT_FOR_ELSE": "The else body of a range loop is dropped.",
    "LINT_NEGATIVE_STEP": "A range with a negative step becomes a loop that runs wrongly.",
    "LINT_WHILE_TRUE": "A loop without a run-time condition never ends.",
    "LINT_BREAK": "A break or continue in a run-time loop does not compile.",
    "LINT_REGION_NAME": "A name is first defined inside a run-time region and used behind it.",
    "LINT_UNDECORATED": "A function that branches on run-time values is called but not decorated.",
    "LINT_TRY": "A try inside a run-time region acts while tracing.",
    "LINT_NONLOCAL": "A nonlocal that a run-time region writes does not leave it.",
    # arguments
    "ABI_MODULE": "The module has no kernel or no launcher where they are looked for.",
    "ABI_ARGUMENT": "An argument of the module is not the one that the plan's table has in that place.",
    "ABI_LAYOUT": "The code object lays its arguments out otherwise than the plan.",
    # compiling
    "GEN_COMPILE": "FlyDSL refused the module while tracing or lowering it.",
    "GEN_LLVM": "LLVM or the linker printed an error, though the call returned.",
    "GEN_CRASH": "The compiler died: LLVM aborted, or it crashed.",
    "GEN_TIMEOUT": "The compiler did not finish within the deadline.",
    "GEN_SERVER": "The compile server ended or did not start.",
    "GEN_INTERRUPTED": "The build was ended from outside.",
    "GEN_NO_LINKER": "No usable ld.lld was found.",
    "GEN_NO_METADATA": "The code object carries no description of its kernels.",
    "GEN_ISA_MISMATCH": "ISA text and machine code of one module differ.",
    # the module in MLIR
    "MLIR_BARRIER": "A barrier stands under control flow that not every wave takes.",
    "MLIR_STORE_TYPE": "A value is stored through a pointer to another type.",
    "MLIR_ATOMIC_SCOPE": "An atomic on global memory has a scope that other workgroups do not see.",
    "MLIR_MFMA_COUNT": "A stage has another number of matrix instructions than the plan says.",
    # the code object
    "ISA_KERNELS": "The code object holds more or fewer kernels than one.",
    "ISA_SPILL": "Registers are spilled.",
    "ISA_SCRATCH": "The kernel uses scratch memory.",
    "ISA_STACK": "The kernel has a dynamic stack.",
    "ISA_LDS": "The kernel's LDS is not the plan's.",
    "ISA_LDS_LIMIT": "The kernel's LDS is more than a workgroup of the arch may have.",
    "ISA_KERNARG": "The kernel argument segment is not the plan's.",
    "ISA_BLOCK": "The kernel is compiled for another workgroup size than planned.",
    "ISA_VGPRS": "The kernel needs so many registers that not every workgroup is resident.",
    "ISA_ERRATUM": "An instruction has the form of an erratum of the arch spec, or an erratum has no check.",
    "ISA_STAGE": "The stages marked in the code are not the plan's.",
    # the store and other revisions
    "GEN_NO_ARTEFACT": "The store holds no artefact of that name, or several.",
    "GEN_DAMAGED": "An artefact is incomplete or a digest of it is wrong.",
    "GEN_LOCK": "Another process holds the lock of this build for too long.",
    "GEN_DISK": "The file system refused a write.",
    "GEN_REVISION": "The revision to compare with does not exist or cannot build.",
    # a spec's claims against the compiler
    "PROBE_REFUSES": "An arch spec claims what the compiler refuses for that arch.",
    "PROBE_ADMITS": "An arch spec denies what the compiler accepts for that arch.",
}
"""Every code that a finding of gen may have, in one sentence; `docs/findings.md` is made from it."""


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
