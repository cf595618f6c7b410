"""Whose instructions they are, from machine code and execution counts alone: a stage's, or a wait's.

Invariants
 - A stage's code is what its label dominates, up to the next label: every way there leads through it. Where
   the compiler lays blocks out of line this differs from what lies between two labels by address.
 - Waiting is every look of a wait loop after its first, a wait loop the innermost loop round an s_sleep. How
   often a wait looks depends on who runs when, so it is no property of a kernel; work is what is left.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from elftools.elf.elffile import ELFFile

from flymono.emulator.codeobject import CodeObject, Instruction, Kernel

ENDS = ("s_endpgm", "s_setpc_b64", "s_trap")
LABEL = re.compile(r"\.stage\.(\w+)\.")


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


class Flow:
    """A kernel's blocks by first PC, and for each the block that every way to it passes last (`above`)."""

    def __init__(self, hsaco: bytes) -> None:
        self.code = CodeObject(hsaco)
        self.kernel: Kernel = next(iter(self.code.kernels.values()))
        self.labels = labels_of(hsaco, self.code)
        self.blocks = self._cut()
        self.back: dict[int, list[int]] = {pc: [] for pc in self.blocks}
        for pc, block in self.blocks.items():
            for then in block.then:
                self.back[then].append(pc)
        self.order = self._order()
        self.above = self._dominators()

    def _cut(self) -> dict[int, Block]:
        first, behind = self.kernel.entry, self.kernel.entry + self.kernel.size
        own = [i for i in self.code.instructions if first <= i.pc < behind]
        starts = {first, *self.labels}
        for i in own:
            if _target(i) is not None or i.mnemonic in ENDS:
                starts |= {*_following(i), i.pc + i.size}
        parts: list[list[Instruction]] = []
        for i in own:
            if i.pc in starts:
                parts.append([])
            parts[-1].append(i)
        there = {part[0].pc for part in parts}
        return {
            p[0].pc: Block(tuple(p), tuple(t for t in dict.fromkeys(_following(p[-1])) if t in there))
            for p in parts
        }

    def _order(self) -> dict[int, int]:
        """Reached block -> its number in reverse postorder."""
        post: list[int] = []
        seen, todo = {self.kernel.entry}, [(self.kernel.entry, iter(self.blocks[self.kernel.entry].then))]
        while todo:
            pc, rest = todo[-1]
            then = next((t for t in rest if t not in seen), None)
            if then is None:
                post.append(pc)
                todo.pop()
            else:
                seen.add(then)
                todo.append((then, iter(self.blocks[then].then)))
        return {pc: n for n, pc in enumerate(reversed(post))}

    def _dominators(self) -> dict[int, int]:
        """Immediate dominators (Cooper, Harvey, Kennedy: A Simple, Fast Dominance Algorithm)."""
        above, changed = {self.kernel.entry: self.kernel.entry}, True
        while changed:
            changed = False
            for pc in self.order:
                known = [p for p in self.back[pc] if p in above]
                if pc == self.kernel.entry or not known:
                    continue
                best = known[0]
                for p in known[1:]:
                    best = self._common(above, best, p)
                changed |= above.get(pc) != best
                above[pc] = best
        return above

    def _common(self, above: Mapping[int, int], a: int, b: int) -> int:
        while a != b:
            if self.order[a] > self.order[b]:
                a = above[a]
            else:
                b = above[b]
        return a

    def dominates(self, head: int, pc: int) -> bool:
        """Whether every way to `pc` leads through `head`."""
        while pc != head and self.above.get(pc, pc) != pc:
            pc = self.above[pc]
        return pc == head

    def loop(self, pc: int) -> set[int]:
        """The innermost loop round a block, empty if there is none."""
        found: set[int] = set()
        head = pc
        while not found:
            tails = [t for t in self.back[head] if t in self.order and self.dominates(head, t)]
            body = self._between(head, tails)
            if tails and pc in body:
                found = body
            if self.above.get(head, head) == head:
                break
            head = self.above[head]
        return found

    def _between(self, head: int, tails: Iterable[int]) -> set[int]:
        body, todo = {head}, list(tails)
        while todo:
            at = todo.pop()
            if at not in body:
                body.add(at)
                todo += self.back[at]
        return body

    def stages(self) -> dict[int, str]:
        """Block -> stage; "start" before the first label."""
        out: dict[int, str] = {}
        for pc in self.order:
            at = pc
            while at not in self.labels and self.above[at] != at:
                at = self.above[at]
            out[pc] = self.labels.get(at, "start")
        return out

    def waiting(self, by_pc: Mapping[int, int]) -> dict[int, int]:
        """PC -> executions that were looks after a wait's first.

        A look that finds nothing ends in the sleep, so the sleep's count is that of the looks which were in
        vain; no instruction of the loop was executed more often for waiting.
        """
        out: dict[int, int] = {}
        for pc, block in self.blocks.items():
            slept = [by_pc.get(i.pc, 0) for i in block.instructions if i.mnemonic == "s_sleep"]
            if any(slept):
                inside = [i for at in self.loop(pc) | {pc} for i in self.blocks[at].instructions]
                out |= {i.pc: min(by_pc.get(i.pc, 0), max(slept)) for i in inside}
        return out


def labels_of(hsaco: bytes, code: CodeObject) -> dict[int, str]:
    """PC -> stage of the local symbols `*.stage.<name>.*`; of several at one PC the last by number."""
    table = ELFFile(io.BytesIO(hsaco)).get_section_by_name(".symtab")
    symbols = list(table.iter_symbols()) if table else []
    found = [(s["st_value"] - code.text_address, LABEL.search(s.name)) for s in symbols]
    return {pc: label[1] for pc, label in found if label}
