"""Facts that gen checks, read off the source MLIR through FlyDSL's embedded bindings.

`survey` runs in the compile child and returns plain JSON; `judge` runs anywhere on that JSON and the plan's
promises. What is looked for cannot be seen in machine code any more, or is multiplied there by unrolling:
how many matrix instructions a stage holds, barriers that not every wave reaches, stores whose value has
another type than the pointer, and how far an atomic is visible.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from .findings import Finding
from .unit import Expect

Chain = list[tuple[str, int, int]]
# Operations whose result differs between the lanes or waves of a workgroup whatever their operands are.
_PER_LANE = (
    "gpu.thread_id",
    "gpu.lane_id",
    "gpu.subgroup_id",
    "rocdl.workitem.id",
    "rocdl.mbcnt",
    "rocdl.ballot",
)
_LOAD = ("llvm.load", "fly.ptr.load", "memref.load", "vector.load")
_NARROW_SCOPES = ("workgroup", "wavefront", "singlethread")
_POINTER = re.compile(r"!fly\.ptr<\s*([^,>]+)\s*,\s*(\w+)")
_ELEMENT = re.compile(r"^vector<(?:\d+x)+(.+)>$")


def survey(mlir: str, module_name: str) -> dict[str, Any]:
    """Facts of one source module. `module_name` is the generated file as locations name it."""
    from . import flydsl_backend as backend

    facts: dict[str, Any] = {"mfma": [], "barriers": [], "stores": [], "atomics": [], "lds_bytes": 0}
    with backend.parsed(mlir) as module:
        uniform = _Uniformity(module, backend.walk)
        stage = ""

        def visit(op: Any) -> None:
            nonlocal stage
            stage = _stage_marker(op) or stage
            chain = backend.location_chain
            if ".mfma." in op.name:
                facts["mfma"].append({"name": op.name, "stage": stage, "chain": chain(op)})
            elif op.name in ("gpu.barrier", "rocdl.s.barrier", "rocdl.barrier"):
                facts["barriers"].append({"under": uniform.divergent_parents(op), "chain": chain(op)})
            elif op.name == "llvm.store":
                facts["stores"] += _typed_store(op, chain)
            elif op.name == "fly.make_ptr":
                facts["lds_bytes"] += _allocation(op)
            facts["atomics"] += _atomic(op, chain)

        backend.walk(module, visit)
    facts["mfma_by_stage"] = dict(Counter(m["stage"] for m in facts["mfma"]))
    return facts


def _stage_marker(op: Any) -> str:
    """Name that an inline-assembly stage marker carries, else an empty string."""
    from .isa import MARKER

    if op.name != "llvm.inline_asm":
        return ""
    found = MARKER.match(str(op.attributes["asm_string"]).strip('"'))
    return found[1] if found else ""


def _typed_store(op: Any, chain: Callable[[Any], Chain]) -> list[dict[str, Any]]:
    """A store through a typed FlyDSL pointer whose element type is not that of the value."""
    value, pointer = op.operands[0], op.operands[1]
    owner = getattr(pointer.owner, "operation", pointer.owner)
    if getattr(owner, "name", "") != "fly.to_llvm_ptr":
        return []
    typed = _POINTER.search(str(owner.operands[0].type))
    kind = str(value.type)
    element = found[1] if (found := _ELEMENT.match(kind)) else kind
    if typed is None or typed[1].strip() == element:
        return []
    return [{"value": kind, "pointer": typed[1].strip(), "chain": chain(op)}]


def _allocation(op: Any) -> int:
    """Bytes that a shared-memory allocation at source level asks for."""
    from flydsl._mlir import ir

    if "dictAttrs" not in op.attributes:
        return 0
    attributes = ir.DictAttr(op.attributes["dictAttrs"])
    return int(ir.IntegerAttr(attributes["allocBytes"]).value) if "allocBytes" in attributes else 0


def _atomic(op: Any, chain: Callable[[Any], Chain]) -> list[dict[str, Any]]:
    """An atomic access: operation, address space of its pointer, scope (empty means the whole system)."""
    ordered = (
        op.name in ("llvm.load", "llvm.store")
        and "ordering" in op.attributes
        and str(op.attributes["ordering"]).split(" ")[0] != "0"
    )
    if op.name not in ("llvm.atomicrmw", "llvm.cmpxchg") and not ordered:
        return []
    pointer = op.operands[1 if op.name == "llvm.store" else 0]
    space = re.search(r"ptr<(\d+)>", str(pointer.type))
    scope = str(op.attributes["syncscope"]).strip('"') if "syncscope" in op.attributes else ""
    return [{"name": op.name, "space": int(space[1]) if space else 0, "scope": scope, "chain": chain(op)}]


class _Uniformity:
    """Which values are equal in every lane of a workgroup: a forward data-flow analysis to a fixed point.

    A value varies if an operation of `_PER_LANE` made it, if an operand varies, if an enclosing branch's
    condition varies and it leaves that branch, or if an unknown intrinsic without operands made it. A load
    from an address that does not vary does not vary: that is how a ticket in LDS becomes uniform.
    """

    def __init__(self, module: Any, walk: Callable[[Any, Callable[[Any], None]], None]) -> None:
        self.varying: set[Any] = set()
        self.changed = True
        while self.changed:
            self.changed = False
            walk(module, self._transfer)

    def _mark(self, value: Any) -> None:
        if value not in self.varying:
            self.varying.add(value)
            self.changed = True

    def _transfer(self, op: Any) -> None:
        if self._varies(op):
            for result in op.results:
                self._mark(result)
        for region in op.regions:
            for block in region.blocks:
                self._enter(op, block)

    def _varies(self, op: Any) -> bool:
        source = op.name.startswith(_PER_LANE) or (op.name == "llvm.call_intrinsic" and not len(op.operands))
        return source or any(v in self.varying for v in op.operands)

    def _enter(self, op: Any, block: Any) -> None:
        """Carry operands into block arguments, and yielded values out to results and around the loop."""
        offset = 1 if op.name == "scf.for" else 0
        carried = (
            list(op.operands)[3:]
            if op.name == "scf.for"
            else list(op.operands)
            if op.name == "scf.while"
            else []
        )
        arguments = list(block.arguments)
        for value, argument in zip(carried, arguments[offset:], strict=False):
            if value in self.varying:
                self._mark(argument)
        if op.name == "scf.for" and any(v in self.varying for v in list(op.operands)[:3]):
            self._mark(arguments[0])
        last = list(block.operations)[-1].operation if len(list(block.operations)) else None
        if last is None or last.name not in ("scf.yield", "scf.condition"):
            return
        leaving = list(last.operands)[1:] if last.name == "scf.condition" else list(last.operands)
        for number, value in enumerate(leaving):
            if value in self.varying:
                for target in (
                    *list(op.results)[number : number + 1],
                    *arguments[offset + number : offset + number + 1],
                ):
                    self._mark(target)

    def divergent_parents(self, op: Any) -> list[str]:
        """Names of the enclosing regions that not every lane of the workgroup enters alike."""
        out, parent = [], op.parent
        while parent is not None and getattr(parent, "operation", parent).name not in (
            "gpu.func",
            "builtin.module",
        ):
            parent = getattr(parent, "operation", parent)
            if any(c in self.varying for c in self._conditions(parent)):
                out.append(parent.name)
            parent = parent.parent
        return out

    def _conditions(self, op: Any) -> list[Any]:
        if op.name == "scf.if":
            return [op.operands[0]]
        if op.name == "scf.for":
            return list(op.operands)[:3]
        if op.name == "scf.while":
            last = list(op.regions[0].blocks[0].operations)[-1].operation
            return [last.operands[0]]
        return []


def judge(facts: Mapping[str, Any], expect: Expect, where: Callable[[Chain], str]) -> list[Finding]:
    """Findings of a survey against what the plan promises. `where` turns a chain into text."""
    out = [
        Finding(
            "MLIR_BARRIER",
            where(b["chain"]),
            f"a barrier under a divergent {b['under'][0]}: not every wave reaches it",
            "move the barrier out of the branch, or make the condition the same for the whole workgroup",
        )
        for b in facts["barriers"]
        if b["under"]
    ]
    out += [
        Finding(
            "MLIR_STORE_TYPE",
            where(s["chain"]),
            f"a {s['value']} is stored through a pointer to {s['pointer']}: its bits are written as they are",
            "convert or bitcast the value to the pointer's element type",
        )
        for s in facts["stores"]
    ]
    out += [
        Finding(
            "MLIR_ATOMIC_SCOPE",
            where(a["chain"]),
            f"{a['name']} on global memory has scope {a['scope']!r}, which other workgroups do not see",
            "use the agent scope, or no scope for the whole system",
        )
        for a in facts["atomics"]
        if a["space"] in (0, 1) and a["scope"].split("-")[0] in _NARROW_SCOPES
    ]
    return out + _mfma(facts, expect)


def _mfma(facts: Mapping[str, Any], expect: Expect) -> list[Finding]:
    if expect.mfma is None:
        return []
    got = facts["mfma_by_stage"]
    return [
        Finding(
            "MLIR_MFMA_COUNT",
            f"stage {stage or '(before the first)'}",
            f"{got.get(stage, 0)} matrix instructions in the source, {expect.mfma.get(stage, 0)} in the plan",
            "correct the stage body in mono/, or the plan's count",
        )
        for stage in sorted(set(got) | set(expect.mfma))
        if got.get(stage, 0) != expect.mfma.get(stage, 0)
    ]
