"""Rules of a finished key table, as K2 takes it from K1 or from a key-list launch (attention.md 2.6, 4.1).

K2 cuts a row's keys into chunks and loads the record of every entry of a chunk that holds a key: entries from
the row's length to the end of that chunk must be -1. A padded row has length 0 and no chunk, so nothing of it
is read. The second half of klen (compressed keys of a row) is not read.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..plan import K2Plan
from .caches import REACH, Cache
from .codes import StepCode
from .findings import StepFinding, by_row
from .given import Given

MARK = 1 << 31  # bit of a compressed entry


def key_faults(given: Given, caches: dict[str, Cache]) -> list[StepFinding]:
    """Lengths beyond the table's width, entries beyond their cache, keys behind the end."""
    klen, keys = given.of_rows("klen"), given.dims.keys
    kt = given.of_rows("kt", keys)
    found = list[StepFinding]()
    if klen is not None and given.is_input("klen"):
        bad = (klen < 0) | (klen > keys)
        limit = f"a row of the key table has {keys} entries"
        fix = "build the table again: its row is the selected rows, the window, then -1"
        found += by_row(StepCode.KEY_COUNT, "klen", bad, klen, [limit], fix)
    if klen is None or kt is None or not given.is_input("kt"):
        return found
    read = _read(given, klen.clamp(0, keys), keys)
    return found + _entry_faults(given, caches, klen, kt, read)


def _read(given: Given, klen: Tensor, keys: int) -> Tensor:
    """bool [S, keys]: entries that K2 loads, whole chunks up to a row's length."""
    plan = next(p for p in given.plans if isinstance(p, K2Plan))
    chunk = plan.attention.split.chunk
    return torch.arange(keys, device=klen.device)[None] < ((klen + chunk - 1) // chunk * chunk)[:, None]


def _entry_faults(
    given: Given, caches: dict[str, Cache], klen: Tensor, kt: Tensor, read: Tensor
) -> list[StepFinding]:
    place = torch.arange(kt.shape[1], device=kt.device)[None]
    key = read & (kt != -1)
    late = key & (place >= klen[:, None])
    fix = "build the table again: entries from a row's length on are -1"
    limits = [f"the row has {int(n)} keys" for n in klen]
    found = by_row(StepCode.KEY_AFTER_END, "kt", late, kt, limits, fix, "entry")
    compressed = key & ~late & (kt < 0)
    window = key & ~late & (kt >= 0)
    slot = kt & (MARK - 1)
    fix = "build the table again from this step's window lists, selections and block table"
    swa, comp = caches.get("swa"), caches.get("comp")
    if swa is not None:
        beyond = window & (slot >= swa.slots)
        found += by_row(StepCode.KEY_RANGE, "kt", beyond, slot, [swa.words], fix, "entry")
    if not given.ratio:
        limit = "a layer of ratio 0 reads no compressed cache, so an entry is a window slot or -1"
        return found + by_row(StepCode.KEY_RANGE, "kt", compressed, kt, [limit], fix, "entry")
    if comp is not None:
        beyond = compressed & (slot >= comp.slots)
        found += by_row(StepCode.KEY_RANGE, "kt", beyond, slot, [comp.words], fix, "compressed entry")
    return found


assert REACH == MARK, "a slot is what the mark leaves of an entry"
