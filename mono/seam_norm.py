"""Seam norm: a token's sublayer input to its RMS-normed row, published: in K1 as MXFP8 for wqkv, in the FFN
half as bf16 for the router and the quantiser.

Waves 0..3 hold the token: thread i owns columns 8 i .. 8 i + 7 of each chunk of 2048, the last chunk half
filled (waves 0 and 1). The order of the sum of squares is a promise: 24 values in order, a butterfly up,
the waves in pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flydsl.expr as fx
from flydsl.expr import range_constexpr
from flydsl.expr.typing import Float32, Int32

from . import formats as fmt
from . import lanes, mailbox
from . import lowlevel as ll
from .build import Site, Tasks
from .context import Context, each, renew

CHUNK = 2048  # columns: 256 threads of 8
THREADS_WAVES = 4


def _squares(total: Any, values: list[Any]) -> Any:
    for v in values:
        total = total + v * v
    return total


@ll.device
def _read(c: Context, site: Site, token: Any) -> Any:
    """The token's LIN words (12 a thread) and the thread's sum of squares."""
    hidden = c.build.shape.hidden
    region = c.build.seam.lin + token * (hidden * 4)
    chunks = hidden // CHUNK
    at = c.tid * 32
    last = (c.wave < (hidden % CHUNK) // 512).select(at + chunks * CHUNK * 4, at)
    spots = [
        (region, v + k, 2) for v in [*(at + q * CHUNK * 4 for q in range(chunks)), last] for k in (0, 16)
    ]
    words = mailbox.poll(c, site, spots)
    total = Float32(0.0)
    for q in range_constexpr(chunks):
        total = _squares(total, fmt.unpack(words[4 * q : 4 * q + 4]))
    if c.wave < (hidden % CHUNK) // 512:
        total = _squares(total, fmt.unpack(words[4 * chunks :]))
    return words, total


def _pairs(c: Context, words: list[Any], weight: Any, scale: Any) -> list[Any]:
    """Eight columns normed, weighted, rounded to bf16 (3.4)."""
    weights = fmt.unpack([weight[k] for k in range(4)])
    values = fmt.unpack(words)
    return [
        fmt.bf16_pair(c.build.how, (values[k] * scale) * weights[k], (values[k + 1] * scale) * weights[k + 1])
        for k in range(0, 8, 2)
    ]


def _quantised(c: Context, token: Any, q: int, pairs: list[Any], normed_out: Any) -> None:
    """K1's hand-on: MXFP8 to X8 / X8S, and bf16 to ``normed_out`` in builds for index layers."""
    how, shape, scratch = c.build.how, c.build.shape, c.build.scratch
    values = fmt.unpack(pairs)
    if normed_out is not None:
        row = normed_out + fx.Int64(token * (shape.hidden * 2))
        ll.global_store(row, c.tid * 16 + q * CHUNK * 2, fx.Vector.from_elements(pairs, Int32))
    code = fmt.scale_code(how, lanes.quad_max(fmt.amax16(how, pairs, values)), fmt.MX_FLOOR)
    row = scratch.x8 + token * shape.hidden + q * CHUNK
    mailbox.store(c, row, c.tid * 8, fmt.pack8(values, fmt.multiplier(code)))
    _code(c, scratch.x8s + token * (shape.hidden // 8) + q * (CHUNK // 8), code)


def _rounded(c: Context, token: Any, q: int, pairs: list[Any]) -> None:
    """The FFN seam's hand-on: bf16 to NORMED, which the router and the quantiser read."""
    row = c.build.ffn.scratch.normed + token * (c.build.shape.hidden * 2) + q * CHUNK * 2
    mailbox.store(c, row, c.tid * 16, fx.Vector.from_elements(pairs, Int32))


@ll.device
def _code(c: Context, region: Any, code: Any) -> None:
    if (c.tid & 3) == 0:
        mailbox.store(c, region, c.tid, code)


@dataclass(frozen=True)
class _To:
    """Where a row goes: what takes eight columns of it, and its flag."""

    hand_on: Callable[[Any, int, list[Any]], None]  # (token, chunk, pairs)
    flags: int  # scratch offset of row 0's
    count: int  # flags of a row


def seam_norm(c: Context, tasks: Tasks, site: Site, attn_w: Any, normed_out: Any = None) -> None:
    """A token a task: LIN pairs to X8 / X8S and its two flags; ``normed_out`` in builds for index layers."""
    c = renew(c)
    to = _To(lambda token, q, pairs: _quantised(c, token, q, pairs, normed_out), c.build.scratch.xrdy, 2)
    each(c, tasks, lambda token: _norm(c, site, token, attn_w, to))


def ffn_norm(c: Context, tasks: Tasks, site: Site, ffn_w: Any) -> None:
    """A token a task: LIN pairs to a bf16 row of NORMED and its flag."""
    c = renew(c)
    to = _To(lambda token, q, pairs: _rounded(c, token, q, pairs), c.build.ffn.scratch.xrdy, 1)
    each(c, tasks, lambda token: _norm(c, site, token, ffn_w, to))


@ll.device
def _norm(c: Context, site: Site, token: Any, weight: Any, to: _To) -> None:
    hidden = c.build.shape.hidden
    chunks = hidden // CHUNK
    words = [ll.undef(Int32) for _ in range(4 * (chunks + 1))]
    weights = [ll.undef(Int32, 4) for _ in range(chunks + 1)]
    if c.wave < THREADS_WAVES:
        for q in range_constexpr(chunks + 1):
            column = c.tid * 16 + q * CHUNK * 2
            inside = column if q < chunks else fx.min(column, Int32(hidden * 2 - 16))
            weights[q] = ll.global_load(weight, inside, count=4)
        words, total = _read(c, site, token)
        total = lanes.sum_up(total)
        if c.lane == lanes.LAST_LANE:
            ll.lds_store(c.lds, c.build.seam.red + c.wave * 4, total)
    fx.barrier()
    hand_on = to.hand_on
    if c.wave < THREADS_WAVES:
        s = ll.lds_load(c.lds, c.build.seam.red, count=4)
        mean = ll.fma((s[0] + s[1]) + (s[2] + s[3]), Float32(1.0 / hidden), Float32(c.build.numerics.rms_eps))
        scale = ll.rsq(mean)
        for q in range_constexpr(chunks):
            hand_on(token, q, _pairs(c, words[4 * q : 4 * q + 4], weights[q], scale))
        if c.wave < (hidden % CHUNK) // 512:
            hand_on(token, chunks, _pairs(c, words[4 * chunks :], weights[chunks], scale))
    mailbox.publish(c, to.flags + token * (8 * to.count), to.count)
    fx.barrier()
