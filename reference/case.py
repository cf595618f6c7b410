"""A whole K1 case from a seed: a layer's inputs with the statistics and the corner cases of a decode step.

Invariants
 - Field names are the launch arguments' names; shapes and dtypes are theirs too (attention sheet 6.1).
 - What a build must not read is NaN (seam inputs of a build without fold).
 - Every case that has room for it holds: several requests of several rows, a window that is not full, a
   top-k list that is not full, -1 inside a top-k list, stale entries past it, padded rows (slot -1, all
   zero), a row so small that eps decides its norm, an all-zero live row, and an all-zero MXFP8 group in a
   live row.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from ..specs.schema import ModelSpec
from .draws import Draws
from .formats import F32, FLAVOURS, to_fnuz
from .rope import cos_sin_table
from .sizes import K1Sizes
from .weights import without_nan

BF16 = torch.bfloat16
SWA_BLOCK = 32
COMPRESSED_PAGE = 64
PAGE_MULTIPLE = 576


@dataclass(frozen=True)
class K1Case:
    """Inputs of one K1 launch; S rows, hidden D, streams C. Weights are apart (K1Weights)."""

    rows: int
    tp: int
    rank: int
    ratio: int
    fold: bool
    index: bool
    window: int
    fp8: str
    seed: int
    res_in: Tensor  # bf16 [S, C, D]
    pend: Tensor  # bf16 [S, D]
    post_in: Tensor  # f32 [S, C]
    comb_in: Tensor  # f32 [S, C, C], [source][target]
    pre_in: Tensor  # f32 [S, C]
    cos_sin: Tensor  # f32 [positions, rope]
    pos: Tensor  # int64 [S]
    slot: Tensor  # int64 [S], -1 = padded row
    swa: Tensor  # uint8 [blocks * swa_stride], before the launch
    swa_stride: int
    swa_block: int
    swa_idx: Tensor  # int32 [S, window]
    swa_lens: Tensor  # int32 [S]
    comp_block: int
    comp_bt: Tensor  # int32 [requests, bt_stride]
    bt_stride: int
    topk: Tensor  # int32 [S, topk]
    t2r: Tensor  # int32 [S]

    @property
    def live(self) -> Tensor:
        """bool [S]: rows that write a record."""
        return self.slot >= 0

    def tensors(self) -> dict[str, Tensor]:
        """Launch-argument name -> tensor."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: v for name, v in values.items() if isinstance(v, Tensor)}

    def select(self, rows: Tensor) -> K1Case:
        """The case of a subset of rows, in the given order (caches and tables are shared)."""
        by_row = (
            "res_in",
            "pend",
            "post_in",
            "comb_in",
            "pre_in",
            "pos",
            "slot",
            "swa_idx",
            "swa_lens",
            "t2r",
        )
        picked = {name: getattr(self, name)[rows] for name in by_row}
        topk = self.topk[rows] if self.ratio else self.topk
        return replace(self, rows=len(rows), topk=topk, **picked)


@dataclass(frozen=True)
class Metadata:
    """Who each row is: request, position, first and last position of its window."""

    request: Tensor
    position: Tensor
    first: Tensor
    last: Tensor
    padded: int

    @property
    def requests(self) -> int:
        return int(self.request.max()) + 1


