"""Seam slice: fold the previous sublayer into the streams, collapse them, square and project them.

A task owns 32 hidden columns of all four streams for every row of the step. Sixteen lanes hold a token,
two columns each, so the fold, the collapse and the sum of squares of a token stay in registers; only the
gate projection (24 x 128 values against 128 x rows) goes through LDS, to an fp32 MFMA.

LDS layout of a projection operand, 128 values a line (a token, or a row of hc_fn): value k = 16 w + 4 s +
d lies at word 32 d + 4 (w ^ (line & 7)) + s. Wave w's lane group d then reads the values of its four MFMA
steps s with one 16-byte access, and eight neighbouring lines fall on different banks.
"""

from __future__ import annotations

from typing import Any

import flydsl.expr as fx
from flydsl.expr import const_expr, range_constexpr
from flydsl.expr.typing import Float32, Int32

from . import formats as fmt
from . import lanes, mailbox, peers
from . import lowlevel as ll
from .build import Site, Tasks
from .context import Context, each, renew

LINE = 512  # bytes of a line
TOKENS = 16  # columns of the projection's MFMA
PASS = 32  # tokens of a fold pass: 512 lanes, 16 a token


def _both(v: Any) -> Any:
    return fx.Vector.from_elements([v, v], Float32)


def _columns(word: Any) -> Any:
    return fx.Vector.from_elements([fmt.bf16_low(word), fmt.bf16_high(word)], Float32)


def _spot(line: Any, k_wave: Any, lane_group: Any) -> Any:
    """Byte offset of the 16 bytes of (line, wave, lane group)."""
    return line * LINE + lane_group * 128 + ((k_wave ^ (line & 7)) << 4)


def _fold(c: Context, token: Any, at: Any, a: dict[str, Any]) -> list[Any]:
    """R of the lane's two columns, a word a stream (attention.md 3.1: the last product is fused)."""
    row = at + token * (4 * c.build.shape.hidden * 2)
    step = c.build.shape.hidden * 2
    old = [ll.global_load(a["res_in"], row + step * o) for o in range(4)]
    if not a["fold"]:
        return old
    post = ll.global_load(a["post_in"], token * 16, Float32, 4)
    comb = [ll.global_load(a["comb_in"], (token * 64, 16 * i), Float32, 4) for i in range(4)]
    x = _columns(a["pend"](token, at))
    rows = [_columns(w) for w in old]
    out = []
    for o in range(4):
        v = _both(post[o]) * x + _both(comb[0][o]) * rows[0]
        v = v + _both(comb[1][o]) * rows[1]
        v = v + _both(comb[2][o]) * rows[2]
        low, high = (ll.fma(comb[3][o], rows[3][d], v[d]) for d in range(2))
        out.append(fmt.bf16_pair(c.build.how, low, high))
    return out


def _collapse(c: Context, streams: list[Any], pre: Any) -> Any:
    """The layer input's word (3.2): pre-gated sum of the streams, from 0, products rounded."""
    total = fx.Vector.filled(2, 0.0, Float32)
    for h in range(4):
        total = total + _both(pre[h]) * streams[h]
    return fmt.bf16_pair(c.build.how, total[0], total[1])


def _squares(streams: list[Any]) -> Any:
    """Sum of squares of a token's 128 values (3.3): lanes 32, then 16 apart are streams of this very lane."""
    s = []
    for v in streams:
        square = v * v
        s.append(square[0] + square[1])
    return lanes.row_sum_down((s[0] + s[2]) + (s[1] + s[3]))


@ll.device
def _token(c: Context, task: Any, token: Any, a: dict[str, Any]) -> None:
    build = c.build
    rows, hidden = build.shape.rows, build.shape.hidden
    if token < rows:
        pair = c.lane & 15
        at = pair * 4 + task * 64
        pre = ll.global_load(a["pre_in"], token * 16, Float32, 4)
        words = _fold(c, token, at, a)
        row = at + token * (4 * hidden * 2)
        for o in range_constexpr(4):
            ll.global_store(a["res_out"], row + hidden * 2 * o, words[o])
        streams = [_columns(w) for w in words]
        step = (pair >> 1) & 3
        spot = build.seam.rl + token * LINE + (pair & 1) * 256 + (step << 2)
        for o in range_constexpr(4):
            line = spot + (((2 * o + (pair >> 3)) ^ (token & 7)) << 4)
            ll.lds_store(c.lds, line, streams[o][0])
            ll.lds_store(c.lds, (line, 128), streams[o][1])
        mailbox.put(
            c,
            build.seam.lin + task * 128,
            token * (hidden * 4) + pair * 8,
            _collapse(c, streams, pre),
        )
        total = _squares(streams)
        if pair == 0:
            per_row = (build.shape.mix + 1) * 8
            mailbox.put(
                c,
                build.seam.pmix + task * (rows * per_row) + 8 * build.shape.mix,
                token * per_row,
                total.bitcast(Int32),
            )


def _weight_word(c: Context, v: Any) -> Any:
    """The weight in two bf16 parts, as their exact sum (3.3)."""
    high = fmt.bf16_round(c.build.how, v)
    return high + fmt.bf16_round(c.build.how, v - high)


