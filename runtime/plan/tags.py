"""Tags of mailbox pairs, and the epoch buffer that they come from (attention.md 5.7).

Invariants
 - A launch's tag is `scale * epoch + offset` in 32 bits; the two launches of a layer and any two epochs
   within the alias period have different tags, and none is 0, the word of a fresh buffer.
 - The epoch grows by one for a layer's launch pair; K2 stores it, K1 only reads it.
"""

from __future__ import annotations

from dataclasses import dataclass

from .arith import align_up

WORD = 1 << 32


@dataclass(frozen=True)
class TagRule:
    """The tag of one launch."""

    launch: str
    scale: int
    offset: int

    def at(self, epoch: int) -> int:
        """The 32-bit tag word of `epoch`."""
        return (self.scale * epoch + self.offset) % WORD


@dataclass(frozen=True)
class Tags:
    """Tag rules of the launches of a layer."""

    rules: tuple[TagRule, ...]
    alias_epochs: int
    why: str

    def __getitem__(self, launch: str) -> TagRule:
        return {r.launch: r for r in self.rules}[launch]


@dataclass(frozen=True)
class EpochWords:
    """int32 words of the epoch buffer: the epoch, behind it `stop` (not 0 once a wait has given up: launches
    return at once), a mark a workgroup, two rings of counters for K2."""

    epoch: int
    stop: int
    marks: int
    ug_counters: int
    down_counters: int
    words: int
    ring: int  # counters of a queue: epoch e counts in word e mod ring
    clear_ahead: int  # epoch e clears counter (e + clear_ahead) mod ring


DRAIN_EPOCH = 1 << 29
"""A runner that has reached this epoch drains its launches, zeroes scratch, peer buffers and epoch words of
all ranks, and goes on from epoch 0; captured graphs stay valid.

Tags repeat after 2^31 - 1 epochs: a pair that was last written so long ago would then be believed. And as the
signed numbers in which a wait looks for the oldest one, tags keep their order below 2^30. 2^29 leaves half of
that, since the host sees epochs late, once a step, and agrees with the other ranks before it acts. 2^29
epochs are 13 million steps of 40 layers: more than a day at 100 steps a second."""
COUNTER_RING = 256
"""Counter slots of K2's queues: one a launch pair, cleared half a ring ahead."""


def tags_of() -> Tags:
    """Two launches a layer: K1 odd, K2 (and the FFN launch) even."""
    rules = (TagRule("k1", 2, 1), TagRule("k2", 2, 2))
    return Tags(
        rules,
        alias_epochs=WORD // 2 - 1,
        why="two launches share an epoch and K2's seam reuses K1's LIN and PMIX: odd and even tags keep "
        "them apart, and no tag is 0 before the epoch has wrapped",
    )


def epoch_words(grid: int) -> EpochWords:
    """The epoch buffer of a grid: epoch and `stop` are read by one load, marks start at word 4."""
    counters = align_up(4 + grid, 64)
    return EpochWords(
        epoch=0,
        stop=1,
        marks=4,
        ug_counters=counters,
        down_counters=counters + COUNTER_RING,
        words=counters + 2 * COUNTER_RING,
        ring=COUNTER_RING,
        clear_ahead=COUNTER_RING // 2,
    )
