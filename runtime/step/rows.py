"""Rules of a row: its position, its slot, its window list.

What kernels read of a padded row (slot -1), and so what its metadata must keep to:

- its position, in K1 (q's and the record's rotation) and K2 (the inverse rotation): it must be in the table;
- its slot, which is how it is known as padded (K1, key-list launch, index builds of K2);
- nothing of its window list, its selection, its request and its block-table line: the key table masks those
  loads, so that they may be stale. Of a live row, entries past its window length and past its number of
  selected rows are masked alike.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .caches import REACH, Cache
from .codes import StepCode
from .findings import StepFinding, by_row
from .given import Given

OFFSET = 1 << 32  # bytes of a RoPE table that a 32-bit offset reaches
LAST_POSITION = REACH - 2  # kernels form position + 1 in 32 bits


def position_faults(given: Given) -> list[StepFinding]:
    """Positions with no row in the RoPE table; where nothing rotates, those that are no position."""
    pos = given.of_rows("pos")
    if pos is None:
        return []
    table = given.tensor("cos_sin")
    if given.is_input("cos_sin"):
        return [] if table is None else _rotated(pos, table, given.dims.rope)
    live = live_rows(given)
    bad = (pos < 0) | (pos > LAST_POSITION)
    bad = bad if live is None else bad & live
    limit = f"positions are 0 to {LAST_POSITION:,}"
    return by_row(StepCode.POSITION, "pos", bad, pos, [limit], "give each live row its token's position")


def _rotated(pos: Tensor, table: Tensor, rope: int) -> list[StepFinding]:
    rows = table.numel() // rope
    end = min(rows, OFFSET // (rope * table.element_size()))
    limit = f"the RoPE table has rows 0 to {rows - 1:,}"
    limit += "" if end == rows else f", of which offsets of 32 bits reach {end:,}"
    fix = "refuse the request before it is that long, or build a longer table; padded rows are rotated too"
    return by_row(StepCode.POSITION, "pos", (pos < 0) | (pos >= end), pos, [limit], fix)


def live_rows(given: Given) -> Tensor | None:
    """bool [S]: rows that are not padded, as kernels tell them apart; None where slots are not read."""
    slot = given.of_rows("slot")
    return None if slot is None else slot >= 0


def slot_faults(given: Given, caches: dict[str, Cache]) -> list[StepFinding]:
    """Slots that are neither -1 nor in the window cache, and slots that two rows would write."""
    slot = given.of_rows("slot")
    if slot is None:
        return []
    cache = caches.get("swa")
    end = cache.slots if cache else REACH
    limit = cache.words if cache else "kernels read the low 32 bits of a slot"
    fix = "take slots from the window cache's block table, and -1 for a padded row"
    found = by_row(StepCode.SLOT, "slot", (slot >= end) | (slot < -1), slot, [limit], fix)
    writes = any(a.name == "swa" and a.written for plan in given.plans for a in plan.abi.arguments)
    return found + (_shared_slots(slot) if writes else [])


def _shared_slots(slot: Tensor) -> list[StepFinding]:
    """Live rows whose slot an earlier row has: both would write the record, in no order."""
    same = (slot[:, None] == slot[None]) & (slot >= 0)[:, None]
    earlier = same.to(torch.int64).argmax(1)  # the first row with this slot
    bad = same.any(1) & (earlier < torch.arange(len(slot), device=slot.device))
    limits = [f"row {int(first)} writes the same record" for first in earlier]
    return by_row(StepCode.SLOT_TWICE, "slot", bad, slot, limits, "give every live row a slot of its own")


def window_faults(given: Given, caches: dict[str, Cache]) -> list[StepFinding]:
    """Lengths beyond the list's width, and used entries that are no slot of the cache (-1 is no key)."""
    lens, live = given.of_rows("swa_lens"), live_rows(given)
    if lens is None or live is None or not given.is_input("swa_idx"):
        return []
    width = given.width("swa_idx")
    limit = f"a window list has {width} entries"
    fix = f"give at most the last {width} positions of the row's request"
    found = by_row(
        StepCode.WINDOW_LENGTH, "swa_lens", live & ((lens < 0) | (lens > width)), lens, [limit], fix
    )
    slots = given.of_rows("swa_idx", width)
    if slots is None:
        return found
    used = live[:, None] & (torch.arange(width, device=lens.device)[None] < lens[:, None])
    cache = caches.get("swa")
    end, words = (cache.slots, cache.words) if cache else (REACH, "slots have 31 bits")
    bad = used & ((slots < -1) | (slots >= end))
    fix = "take slots from the window cache's block table, -1 where there is no key"
    return found + by_row(StepCode.WINDOW_SLOT, "swa_idx", bad, slots, [words], fix, "entry")
