"""From one decode step of a layer to its next: positions, slots and lists go on, caches stay.

All drafts of a step count as accepted, so a request with c rows goes on by c positions.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from .case import K1Case
from .draws import Draws
from .formats import FLAVOURS
from .layer_case import LayerCase, compressed_rows, fill, kv_source, window_positions
from .layer_sizes import LayerSizes
from .records import RecordCache
from .sizes import K1Sizes


def _rows(case: K1Case) -> dict[int, list[int]]:
    """Request -> its rows."""
    rows: dict[int, list[int]] = {}
    for row in torch.nonzero(case.live).flatten().tolist():
        rows.setdefault(int(case.t2r[row]), []).append(row)
    return rows


def _grown(case: K1Case, swa: Tensor) -> tuple[Tensor, dict[tuple[int, int], int]]:
    """The window cache with the blocks of the next positions, and (request, position block) -> block."""
    blocks = {(r, p // case.swa_block): slot // case.swa_block
              for slot, (r, p) in window_positions(case).items()}  # fmt: skip
    free = swa.numel() // case.swa_stride
    for request, own in _rows(case).items():
        last = int(case.pos[own].max()) + len(own)
        for block in range(int(case.pos[own].min()) // case.swa_block, last // case.swa_block + 1):
            if (request, block) not in blocks:
                blocks[request, block], free = free, free + 1
    more = free * case.swa_stride - swa.numel()
    return torch.nn.functional.pad(swa, (0, more)), blocks


def _lists(case: K1Case, pos: Tensor, blocks: dict[tuple[int, int], int]) -> tuple[Tensor, Tensor, Tensor]:
    """slot, swa_idx and swa_lens of the new positions."""
    slot, lists, lens = case.slot.clone(), torch.full_like(case.swa_idx, -1), torch.zeros_like(case.swa_lens)
    for request, own in _rows(case).items():

        def at(p: int, request: int = request) -> int:
            return blocks[request, p // case.swa_block] * case.swa_block + p % case.swa_block

        for row in own:
            p = int(pos[row])
            span = range(max(0, p - case.window + 1), p + 1)
            slot[row], lens[row] = at(p), len(span)
            lists[row, : len(span)] = torch.tensor([at(k) for k in span], dtype=torch.int32)
    return slot, lists, lens


def _chosen(case: K1Case, pos: Tensor, sizes: K1Sizes) -> Tensor:
    """Top-k lists of the new positions."""
    if not case.ratio:
        return case.topk
    draws, topk = Draws(case.seed, f"next/{int(pos.max())}"), case.topk.clone()
    for row in torch.nonzero(case.live).flatten().tolist():
        chosen = draws.permutation((int(pos[row]) + 1) // case.ratio)[: sizes.topk]
        topk[row, : len(chosen)] = torch.where(draws.uniform(len(chosen)) < 0.03, -1, chosen).to(torch.int32)
    return topk


def _completed(case: K1Case, places: dict[int, tuple[int, int]]) -> list[int]:
    """Slots of compressed rows whose last token was one of the step's."""
    step = {(int(case.t2r[t]), int(case.pos[t])) for t in torch.nonzero(case.live).flatten().tolist()}
    return [s for s, (request, local) in places.items() if (request, (local + 1) * case.ratio - 1) in step]


def next_step(
    case: LayerCase, swa: Tensor, comp: Tensor, sizes: LayerSizes, keep_compressed: bool = False
) -> LayerCase:
    """The same layer's next step on the caches as this one left them (not changed here).

    New window blocks are appended, lists are drawn again, and records that they name and that do not exist
    yet are filled in. With `keep_compressed` the compressed rows that the step completed are left alone: a
    compressor wrote them. ValueError for draft builds, whose window covers a whole block.
    """
    k1 = case.k1
    if k1.window != sizes.window:
        raise ValueError(f"a window of {k1.window} is a draft build's: only windows of {sizes.window} go on")
    step = torch.zeros_like(k1.pos)
    for own in _rows(k1).values():
        step[own] = len(own)
    pos = k1.pos + step
    grown, blocks = _grown(k1, swa)
    slot, lists, lens = _lists(k1, pos, blocks)
    after = replace(
        k1, pos=pos, slot=slot, swa_idx=lists, swa_lens=lens, swa=grown, topk=_chosen(k1, pos, sizes)
    )
    window = RecordCache(after.swa, after.swa_stride, after.swa_block, FLAVOURS[after.fp8])
    fill(window, window_positions(after), f"window/{case.layer}", after, sizes, 1, window_positions(k1))
    moved = replace(case, k1=after, comp=comp.clone())
    if k1.ratio:
        done = _completed(k1, compressed_rows(after)) if keep_compressed else ()
        source = f"compressed/{kv_source(case.model, case.layer)}"
        fill(moved.compressed_cache, compressed_rows(after), source, after, sizes, k1.ratio, done)
    return moved
