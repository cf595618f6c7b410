"""Instructions that waves executed because they waited: every look of a wait loop after its first.

How often a wait looks depends on who runs when, so it is no property of a kernel; work is what is left
without it. A wait loop is the innermost loop round an s_sleep. Nothing but machine code and execution counts
is needed, so any kernel can be counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flymono.emulator.codeobject import CodeObject, Instruction

ENDS = ("s_endpgm", "s_setpc_b64", "s_trap")


@dataclass(frozen=True)
class Block:
    """Straight-line code and the first PCs of the blocks that may follow."""

    instructions: tuple[Instruction, ...]
    then: tuple[int, ...]


def _target(instruction: Instruction) -> int | None:
    """Where a branch goes, None for other instructions."""
    if not instruction.mnemonic.startswith(("s_branch", "s_cbranch")):
        return None
    return int(instruction.text.split()[-1], 0)


def _following(instruction: Instruction) -> tuple[int, ...]:
    target, behind = _target(instruction), instruction.pc + instruction.size
    if instruction.mnemonic in ENDS:
        return ()
    if target is None:
        return (behind,)
    return (target,) if instruction.mnemonic == "s_branch" else (target, behind)


def blocks_of(code: CodeObject, kernel: str) -> dict[int, Block]:
    """First PC -> block, of all code of a kernel."""
    found = code.kernels[kernel]
    own = [i for i in code.instructions if found.entry <= i.pc < found.entry + found.size]
    starts = {found.entry}
    for i in own:
        if _target(i) is not None or i.mnemonic in ENDS:
            starts |= {*_following(i), i.pc + i.size}
    out: dict[int, Block] = {}
    part: list[Instruction] = []
    for i in own:
        if i.pc in starts and part:
            out[part[0].pc] = Block(tuple(part), _following(part[-1]))
            part = []
        part.append(i)
    out[part[0].pc] = Block(tuple(part), _following(part[-1]))
    return {pc: Block(b.instructions, tuple(t for t in b.then if t in out)) for pc, b in out.items()}


def _reached(graph: Mapping[int, tuple[int, ...]], start: int, without: int = -1) -> set[int]:
    """Everything behind `start` in a graph that lacks one node."""
    seen, todo = {start}, [start]
    while todo:
        for node in graph.get(todo.pop(), ()):
            if node not in seen and node != without:
                seen.add(node)
                todo.append(node)
    return seen


def _loop(blocks: Mapping[int, Block], entry: int, sleeper: int) -> set[int]:
    """The smallest natural loop round a block: a head on every way to the loop's blocks, and whatever lies
    between the head and a branch back to it."""
    ahead = {pc: b.then for pc, b in blocks.items()}
    back: dict[int, tuple[int, ...]] = dict.fromkeys(blocks, ())
    for pc, b in blocks.items():
        for t in b.then:
            back[t] += (pc,)
    circle, loops = _reached(ahead, sleeper) & _reached(back, sleeper), []
    for head in circle:
        elsewhere = _reached(ahead, entry, without=head) if head != entry else set()
        body = {head}
        for tail in back[head]:
            if tail in circle and tail not in elsewhere and tail != head:
                body |= _reached(back, tail, without=head)
        if sleeper in body and sleeper not in elsewhere and (len(body) > 1 or head in ahead[head]):
            loops.append(body)
    return min(loops, key=len, default=set())


def waiting(code: CodeObject, kernel: str, by_pc: Mapping[int, int]) -> dict[int, int]:
    """PC -> executions that were looks after a wait's first.

    A look that finds nothing ends in the sleep, so the sleep's count is that of the looks which were in vain;
    no instruction of the loop was executed more often for waiting.
    """
    entry, blocks = code.kernels[kernel].entry, blocks_of(code, kernel)
    out: dict[int, int] = {}
    for pc, block in blocks.items():
        slept = max((by_pc.get(i.pc, 0) for i in block.instructions if i.mnemonic == "s_sleep"), default=0)
        if slept:
            inside = [i for at in _loop(blocks, entry, pc) | {pc} for i in blocks[at].instructions]
            out |= {i.pc: min(by_pc.get(i.pc, 0), slept) for i in inside}
    return out
