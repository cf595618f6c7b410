"""Rules of selected compressed rows: visible at the row's position, in the cache through its block table.

Of a live row the first min((position + 1) // ratio, top-k) entries are read, and of its request's line in the
block table the blocks of those that are not -1 (attention.md 2.6). A padded row is not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .caches import REACH, Cache
from .codes import StepCode
from .findings import StepFinding, by_row
from .given import Given, extent
from .rows import live_rows


@dataclass(frozen=True)
class Used:
    """Entries of the top-k lists: int64 values, and bool masks of what is read and of what names a row."""

    local: Tensor  # [S, topk]
    visible: Tensor  # [S]: compressed rows that exist at the row's position
    read: Tensor  # bool [S, topk]
    named: Tensor  # bool [S, topk]: read, and a row (not -1)


def used_entries(given: Given) -> Used | None:
    """The entries, None where no launch reads selections or an argument is not usable."""
    if not given.ratio or not given.is_input("topk"):
        return None
    width, live, pos = given.width("topk"), live_rows(given), given.of_rows("pos")
    local = given.of_rows("topk", width)
    if local is None or live is None or pos is None:
        return None
    visible = torch.where(live, (pos + 1).clamp_min(0) // given.ratio, 0)
    read = torch.arange(width, device=local.device)[None] < visible[:, None]
    return Used(local, visible, read, read & (local >= 0))


def selection_faults(given: Given, caches: dict[str, Cache]) -> list[StepFinding]:
    """Everything that is wrong with selections, requests and block-table lines."""
    used = used_entries(given)
    if used is None:
        return []
    bad = used.read & ((used.local < -1) | (used.local >= used.visible[:, None]))
    limits = [f"{int(v):,} compressed rows are visible at the row's position" for v in used.visible]
    fix = "write the indexer's choice for this very step, and -1 where it has none"
    found = by_row(StepCode.SELECTION_RANGE, "topk", bad, used.local, limits, fix, "entry")
    block, table = given.number("comp_block"), given.tensor("comp_bt")
    if block is None or block <= 0 or table is None:
        return found
    return found + _table_faults(given, caches.get("comp"), used, block, table)


def _table_faults(
    given: Given, cache: Cache | None, used: Used, block: int, table: Tensor
) -> list[StepFinding]:
    stride, found = given.number("bt_stride"), list[StepFinding]()
    request = given.of_rows("t2r")
    if stride is None or request is None:
        return found
    lines, width, found = _shape(table, stride)
    if found:
        return found
    asked = used.named.any(1)
    lines = min(lines, (REACH - 1) // stride + 1)
    absent = asked & ((request < 0) | (request >= lines))
    limit = f"the block table has lines of {lines:,} requests"
    fix = "number the step's requests as their lines in the block table"
    found += by_row(StepCode.REQUEST, "t2r", absent, request, [limit], fix)
    column = used.local.clamp_min(0) // block
    outside = used.named & (column >= width)
    limit = f"a line of the block table has {width:,} blocks of {block} rows: {width * block:,} rows"
    fix = "give the block table of the cache that this layer reads, as wide as its longest request"
    found += by_row(StepCode.BLOCK_TABLE, "topk", outside, used.local, [limit], fix, "entry")
    known = used.named & ~outside & ~absent[:, None]
    return found + _block_faults(known, request, column, table, stride, block, cache)


def _shape(table: Tensor, stride: int) -> tuple[int, int, list[StepFinding]]:
    """(requests, blocks a line, what is wrong with them) of a block table [requests, blocks]."""
    words = extent(table) // table.element_size()
    if table.dim() < 2:
        wrong = stride <= 0
        limit = f"elements from line to line of a table of {words:,}"
    else:
        lines, width = table.shape
        wrong = table.stride(1) != 1 or stride <= 0 or (lines > 1 and table.stride(0) != stride)
        limit = f"the table has shape {list(table.shape)} and strides {list(table.stride())}"
        if not wrong:
            return lines, min(width, stride), []
    if wrong:
        fix = "take the block table's stride of dimension 0, in elements"
        return 0, 0, [StepFinding(StepCode.NUMBER, "bt_stride", str(stride), limit, fix)]
    return words // stride, stride, []


def _block_faults(
    known: Tensor, request: Tensor, column: Tensor, table: Tensor, stride: int, block: int,
    cache: Cache | None,
) -> list[StepFinding]:  # fmt: skip
    """Blocks that selections lead to and that are not in the cache."""
    flat = table.as_strided((extent(table) // table.element_size(),), (1,))
    place = torch.where(known, request[:, None] * stride + column, 0)
    number = torch.where(known, flat[place].to(torch.int64), 0)
    end = cache.blocks if cache else REACH // block
    end = min(end, REACH // block)
    limit = cache.words if cache else f"slots have 31 bits, so blocks of {block} rows end at {end:,}"
    fix = "give the block table of the cache that this layer reads, with every used block allocated"
    bad = known & ((number < 0) | (number >= end))
    return by_row(StepCode.BLOCK_TABLE, "comp_bt", bad, number, [limit], fix, "block of entry")
