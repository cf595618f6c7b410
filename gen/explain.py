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
_FIXES = [
    (re.compile(p), fix)
    for p, fix in [
        (
            r"local memory \((\d+)\) exceeds limit",
            "the LDS map does not fit this arch: narrow the token pass, or correct workgroup.lds_bytes",
        ),
        (
            r"no libcall available|ROCm amdgcn bitcode path",
            "this function needs AMD's device library: use an instruction (rocdl.*) or fastmath 'afn'",
        ),
        (
            r"Cannot select|Do not know how to expand|requires target feature|not a recognized processor",
            "the arch lacks this operation: choose by a capability of the arch spec",
        ),
        (r"lld invocation failed", "no working ld.lld: run flymono doctor"),
        (
            r"Cannot extract IR values",
            "a Python object is carried by a dynamic region: use it through a module-level name",
        ),
        (
            r"cannot evaluate dynamic",
            "Python evaluates this while tracing: decorate the helper with @flyc.jit, or use .select()",
        ),
        (r"has no Python integer representation", "use range (a run-time loop) or a static index"),
        (r"bare signless integer", "wrap the loop index: Int32(i)"),
        (
            r"carried variable .* does not match",
            "the type of the variable changes in the region: convert it before",
        ),
        (r"must be a Value", "raw builders take x.ir_value()"),
        (
            r"issubclass\(\) arg 1",
            "FlyDSL reads annotations as types: no `from __future__ import annotations` in traced modules",
        ),
        (r"requires a Context", "evaluate .ir_type inside the kernel, not at module level"),
        (
            r"is not defined|cannot access local variable",
            "define the name before the region, with its final type",
        ),
        (r"No space left", "free some disk space; nothing half-written was kept"),
    ]
]
_NATIVE = re.compile(
    r"^(?:LLVM ERROR|error|ERROR): (?:(?P<file>[^\s:]+):(?P<line>\d+):\d+: )?(?P<text>.*)$", re.M
)
_SIGNATURE = re.compile(r"^in function @(\S+) .*?\): ")  # LLVM spells out every argument's type
_STACK = re.compile(r'^ *File "([^"]+)", line (\d+) in ', re.M)
_SIGNALS = {
    signal.SIGABRT: "LLVM aborted",
    signal.SIGSEGV: "the compiler crashed (segmentation fault)",
    signal.SIGKILL: "the compiler was killed, perhaps for lack of memory",
    signal.SIGBUS: "the compiler crashed (bus error)",
}


def fix_for(message: str) -> str:
    """The advice for a message of FlyDSL or LLVM, an empty string if there is none."""
    return next((fix for pattern, fix in _FIXES if pattern.search(message)), "")


def place(frames: Iterable[Frame], rendered: Rendered, module: Path) -> str:
    """`mono/gemv.py:30, from dsv41_k1-....py:88 (templates/k1.py.j2:40)` of a chain, innermost first."""
    from .flydsl_backend import PACKAGE

    texts: list[str] = []
    for file, line, _ in frames:
        path = Path(file)
        if path == module or file == f"{rendered.id}.py":
            texts.append(rendered.where(line))
            continue
        if path.is_absolute() and path.resolve().is_relative_to(PACKAGE):
            path = path.resolve().relative_to(PACKAGE)
        if path.parts[:1] in (("mono",), ("runtime",)) and line:
            texts.append(f"{path}:{line}")
    unique = list(dict.fromkeys(texts))
    return ", from ".join(unique[:1] + unique[-1:] if len(unique) > 1 else unique) or f"{rendered.id}.py"


def of_exception(error: Mapping[str, Any], where: Callable[[list[Frame]], str]) -> list[Finding]:
    """Findings of an exception that the child described."""
    message, chains = error["message"].strip(), error["chains"]
    lines = message.splitlines() or [error["type"]]
    first = lines[-1] if lines[0].endswith("Traceback (most recent call last):") else lines[0]
    frames = [tuple(f) for f in (chains[0] if chains else error["frames"])]
    text = first if error["type"] == "DSLCompileError" else f"{error['type']}: {first}"
    return [Finding("GEN_COMPILE", where(frames), text, fix_for(message))]


