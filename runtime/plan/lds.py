"""LDS of a launch: structs of 16-byte aligned members, of which one is live at a time (a union).

Invariants
 - Members of a struct are disjoint, in order, aligned to 16 bytes; a struct's size is a multiple of 16.
 - The launch allocates the largest struct; stages of different structs are separated by a barrier.
 - Rows are padded by 16 bytes: a row stride of a multiple of 64 words would put 16 rows into one bank group.
Sources: attention.md 5.6.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .arith import align_up
from .dims import Dims
from .placement import BLOCK

ALIGN = 16
PAD_WORDS = 4
WAVE = 64
WAVES = BLOCK // WAVE
PARTIAL_BYTES = WAVES * WAVE * 4 * 4
"""f32 partials of one 16x16 tile: four a lane, all waves."""


@dataclass(frozen=True)
class Member:
    """One array of a struct. `rows` x `row_words` 32-bit words, or one flat row."""

    name: str
    offset: int
    bytes: int
    element: str
    rows: int
    row_words: int
    doc: str


@dataclass(frozen=True)
class Struct:
    """Members that live together."""

    name: str
    members: tuple[Member, ...]
    bytes: int
    stages: tuple[str, ...]

    def __getitem__(self, name: str) -> Member:
        return {m.name: m for m in self.members}[name]


@dataclass(frozen=True)
class LdsMap:
    """The union of a launch: `total` bytes are allocated of the arch's `budget`."""

    structs: tuple[Struct, ...]
    total: int
    budget: int
    decides: str

    def __getitem__(self, name: str) -> Struct:
        return {s.name: s for s in self.structs}[name]


Declared = tuple[str, int, int, str, str]
"""(name, rows, 32-bit words a row, element, doc) of a member."""


def struct_of(name: str, stages: tuple[str, ...], declared: Iterable[Declared]) -> Struct:
    """Lay members out one after the other."""
    members, at = list[Member](), 0
    for label, rows, words, element, doc in declared:
        members.append(Member(label, at, rows * words * 4, element, rows, words, doc))
        at = align_up(at + rows * words * 4, ALIGN)
    return Struct(name, tuple(members), at, stages)


def union_of(structs: tuple[Struct, ...], budget: int) -> LdsMap:
    """The map of a launch; the largest struct decides."""
    largest = max(structs, key=lambda s: s.bytes)
    return LdsMap(structs, largest.bytes, budget, largest.name)


def x_words(k: int) -> int:
    """Words of one LDS row of `k` e4m3 values."""
    return k // 4 + PAD_WORDS


def code_words(d: Dims, k: int) -> int:
    """Words of one LDS row of the int32 codes of `k` values."""
    return k // d.mx_group + PAD_WORDS
