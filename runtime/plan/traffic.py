"""Bytes that a launch asks for, argument by argument; the thread maps of a kind's stages are in its own
folder.

Invariants
 - `unique` counts each byte of an argument once: what HBM must deliver or take at least.
 - `requested` counts what lanes ask for; a scalar load of a wave counts once. It is a promise (`promised`)
   for weights and outputs, to which the emulator's counters are held. For small operands that many lanes
   read alike it is the map's figure for full rows: padded rows and short key lists read less.
 - Scratch is handed over past the L2 of an XCD: each word once, polls that come too early not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .abi import Abi
from .dims import SLICE_COLUMNS

SLICE_LANES = SLICE_COLUMNS // 2
"""Lanes that hold one row of a seam slice: two columns of every stream."""
WORD = 4
LOAD = 16
"""Bytes of the widest load of a lane."""


@dataclass(frozen=True)
class Traffic:
    """Bytes of one argument."""

    name: str
    requested_read: int
    unique_read: int
    requested_write: int
    unique_write: int
    promised: bool
    note: str = ""  # why lanes ask for more than each byte once, where that is on purpose


@dataclass(frozen=True)
class Asked:
    """Bytes that lanes read of one argument; `note` says why they ask for some more than once."""

    requested: int
    unique: int
    promised: bool = False
    note: str = ""


def traffic_table(
    abi: Abi, reads: Mapping[str, Asked], writes: Mapping[str, int], scratch: tuple[int, int, int]
) -> tuple[Traffic, ...]:
    """One entry a pointer argument, in launch order; `scratch` is (requested read, written, size)."""
    found, nothing = [], Asked(0, 0)
    for a in abi.arguments:
        if a.type != "ptr":
            continue
        if a.name == "scratch":
            read, written, size = scratch
            found.append(Traffic("scratch", read, size, written, size, False))
            continue
        asked = reads.get(a.name, nothing) if a.read else nothing
        size = writes.get(a.name, 0) if a.written else 0
        sure = asked.promised if a.read else a.written
        found.append(Traffic(a.name, asked.requested, asked.unique, size, size, sure, asked.note))
    return tuple(found)