def of_native(log: str, source_mlir: str, where: Callable[[list[Frame]], str]) -> list[Finding]:
    """Findings of the `error:` lines that LLVM printed on fd 2."""
    out = []
    for found in _NATIVE.finditer(log):
        frames = (
            [(found["file"], int(found["line"]), 0)] if found["file"] and found["file"] != "<unknown>" else []
        )
        text = _SIGNATURE.sub(r"in \1: ", found["text"].strip())
        place = where(intrinsic_frames(text, source_mlir) or frames)
        out.append(Finding("GEN_LLVM", place, text, fix_for(text)))
    return list(dict.fromkeys(out))


def _python_frames(log: str) -> list[Frame]:
    """Frames of the Python stack that the child dumps when a signal or the deadline ends it."""
    return [(f[1], int(f[2]), 0) for f in _STACK.finditer(log)]


def intrinsic_frames(message: str, source_mlir: str) -> list[Frame]:
    """Where the source MLIR uses the intrinsic that LLVM could not select, innermost frame first.

    LLVM names the intrinsic and nothing else; the operation is `rocdl.<name>` or a call by name.
    """
    named = re.search(r"%?(llvm\.amdgcn\.([\w.]+))", message)
    if named is None:
        return []
    text, places = named[2], _aliases(source_mlir)
    line = next((x for x in source_mlir.splitlines() if f"rocdl.{text} " in x or f'"{named[1]}"' in x), "")
    found = re.findall(r"loc\((#loc\d*)\)", line)
    return _resolve(found[-1], places) if found else []


def _aliases(mlir: str) -> dict[str, str]:
    return {m[1]: m[2] for m in re.finditer(r"^(#loc\d*) = loc\((.*)\)$", mlir, re.M)}


def _resolve(alias: str, places: Mapping[str, str]) -> list[Frame]:
    """The frames of a location alias of MLIR text."""
    text = places.get(alias, "")
    if site := re.fullmatch(r"callsite\((#loc\d*) at (#loc\d*)\)", text):
        return _resolve(site[1], places) + _resolve(site[2], places)
    found = re.match(r'"([^"]+)":(\d+):(\d+)', text)
    return [(found[1], int(found[2]), int(found[3]))] if found else []


def of_death(
    answer: Mapping[str, Any], log: str, source_mlir: str, seconds: float, where: Callable[[list[Frame]], str]
) -> list[Finding]:
    """Findings of a child that did not come back: what LLVM said last, or how it died and where it was."""
    if answer["status"] == "timeout":
        return [
            Finding(
                "GEN_TIMEOUT",
                where(_python_frames(log)),
                f"the compiler did not finish within {seconds:g} s",
                "shorten straight-line code (run-time loops with unroll=1), or raise --timeout",
            )
        ]
    number = answer.get("signal", 0)
    died = (
        _SIGNALS.get(number, f"the compiler died of signal {number}")
        if number
        else f"the compiler ended with code {answer.get('code')}"
    )
    if native := list(_NATIVE.finditer(log)):
        return [
            Finding(
                "GEN_CRASH",
                where(intrinsic_frames(m["text"], source_mlir) or _python_frames(log)),
                f"{died}: {m['text'].strip()}",
                fix_for(m[0]),
            )
            for m in native
        ]
    return [Finding("GEN_CRASH", where(_python_frames(log)), died + _last_words(log), fix_for(log))]


def _last_words(log: str) -> str:
    lines = [
        x
        for x in log.splitlines()
        if x.strip() and not x.startswith((" ", "Fatal Python", "Current thread", "Extension modules"))
    ]
    return f": {lines[-1][:200]}" if lines else ""
