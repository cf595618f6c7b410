"""Turn what a compile child left behind into findings at the generated line and the template line.

Three kinds of failure: an exception (with location chains or Python frames), `error:` on fd 2 of a
compilation that returned normally, and a dead process (LLVM's abort, a segmentation fault, the deadline).
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from .findings import Finding
from .render import Rendered

Frame = tuple[str, int, int]
# What FlyDSL and LLVM say -> what to do. First match counts. (pattern, fix)
_FIXES = [(re.compile(p), fix) for p, fix in [
    (r"local memory \((\d+)\) exceeds limit", "the LDS map does not fit this arch: narrow the token pass, or correct workgroup.lds_bytes"),
    (r"no libcall available|ROCm amdgcn bitcode path", "this function needs AMD's device library: use an instruction (rocdl.*) or fastmath 'afn'"),
    (r"Cannot select|Do not know how to expand|not a recognized processor", "the arch lacks this operation: choose by a capability of the arch spec"),
    (r"lld invocation failed", "no working ld.lld: run flymono doctor"),
    (r"Cannot extract IR values", "a Python object is carried by a dynamic region: use it through a module-level name"),
    (r"cannot evaluate dynamic", "Python evaluates this while tracing: decorate the helper with @flyc.jit, or use .select()"),
    (r"has no Python integer representation", "use range (a run-time loop) or a static index"),
    (r"bare signless integer", "wrap the loop index: Int32(i)"),
    (r"carried variable .* does not match", "the type of the variable changes in the region: convert it before"),
    (r"must be a Value", "raw builders take x.ir_value()"),
    (r"requires a Context", "evaluate .ir_type inside the kernel, not at module level"),
    (r"is not defined|cannot access local variable", "define the name before the region, with its final type"),
    (r"No space left", "free some disk space; nothing half-written was kept"),
]]
_NATIVE = re.compile(r"^(?:(?P<place>[^\s:]+):(?P<line>\d+):(?P<col>\d+): )?(?:LLVM ERROR|error|ERROR): (?P<text>.*)$", re.M)
_DEBUG_PLACE = re.compile(r"([\w./+-]+\.py):(\d+)(?::(\d+))?")
_SIGNALS = {signal.SIGABRT: "LLVM aborted", signal.SIGSEGV: "the compiler crashed (segmentation fault)",
            signal.SIGKILL: "the compiler was killed, perhaps for lack of memory", signal.SIGBUS: "the compiler crashed (bus error)"}


def fix_for(message: str) -> str:
    """The advice for a message of FlyDSL or LLVM, an empty string if there is none."""
    return next((fix for pattern, fix in _FIXES if pattern.search(message)), "")


def place(frames: Iterable[Frame], rendered: Rendered, module: Path) -> str:
    """`mono/gemv.py:30, from dsv41_k1-....py:88 (templates/k1.py.j2:40)` of a chain, innermost frame first."""
    from .flydsl_backend import PACKAGE

    texts: list[str] = []
    for file, line, _ in frames:
        path = Path(file)
        if path == module or file == f"{rendered.id}.py":
            texts.append(rendered.where(line))
        elif path.is_absolute() and path.is_relative_to(PACKAGE) and "gen" not in path.relative_to(PACKAGE).parts[:1]:
            texts.append(f"{path.relative_to(PACKAGE)}:{line}")
        elif not path.is_absolute() and len(path.parts) > 1 and line:
            texts.append(f"{file}:{line}")
    unique = list(dict.fromkeys(texts))
    return ", from ".join(unique[:1] + unique[-1:] if len(unique) > 1 else unique) or f"{rendered.id}.py"


def of_exception(error: Mapping[str, Any], where: Callable[[list[Frame]], str]) -> list[Finding]:
    """Findings of an exception that the child described."""
    message, chains = error["message"].strip(), error["chains"]
    first = message.splitlines()[0] if message else error["type"]
    frames = [tuple(f) for f in (chains[0] if chains else error["frames"])]
    text = first if error["type"] == "DSLCompileError" else f"{error['type']}: {first}"
    return [Finding("GEN_COMPILE", where(frames), text, fix_for(message))]


def of_native(log: str, where: Callable[[list[Frame]], str]) -> list[Finding]:
    """Findings of the `error:` lines that LLVM printed on fd 2."""
    out = []
    for found in _NATIVE.finditer(log):
        frames = [(found["place"], int(found["line"]), 0)] if found["place"] and found["place"] != "<unknown>" else []
        out.append(Finding("GEN_LLVM", where(frames or _nearby(log, found.start())), found["text"].strip(), fix_for(found[0])))
    return list(dict.fromkeys(out))


def _nearby(log: str, start: int) -> list[Frame]:
    """Source places in the dump that follows an LLVM error (selection nodes carry their debug location)."""
    return [(f[1], int(f[2]), 0) for f in _DEBUG_PLACE.finditer(log[start:start + 4000])][:1]


def of_death(answer: Mapping[str, Any], log: str, seconds: float, where: Callable[[list[Frame]], str]) -> list[Finding]:
    """Findings of a child that did not come back: what LLVM said last, or how it died."""
    if answer["status"] == "timeout":
        return [Finding("GEN_TIMEOUT", where([]), f"the compiler did not finish within {seconds:g} s",
                        "shorten straight-line code (run-time loops with unroll=1), or raise --timeout")]
    native = of_native(log, where)
    number = answer.get("signal", 0)
    died = _SIGNALS.get(signal.Signals(number), f"the compiler died of signal {number}") if number else \
        f"the compiler ended with code {answer.get('code')}"
    if native:
        return [Finding("GEN_CRASH", f.where, f"{died}: {f.message}", f.fix) for f in native]
    tail = " / ".join(log.strip().splitlines()[-2:])[:300]
    return [Finding("GEN_CRASH", where(_nearby(log, 0)), died + (f": {tail}" if tail else ""), fix_for(log))]
