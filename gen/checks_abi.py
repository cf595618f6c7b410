"""The launch arguments: the plan's table, the module's parameters and the code object's metadata must agree.

FlyDSL does not hold a launcher to its kernel: an argument too many, two in another order, or an `Int64`
passed as `Int32` compile, and the host then packs bytes that the kernel reads as something else.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .findings import Finding
from .flydsl_backend import LAUNCHER
from .unit import Unit

Abi = Sequence[Mapping[str, Any]]
_ANNOTATIONS = {"ptr": "Int64", "int64": "Int64", "int32": "Int32"}
_SIZES = {"ptr": 8, "int64": 8, "int32": 4}
_FIX = "the template lists the arguments of the plan's ABI table, in its order and with its types"


def module_findings(unit: Unit, source: str) -> Iterator[tuple[int, Finding]]:
    """Differences between a generated module and the ABI, with the line; none for a unit without an ABI."""
    if not unit.abi:
        return
    functions = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]
    kernels = [f for f in functions if any("kernel" in ast.unparse(d) for d in f.decorator_list)]
    launchers = [f for f in functions if f.name == LAUNCHER]
    if len(kernels) != 1 or len(launchers) != 1:
        text = f"{len(kernels)} kernels and {len(launchers)} functions named {LAUNCHER} in the module"
        yield 1, Finding("ABI_MODULE", "", text, f"one @flyc.kernel and one @flyc.jit def {LAUNCHER}")
        return
    for function in (kernels[0], launchers[0]):
        yield from _parameters(function, unit.abi)
    for call in ast.walk(launchers[0]):
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == kernels[0].name:
            yield from _passed(call, unit.abi)


def _parameters(function: ast.FunctionDef, abi: Abi) -> Iterator[tuple[int, Finding]]:
    """A parameter with a default is the launcher's own (the stream) and no launch argument."""
    args = function.args.args[: len(function.args.args) - len(function.args.defaults)]
    got = [(a.arg, ast.unparse(a.annotation) if a.annotation else "") for a in args]
    want = [(str(a["name"]), _ANNOTATIONS[a["type"]]) for a in abi]
    yield from _first_difference(function.name, function.lineno, got, want)


def _passed(call: ast.Call, abi: Abi) -> Iterator[tuple[int, Finding]]:
    got, want = [ast.unparse(a) for a in call.args], [str(a["name"]) for a in abi]
    yield from _first_difference("the call of the kernel", call.lineno, got, want)


def _first_difference(what: str, line: int, got: list[Any], want: list[Any]) -> Iterator[tuple[int, Finding]]:
    """One finding at the first place that differs: the rest usually follows from it."""
    for number in range(max(len(got), len(want))):
        have, need = (x[number] if number < len(x) else "nothing" for x in (got, want))
        if have != need:
            text = f"argument {number + 1} of {what} is {_shown(have)}, the ABI has {_shown(need)}"
            yield line, Finding("ABI_ARGUMENT", "", text, _FIX)
            return


def _shown(item: Any) -> str:
    return f"{item[0]}: {item[1]}" if isinstance(item, tuple) else str(item)


def layout_findings(unit: Unit, layout: Sequence[tuple[int, int]], kernel: str) -> list[Finding]:
    """Differences between the (offset, size) of the code object's explicit arguments and the ABI's."""
    if not unit.abi:
        return []
    want = [(int(a["offset"]), _SIZES[a["type"]]) for a in unit.abi]
    if list(layout) == want:
        return []
    names = [str(a["name"]) for a in unit.abi]
    number = next(i for i in range(len(want) + 1) if list(layout[i : i + 1]) != want[i : i + 1])
    name = names[number] if number < len(names) else "nothing"
    have = layout[number] if number < len(layout) else "nothing"
    need = want[number] if number < len(want) else "nothing"
    text = f"argument {number + 1} ({name}): (offset, size) is {have} in the code object, {need} in the ABI"
    return [Finding("ABI_LAYOUT", kernel, text, _FIX)]
