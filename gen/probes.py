"""Ask the compiler whether what an arch spec says is true.

Every capability and every matrix instruction that a spec claims must compile for that arch, into code that
holds the instruction meant; every capability it denies must not. The LDS a workgroup may have must be
admitted, and the ELF machine number must be the one the compiler writes. Each probe runs in its own child
process, because LLVM aborts on what an arch lacks.

Verdicts are cached under the digest of (the spec's values, FlyDSL's version, the probes' and the backend's
source); they depend on nothing else.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .compiler import Answer, Compiler, remove_folder, scratch_folder
from .findings import CheckError, Finding
from .linker import find_linker
from .store import default_root, disk_errors, sources_digest
from .unit import canonical, digest

if TYPE_CHECKING:
    from ..specs.schema import ArchSpec

SECONDS = 120.0
_HERE = Path(__file__).resolve().parent
_LDS = re.compile(r"local memory \(\d+\) exceeds limit \((\d+)\)")


@dataclass(frozen=True)
class Verdict:
    """One claim: its place in the spec, what the spec says, whether the compiler admits it and why not."""

    claim: str
    path: tuple[str | int, ...]
    claimed: bool
    admitted: bool
    reason: str

    @property
    def holds(self) -> bool:
        """Whether spec and compiler agree."""
        return self.claimed == self.admitted


@dataclass(frozen=True)
class _Claim:
    probe: str
    path: tuple[str | int, ...]
    text: str
    claimed: bool = True


def claims(arch: ArchSpec) -> Iterator[_Claim]:
    """Everything in a spec that the compiler can confirm or refute."""
    yield _Claim(
        f"lds/{arch.workgroup.lds_bytes}",
        ("workgroup", "lds_bytes"),
        f"a workgroup may allocate {arch.workgroup.lds_bytes} bytes of LDS",
    )
    yield _Claim("mach", ("elf", "mach"), f"code objects carry machine 0x{arch.elf.mach:02x}")
    for name, claimed in arch.capabilities.items():
        yield _Claim(f"capability/{name}", ("capabilities", name), f"capability {name}", claimed)
    for index, mfma in enumerate(arch.mfma):
        shape = f"{mfma.m}x{mfma.n}x{mfma.k}_{mfma.a}_{mfma.b}" + ("_scaled" if mfma.scaled else "")
        yield _Claim(f"mfma/{shape}", ("mfma", index), f"matrix instruction {mfma.name}")


def cache_file(arch: ArchSpec, root: Path) -> Path:
    """Where the verdicts of exactly this spec, with exactly this compiler, are kept."""
    parts = {
        "arch": arch.model_dump(mode="json"),
        "flydsl": importlib.metadata.version("flydsl"),
        "probes": sources_digest([_HERE / n for n in ("probe_kernels.py", "probes.py", "flydsl_backend.py")]),
    }
    return root / "probes" / f"{arch.name}.{digest(canonical(parts))[:12]}.json"


def probe(arch: ArchSpec, root: Path | None = None, compiler: Compiler | None = None) -> tuple[Verdict, ...]:
    """A verdict on every claim of `arch`. Takes a few seconds; the second time it is read from the cache.

    `root` is the cache folder. Raises GenError if there is no compiler or linker to ask.
    """
    root = root or default_root()
    cached = cache_file(arch, root)
    if cached.is_file():
        try:
            return tuple(Verdict(**{**v, "path": tuple(v["path"])}) for v in json.loads(cached.read_text()))
        except (ValueError, TypeError, KeyError):
            cached.unlink()  # damaged: ask again
    with disk_errors(root):
        if compiler is None:
            with Compiler(find_linker(root), SECONDS) as own:
                verdicts = _ask(arch, root, own)
        else:
            verdicts = _ask(arch, root, compiler)
        cached.parent.mkdir(parents=True, exist_ok=True)
        fresh = cached.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps([asdict(v) for v in verdicts], indent=1) + "\n")
        fresh.replace(cached)
    return verdicts


def trial(arch: ArchSpec, root: Path, compiler: Compiler) -> str:
    """Why nothing can be compiled for `arch` here; empty if a small kernel compiles. Never cached."""
    with disk_errors(root):
        folder = scratch_folder(root)
    try:
        return _refusal(compiler.run("probe", folder, claim="lds/4096", target=arch.name))
    finally:
        remove_folder(folder)


def _ask(arch: ArchSpec, root: Path, compiler: Compiler) -> tuple[Verdict, ...]:
    folder = scratch_folder(root)
    try:
        return tuple(_verdict(claim, arch, folder, compiler) for claim in claims(arch))
    finally:
        remove_folder(folder)


def _verdict(claim: _Claim, arch: ArchSpec, folder: Path, compiler: Compiler) -> Verdict:
    asked = "capability/cvt_pk_fp8_f32" if claim.probe == "mach" else claim.probe
    answer = compiler.run("probe", folder, claim=asked, target=arch.name)
    reason = _mach(answer, arch.elf.mach) if claim.probe == "mach" else _refusal(answer)
    return Verdict(claim.text, claim.path, claim.claimed, not reason, reason)


def _refusal(answer: Answer) -> str:
    """Why a probe did not come out as the instruction meant; empty if it did."""
    said = next((line for line in answer.log.splitlines() if "rror:" in line or "ERROR" in line), "").strip()
    if limit := _LDS.search(answer.log):
        return f"the compiler admits {limit[1]} bytes"
    if answer.status["status"] != "done":
        return said.removeprefix("LLVM ERROR: ") or f"the compiler ended with {dict(answer.status)}"
    if error := answer.result.get("error"):
        if error["type"] == "KeyError":
            return "there is no probe for this claim: add one to gen/probe_kernels.py"
        return said or error["message"].splitlines()[0]
    return said or (
        "" if answer.result["found"] else f"{answer.result['mnemonic']} is not in the code that LLVM chose"
    )


def _mach(answer: Answer, want: int) -> str:
    got = answer.result.get("mach")
    if got is None:
        return _refusal(answer)
    return "" if got == want else f"the compiler writes machine 0x{got:02x}"


def findings(arch: ArchSpec, root: Path | None = None, compiler: Compiler | None = None) -> list[Finding]:
    """What the spec says that the compiler does not confirm."""
    out = []
    for verdict in probe(arch, root, compiler):
        where = f"{arch.name}.yaml: {'.'.join(map(str, verdict.path))}"
        if verdict.claimed and not verdict.admitted:
            out.append(
                Finding("PROBE_REFUSES", where, f"{verdict.claim}: {verdict.reason}", "correct the value")
            )
        elif verdict.admitted and not verdict.claimed:
            out.append(
                Finding("PROBE_ADMITS", where, f"{verdict.claim} is denied, but compiles", "set it to true")
            )
    return out


def require(arch: ArchSpec, root: Path | None = None) -> None:
    """Refuse to build on a spec that lies: CheckError with every claim that the compiler does not confirm."""
    if found := findings(arch, root):
        raise CheckError(found)
