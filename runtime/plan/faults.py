"""Where a wait that gives up leaves its record, and what a launch looks at before it begins.

Invariants
 - `FaultWords` lie in pinned host memory, one buffer a rank. The first wait of a rank that gives up writes
   the head; every wait that ends, by its bound or by another's mark, writes the record of its site. Nothing
   is written unless something is wrong, and no kernel ever clears anything.
 - A head is 16 bytes in one store, never half of it: `state` is 0 (nothing), `OWN` (of a launch that has no
   rank: K1) or `FROM` + the rank whose wait gave up, with the build's code above it. The mark in a peer
   buffer is a head of a rank's that gave up.
 - The code of a build holds all of its key that its sites depend on: records are read without knowing what
   ran.
 - Launches look at the epoch buffer's word `stop` and at the mark in their own peer buffer, which are in the
   GPU's memory: host memory in front of every launch would cost each of them more than a microsecond.
"""

from __future__ import annotations

from dataclasses import dataclass

from .abi import Row
from .keys import DEFAULT_WINDOW, BuildKey

TICKS_PER_SECOND = 100_000_000
"""Of the clock that bounds waits (s_memrealtime)."""
BOUND = 10 * TICKS_PER_SECOND
"""How long a wait may last in service; a layer takes some 100 microseconds."""
FIRST_BOUND = 120 * TICKS_PER_SECOND
"""The same until the first graphs are captured: a rank may compile for a long time while others wait."""
LOOK_POLLS = 64
"""Polls between two looks of a wait at the clock and at the mark: some 100 microseconds."""
OWN, FROM = 1, 2
CODE_SHIFT = 16
HEAD_BYTES = 16
MARK_BYTES = 256
"""Header of a peer buffer: a head, on lines of its own."""
MOST_SITES = 31
MARKED = 1 << 23
"""In `where`: a mark ended the wait, not its bound."""
_KINDS = ("k1", "k2", "ffn")


@dataclass(frozen=True)
class FaultWords:
    """int32 words of a rank's fault buffer.

    The head is (state | code << 16, where, oldest tag seen, the launch's tag), a site's record (where, oldest
    tag, the launch's tag, code), at word `stride` * site. `where` = site | workgroup << 8 | wave << 20 |
    `MARKED` | awaited ranks << 24, the last a bit mask that is 0 unless ranks are awaited.
    """

    head: int
    stride: int
    mark: int  # a head that came from another rank
    words: int
    code_shift: int
    look_polls: int

    @property
    def mark_at(self) -> int:
        """Byte offset of the mark."""
        return 4 * self.mark


def fault_words() -> FaultWords:
    """The layout, the same for every build."""
    mark = 4 * (1 + MOST_SITES)
    return FaultWords(
        head=0, stride=4, mark=mark, words=mark + 4, code_shift=CODE_SHIFT, look_polls=LOOK_POLLS
    )


def fault_rows(*, peers: bool) -> list[Row]:
    """The two launch arguments behind `epoch`. A launch with peers reads a fault in order to pass it on."""
    doc = "fault words of this rank, in pinned host memory: where waits that give up leave their records"
    return [
        ("fault", "ptr", "i32", (fault_words().words,), "runner", "rw" if peers else "w", doc),
        ("bound", "int64", "i64", (), "runner", "r", "ticks of the 100 MHz clock that a wait may last"),
    ]


def build_code(key: BuildKey) -> int:
    """16 bits: kind, rows, ratio, and what else tells the site tables of two builds of one server apart."""
    narrow = key.draft or key.window != DEFAULT_WINDOW
    flags = sum(on << i for i, on in enumerate((key.fold, key.index, narrow, key.timeline)))
    if not (0 <= key.ratio < 16 and 0 < key.rows < 64):
        raise ValueError(f"{key.id}: no code for {key.rows} rows and ratio {key.ratio}")
    return _KINDS.index(key.kind) | key.rows << 2 | key.ratio << 8 | flags << 12