def default_padding(rows: int) -> int:
    """Padded rows of a case of `rows` rows when nothing else is asked for."""
    return 0 if rows < 3 else max(1, rows // 8)


def _given_contexts(
    model: ModelSpec, sizes: K1Sizes, case: dict[str, int], contexts: tuple[int, ...]
) -> Metadata:
    """Requests whose first rows see the given numbers of tokens, in turn; drafts see one more each."""
    live, padded = case["rows"] - case["padded"], case["padded"]
    count = min(model.draft.block_size + 1, -(-live // len(contexts)))
    request = [row // count for row in range(live)]
    position = [contexts[r % len(contexts)] - 1 + row % count for row, r in enumerate(request)]
    last = position
    if case["window"] != sizes.window:
        last = [max(p for p, other in zip(position, request, strict=True) if other == r) for r in request]
    first = [max(0, p - sizes.window + 1) for p in position]
    rows_of = [torch.tensor(values + [0] * padded) for values in (request, position, first, last)]
    return Metadata(rows_of[0], rows_of[1], rows_of[2], rows_of[3], padded)


def _metadata(
    draws: Draws, model: ModelSpec, sizes: K1Sizes, case: dict[str, int], positions: int
) -> Metadata:
    """Requests of 1 .. draft + 1 rows; long, short and middling contexts in turn."""
    rows, padded, ratio, window = case["rows"], case["padded"], case["ratio"], case["window"]
    request: list[int] = []
    position: list[int] = []
    last: list[int] = []
    reach = sizes.topk * max(ratio, 1)
    spans = [(min(2 * reach, positions // 2), positions - 8), (0, sizes.window // 2), (sizes.window, reach)]
    while len(request) < rows - padded:
        number = request[-1] + 1 if request else 0
        # The first request leaves room for a second one, so that small steps mix contexts too.
        room = rows - padded - len(request) if request else (rows - padded + 1) // 2
        count = min(int(draws.integers(1, model.draft.block_size + 2, 1)), room)
        start = int(draws.integers(*spans[number % len(spans)], 1))
        request += [number] * count
        position += range(start, start + count)
        # A draft build's window list covers the whole block, also the rows behind a token.
        last += [start + count - 1] * count if window != sizes.window else range(start, start + count)
    first = [max(0, p - sizes.window + 1) for p in position]
    rows_of = [torch.tensor(values + [0] * padded) for values in (request, position, first, last)]
    return Metadata(rows_of[0], rows_of[1], rows_of[2], rows_of[3], padded)


def _window_lists(draws: Draws, meta: Metadata, window: int) -> tuple[Tensor, Tensor, Tensor, int]:
    """slot, swa_idx, swa_lens and the number of blocks, with shuffled block numbers."""
    live = len(meta.position) - meta.padded
    per_request = [
        sorted({p // SWA_BLOCK for t in range(live) if meta.request[t] == r
                for p in range(int(meta.first[t]), int(meta.last[t]) + 1)})
        for r in range(meta.requests)
    ]  # fmt: skip
    keys = [(r, block) for r, blocks in enumerate(per_request) for block in blocks]
    blocks = len(keys) + 3
    order = draws.permutation(blocks)
    table = {key: int(order[i]) for i, key in enumerate(keys)}

    def slot_of(row: int, p: int) -> int:
        return table[int(meta.request[row]), p // SWA_BLOCK] * SWA_BLOCK + p % SWA_BLOCK

    slot = torch.full((len(meta.position),), -1)
    lists = torch.full((len(meta.position), window), -1, dtype=torch.int32)
    lens = torch.zeros(len(meta.position), dtype=torch.int32)
    for row in range(live):
        span = range(int(meta.first[row]), int(meta.last[row]) + 1)
        slot[row] = slot_of(row, int(meta.position[row]))
        lists[row, : len(span)] = torch.tensor([slot_of(row, p) for p in span], dtype=torch.int32)
        lens[row] = len(span)
    return slot, lists, lens, blocks


def _compressed(draws: Draws, meta: Metadata, sizes: K1Sizes, ratio: int) -> dict[str, Tensor | int]:
    """Block table and top-k lists of a layer that reads a compressed cache (dummies if it does not)."""
    if not ratio:
        dummy = torch.zeros(4, dtype=torch.int32)
        return {"comp_block": 1, "comp_bt": dummy, "bt_stride": 0, "topk": dummy.clone()}
    block, visible = COMPRESSED_PAGE // ratio, (meta.position + 1) // ratio
    width = int(visible.max()) // block + 3
    numbers = draws.permutation(meta.requests * width).reshape(meta.requests, width)
    # Stale entries past a list and in padded rows stay in range: they are read and thrown away.
    topk = draws.integers(0, block, len(meta.position), sizes.topk)
    for row in range(len(meta.position) - meta.padded):
        chosen = draws.permutation(int(visible[row]))[: sizes.topk]
        topk[row, : len(chosen)] = torch.where(draws.uniform(len(chosen)) < 0.03, -1, chosen)
    table = numbers.to(torch.int32)
    return {"comp_block": block, "comp_bt": table, "bt_stride": width, "topk": topk.to(torch.int32)}


def _cache(draws: Draws, sizes: K1Sizes, blocks: int, fp8: str) -> tuple[Tensor, int]:
    """A cache full of valid records of the flavour, block stride a multiple of the page multiple."""
    payload = SWA_BLOCK * sizes.record_bytes
    stride = -(-payload // PAGE_MULTIPLE) * PAGE_MULTIPLE
    cache = without_nan(draws.octets(blocks, stride))
    cache = to_fnuz(cache) if not FLAVOURS[fp8].signed_zero else cache
    return cache.flatten(), stride


def _streams(draws: Draws, sizes: K1Sizes, rows: int, padded: int) -> tuple[Tensor, Tensor]:
    """res_in and pend (float64): outlier columns, a zero group, a tiny row, a zero row, zero padding."""
    column = torch.where(draws.uniform(sizes.hidden) < 0.004, 12.0, 1.0).to(torch.float64)
    residual = draws.normal(rows, sizes.streams, sizes.hidden) * column
    pend = 0.5 * draws.normal(rows, sizes.hidden) * column
    live = rows - padded
    residual[live:], pend[live:] = 0.0, 0.0
    residual[0, :, 2 * sizes.group : 3 * sizes.group] = 0.0
    pend[0, 2 * sizes.group : 3 * sizes.group] = 0.0
    if live > 2:
        residual[live - 1] *= 1e-10
        pend[live - 1] *= 1e-10
    if live > 5:
        residual[live - 2], pend[live - 2] = 0.0, 0.0
    return residual, pend


def _gates(draws: Draws, sizes: K1Sizes, rows: int, first: bool) -> tuple[Tensor, Tensor, Tensor]:
    """post_in, comb_in, pre_in as a previous seam leaves them (or the first layer's pre gate)."""
    post = 2.0 * draws.uniform(rows, sizes.streams)
    comb = 0.05 + draws.uniform(rows, sizes.streams, sizes.streams)
    for _ in range(sizes.sinkhorn):
        comb = comb / comb.sum(-1, keepdim=True)
        comb = comb / comb.sum(-2, keepdim=True)
    pre = 1e-6 + draws.uniform(rows, sizes.streams)
    if first:
        pre = torch.zeros_like(pre)
        pre[:, 0] = 1.0
    return post.to(F32), comb.to(F32), pre.to(F32)


def make_case(
    model: ModelSpec, *, rows: int, tp: int, rank: int = 0, ratio: int, fold: bool = True,
    index: bool = False, window: int = 128, seed: int = 0, fp8: str = "ocp", first: bool = False,
    padded: int | None = None, positions: int = 4096, contexts: tuple[int, ...] = (),
) -> K1Case:  # fmt: skip
    """Build a case. `first` takes the first layer's pre gate, `positions` bounds the contexts.

    With `contexts`, requests of up to draft + 1 rows see that many tokens, in turn; `positions` grows to fit.

    Raises ValueError if the contexts do not fit the rope table or if every row would be padding.
    """
    sizes = K1Sizes.of(model, tp)
    padded = default_padding(rows) if padded is None else padded
    if not 0 <= padded < rows:
        raise ValueError(f"{padded} padded rows of {rows}: at least one row must be live")
    positions = max(positions, *contexts, 0) + 8 if contexts else positions
    if contexts and min(contexts) < 1:
        raise ValueError(f"contexts {contexts}: a row sees at least its own token")
    if not 4 * sizes.window <= positions <= model.rope.max_positions:
        raise ValueError(f"positions {positions}: take {4 * sizes.window} .. {model.rope.max_positions}")
    draws = Draws(seed, f"case/{rows}/{tp}/{ratio}/{window}")
    shape = {"rows": rows, "padded": padded, "ratio": ratio, "window": window}
    meta = (
        _given_contexts(model, sizes, shape, contexts)
        if contexts
        else _metadata(draws, model, sizes, shape, positions)
    )
    residual, pend = _streams(draws, sizes, rows, padded)
    post, comb, pre = _gates(draws, sizes, rows, first)
    slot, swa_idx, swa_lens, blocks = _window_lists(draws, meta, window)
    swa, stride = _cache(draws, sizes, blocks, fp8)
    compressed = _compressed(draws, meta, sizes, ratio)
    unread = {} if fold else {"pend": pend, "post_in": post, "comb_in": comb}
    for tensor in unread.values():
        tensor.fill_(torch.nan)
    return K1Case(
        rows=rows, tp=tp, rank=rank, ratio=ratio, fold=fold, index=index, window=window, fp8=fp8, seed=seed,
        res_in=residual.to(BF16), pend=pend.to(BF16), post_in=post, comb_in=comb, pre_in=pre,
        cos_sin=cos_sin_table(model.rope, sizes.rope, ratio, positions),
        pos=meta.position, slot=slot, swa=swa, swa_stride=stride, swa_block=SWA_BLOCK, swa_idx=swa_idx,
        swa_lens=swa_lens, t2r=meta.request.to(torch.int32), **compressed,  # type: ignore[arg-type]
    )  # fmt: skip