def _weights_to_lds(c: Context, unit: Any, four: Any) -> None:
    """Four columns of hc_fn; ``unit`` = (gate row, stream) * 8 + column / 4."""
    line, stream, quarter = unit >> 5, (unit >> 3) & 3, unit & 7
    spot = c.build.seam.fl + _spot(line, 2 * stream + (quarter >> 2), 0) + ((quarter & 3) << 2)
    for d in range(4):
        ll.lds_store(c.lds, (spot, 128 * d), _weight_word(c, four[d]))


@ll.device
def _project(c: Context, task: Any, first: Any) -> None:
    """Gate partials of 16 tokens (3.3): eight waves split k, their sums are added in wave order."""
    build = c.build
    rows, mix, red = build.shape.rows, build.shape.mix, build.seam.red
    column, group = c.lane & 15, c.lane >> 4
    token = fx.min(first + column, Int32(rows - 1))
    b = ll.lds_load(c.lds, build.seam.rl + _spot(token, c.wave, group), count=4)
    top = ll.lds_load(c.lds, build.seam.fl + _spot(column, c.wave, group), count=4)
    low = ll.lds_load(c.lds, (build.seam.fl + _spot(c.lane & 7, c.wave, group), 16 * LINE), count=4)
    sums = [fx.Vector.filled(4, 0.0, Float32) for _ in range(2)]
    for s in range_constexpr(4):
        sums = [ll.mfma_f32(a[s], b[s], acc) for a, acc in zip((top, low), sums, strict=True)]
    spot = red + c.wave * 2048 + c.lane * 16
    ll.lds_store(c.lds, spot, sums[0])
    ll.lds_store(c.lds, (spot, 1024), sums[1])
    fx.barrier()
    j, t = c.tid & 31, c.tid >> 5
    if (j < mix) & (first + t < rows):
        part = red + (j >> 2) * 256 + (j & 3) * 4 + t * 16
        total = Float32(0.0)
        for w in range_constexpr(8):
            total = total + ll.lds_load(c.lds, (part, 2048 * w))
        per_row = (mix + 1) * 8
        mailbox.put(
            c,
            build.seam.pmix + task * (rows * per_row),
            (first + t) * per_row + j * 8,
            total.bitcast(Int32),
        )
    fx.barrier()


def seam_slice(
    c: Context,
    tasks: Tasks,
    res_in: Any,
    pend: Any,
    post_in: Any,
    comb_in: Any,
    pre_in: Any,
    hc_fn: Any,
    res_out: Any,
    fold: bool,
) -> None:
    """Slices: R to res_out, LIN and PMIX pairs to the scratch. ``fold`` off takes res_in as it is."""

    def word(token: Any, at: Any) -> Any:
        return ll.global_load(pend, at + token * (c.build.shape.hidden * 2))

    a = {
        "res_in": res_in,
        "pend": word,
        "post_in": post_in,
        "comb_in": comb_in,
        "pre_in": pre_in,
        "hc_fn": hc_fn,
        "res_out": res_out,
        "fold": fold,
    }
    c = renew(c)
    each(c, tasks, lambda task: _slice(c, task, a))


def ffn_slice(
    c: Context,
    tasks: Tasks,
    site: Site,
    res_in: Any,
    post_in: Any,
    comb_in: Any,
    pre_in: Any,
    hc_fn: Any,
    res_out: Any,
) -> None:
    """Slices of the FFN seam: what is folded in is the ranks' summed attention output (FFN math 2.1)."""
    c = renew(c)
    box = peers.own_box(c)

    def word(token: Any, at: Any) -> Any:
        return peers.rank_sum(c, box, site, c.build.ffn.peer.attn, token, at >> 1)

    a = {
        "res_in": res_in,
        "pend": word,
        "post_in": post_in,
        "comb_in": comb_in,
        "pre_in": pre_in,
        "hc_fn": hc_fn,
        "res_out": res_out,
        "fold": True,
    }
    each(c, tasks, lambda task: _slice(c, task, a))


@ll.device
def _slice(c: Context, task: Any, a: dict[str, Any]) -> None:
    rows = c.build.shape.rows
    weights = a["hc_fn"] + fx.Int64(task * 128)
    at = (c.tid >> 3) * (c.build.shape.hidden * 4) + (c.tid & 7) * 16
    first = ll.global_load(weights, at, Float32, 4)
    rest = ll.undef(Float32, 4)
    if c.wave < 4:
        rest = ll.global_load(weights, at + 64 * c.build.shape.hidden * 4, Float32, 4)
    for p in range_constexpr(0, rows, PASS):
        _token(c, task, (c.tid >> 4) + p, a)
    _weights_to_lds(c, c.tid, first)
    if c.wave < 4:
        _weights_to_lds(c, c.tid + 512, rest)
    fx.barrier()
    if const_expr(rows <= TOKENS):
        _project(c, task, Int32(0))
    else:
        for tile in range(0, (rows + TOKENS - 1) // TOKENS, 1, unroll=1):  # type: ignore[call-overload]
            _project(c, task, Int32(tile) * TOKENS)
