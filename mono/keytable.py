"""Key table: which cache rows a token attends to, for K2 (attention.md 2.6).

Entry k of a row: a selected compressed row (bit 31 set) below ntopk, then the window's slots, then -1.
Nothing is loaded for an entry that is not there: a padded row (slot -1) and entries past the lengths read
neither lists nor block table, whose contents are then stale. A row's position and window length are loaded
beside its slot, which saves a round trip to memory, and a padded row drops them.
"""

from __future__ import annotations

from typing import Any

import flydsl.expr as fx
from flydsl.expr import const_expr, range_constexpr
from flydsl.expr.typing import Int32

from . import lowlevel as ll
from . import mailbox
from .build import Tasks
from .context import Context, each, renew

COMPRESSED = -(2**31)


@ll.device
def _selected(c: Context, token: Any, k: Any, a: dict[str, Any]) -> Any:
    """Cache row of the token's k-th selection: local row -> block of its request -> row; -1 stays -1."""
    local = ll.global_load(a["topk"], token * (c.build.shape.topk * 4) + k * 4)
    entry = Int32(-1)
    if local >= 0:
        block_rows = a["comp_block"]
        block = Int32(fx.Uint32(local) // fx.Uint32(block_rows))
        request = ll.global_load(a["t2r"], token * 4, constant=True)
        table = a["comp_bt"] + fx.Int64(request * a["bt_stride"]) * 4
        number = ll.global_load(table, block * 4)
        entry = (number * block_rows + (local - block * block_rows)) | COMPRESSED
    return entry


def key_table(
    c: Context,
    tasks: Tasks,
    pos: Any,
    slot: Any,
    swa_idx: Any,
    swa_lens: Any,
    comp_block: Any,
    comp_bt: Any,
    bt_stride: Any,
    topk: Any,
    t2r: Any,
    kt: Any,
    klen: Any,
    ready: int | None = None,
) -> None:
    """A token a task: its row of kt and its two entries of klen.

    ``ready``: scratch offset of a flag a token, where this very launch reads the table; the stores are then
    at device scope and the flag follows them.
    """
    a = {
        "ready": ready,
        "pos": pos,
        "slot": slot,
        "swa_idx": swa_idx,
        "swa_lens": swa_lens,
        "topk": topk,
        "t2r": t2r,
        "comp_block": comp_block,
        "comp_bt": comp_bt,
        "bt_stride": bt_stride,
        "kt": kt,
        "klen": klen,
    }
    c = renew(c)
    each(c, tasks, lambda token: _row(c, token, a))


@ll.device
def _row(c: Context, token: Any, a: dict[str, Any]) -> None:
    shape = c.build.shape
    live = ll.global_load(a["slot"], token * 8, constant=True) >= 0
    chosen = Int32(0)
    if const_expr(shape.ratio > 0):
        past = ll.global_load(a["pos"], token * 8, constant=True) + 1
        chosen = live.select(fx.min(past >> (shape.ratio - 1), Int32(shape.topk)), Int32(0))
    windowed = live.select(ll.global_load(a["swa_lens"], token * 4, constant=True), Int32(0))
    total = chosen + windowed
    threads = c.build.waves * 64
    for first in range_constexpr(0, shape.keys, threads):
        k = c.tid + first
        if const_expr(first + threads <= shape.keys) or k < shape.keys:
            _entry(c, token, k, first < shape.topk, chosen, total, a)
    if c.tid == 0:
        _put(a, "klen", token * 4, 0, total)
        _put(a, "klen", token * 4, shape.rows * 4, chosen)
    if const_expr(a["ready"] is not None):
        mailbox.publish(c, a["ready"] + token * 8, 1)


def _put(a: dict[str, Any], name: str, at: Any, more: int, value: Any) -> None:
    if a["ready"] is None:
        ll.global_store(a[name], (at, more), value)
    else:
        ll.buffer_store(ll.buffer(a[name]), at, more, value, cache=ll.SC1)


@ll.device
def _entry(
    c: Context, token: Any, k: Any, may_select: bool, chosen: Any, total: Any, a: dict[str, Any]
) -> None:
    shape = c.build.shape
    entry = Int32(-1)
    if (k >= chosen) & (k < total):
        spot = fx.min(k - chosen, Int32(shape.window - 1))
        entry = ll.global_load(a["swa_idx"], token * (shape.window * 4) + spot * 4)
    if const_expr(may_select and shape.ratio > 0):  # noqa: SIM102 (a build-time and a run-time test)
        if k < chosen:
            entry = _selected(c, token, k, a)
    _put(a, "kt", token * (shape.keys * 4) + k * 4, 0, entry)
