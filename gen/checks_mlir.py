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
_NARROW_SCOPES = ("workgroup", "wavefront", "singlethread")
_POINTER = re.compile(r"!fly\.ptr<\s*([^,>]+)\s*,\s*(\w+)")
_ELEMENT = re.compile(r"^vector<(?:\d+x)+(.+)>$")


def survey(mlir: str, module_name: str) -> dict[str, Any]:
    """Facts of one source module. `module_name` is the generated file as locations name it."""
    from . import flydsl_backend as backend

    facts: dict[str, Any] = {"mfma": [], "barriers": [], "stores": [], "atomics": [], "lds_bytes": 0}
    with backend.parsed(mlir) as module:
        stage = ""

        def visit(op: Any) -> None:
            nonlocal stage
            stage = _stage_marker(op) or stage
            chain = backend.location_chain
            if ".mfma." in op.name:
                facts["mfma"].append(
                    {"name": op.name, "stage": stage, "times": _times(op), "chain": chain(op)}
                )
            elif op.name in ("gpu.barrier", "rocdl.s.barrier", "rocdl.barrier"):
                facts["barriers"].append({"under": divergent_parents(op), "chain": chain(op)})
            elif op.name in ("llvm.store", "fly.ptr.store"):
                facts["stores"] += _typed_store(op, chain)
            elif op.name == "fly.make_ptr":
                facts["lds_bytes"] += _allocation(op)
            facts["atomics"] += _atomic(op, chain)

        backend.walk(module, visit)
    counts: Counter[str] = Counter()
    for mfma in facts["mfma"]:
        counts[mfma["stage"]] += mfma["times"]
    facts["mfma_by_stage"] = dict(counts)
    return facts


def _times(op: Any) -> int:
    """How often an operation runs in one pass through the kernel: the product of the trip counts around it.

    A loop whose bounds are no constants counts once, and so does every branch.
    """
    times, parent = 1, _op(op.parent)
    while parent is not None and parent.name != "gpu.func":
        if parent.name == "scf.for":
            bounds = [_constant(v) for v in list(parent.operands)[:3]]
            if None not in bounds:
                low, high, step = (b for b in bounds if b is not None)
                times *= len(range(low, high, step))
        parent = _op(parent.parent)
    return times


def _constant(value: Any) -> int | None:
    """The integer that a value is, None if that is not written at its definition."""
    from flydsl._mlir import ir

    owner = _op(ir.Value(value).owner)
    if getattr(owner, "name", "") != "arith.constant":
        return None
    return int(ir.IntegerAttr(owner.attributes["value"]).value)


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
    owner = _op(pointer.owner)
    if op.name == "llvm.store" and getattr(owner, "name", "") != "fly.to_llvm_ptr":
        return []
    typed = _POINTER.search(str((pointer if op.name == "fly.ptr.store" else owner.operands[0]).type))
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


def divergent_parents(op: Any) -> list[str]:
    """Names of the enclosing regions, innermost first, that not every lane of the workgroup enters alike."""
    out, parent = [], _op(op.parent)
    while parent is not None and parent.name not in ("gpu.func", "builtin.module"):
        if any(_varies(condition) for condition in _conditions(parent)):
            out.append(parent.name)
        parent = _op(parent.parent)
    return out


def _op(view: Any) -> Any:
    return getattr(view, "operation", view)


def _conditions(op: Any) -> list[Any]:
    """The values that decide whether and how often a region runs."""
    if op.name == "scf.if":
        return [op.operands[0]]
    if op.name == "scf.for":
        return list(op.operands)[:3]
    return [_terminator(op.regions[0].blocks[0]).operands[0]] if op.name == "scf.while" else []


def _same(one: Any, other: Any) -> bool:
    from flydsl._mlir import ir

    return bool(ir.Value(one) == ir.Value(other))


def _terminator(block: Any) -> Any:
    return _op(list(block.operations)[-1])


def _varies(value: Any) -> bool:
    """Whether a value may differ between the lanes of a workgroup.

    It may if, going backwards from it, anything that differs by lane can be reached: through operands,
    through what a region yields and what decides that region, around loops. A load differs if its address
    does: that is how a ticket in LDS is uniform. `readfirstlane` is no barrier: waves still differ.
    """
    from flydsl._mlir import ir

    seen, todo = set(), [value]
    while todo:
        one = ir.Value(todo.pop())  # plain: FlyDSL's own value types overload ==
        if one in seen:
            continue
        seen.add(one)
        owner = one.owner
        if hasattr(owner, "operations"):  # the owner of a block argument is its block
            todo += _into_block(one, owner)
            continue
        op = _op(owner)
        if op.name.startswith(_PER_LANE) or (op.name == "llvm.call_intrinsic" and not len(op.operands)):
            return True
        todo += _out_of(one, op)
    return False


def _into_block(value: Any, block: Any) -> list[Any]:
    """What a block argument can stand for."""
    from flydsl._mlir import ir

    op, index = _op(block.owner), ir.BlockArgument(value).arg_number
    if op.name == "scf.for":
        if index == 0:
            return list(op.operands)[:3]
        return [list(op.operands)[2 + index], _terminator(block).operands[index - 1]]
    if op.name == "scf.while":
        before, after = (region.blocks[0] for region in op.regions)
        if block == before:
            return [op.operands[index], _terminator(after).operands[index]]
        return [_terminator(before).operands[1 + index]]
    return []


def _out_of(value: Any, op: Any) -> list[Any]:
    """What a result is computed from."""
    from flydsl._mlir import ir

    if op.name not in ("scf.if", "scf.for", "scf.while"):
        return list(op.operands)
    index = ir.OpResult(value).result_number
    if op.name == "scf.while":
        return [*_conditions(op), _terminator(op.regions[0].blocks[0]).operands[1 + index]]
    yields = [_terminator(r.blocks[0]).operands[index] for r in op.regions if len(r.blocks)]
    if op.name == "scf.if" and len(yields) == 2 and _same(yields[0], yields[1]):
        return yields[:1]  # FlyDSL carries every object that a branch uses; this one leaves as it came
    if op.name == "scf.for" and _same(yields[0], op.regions[0].blocks[0].arguments[1 + index]):
        return [op.operands[3 + index]]
    return [*_conditions(op), *yields, *([op.operands[3 + index]] if op.name == "scf.for" else [])]


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
        for stage in sorted((set(got) | set(expect.mfma)) - set(expect.mfma_open))
        if got.get(stage, 0) != expect.mfma.get(stage, 0)
    ]
