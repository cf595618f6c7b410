"""qkv: a token's two K halves added, q norm to MXFP8, kv norm, RoPE and the KV record.

Waves 0..3 hold the token: thread i owns q columns 8 i .. 8 i + 7 (those below q_rank) and the kv pair 2 i,
2 i + 1. wq_b of every workgroup waits for the q row, so it is published before the record is made.
"""

from __future__ import annotations

from typing import Any

import flydsl.expr as fx
from flydsl.expr import const_expr, range_constexpr
from flydsl.expr.typing import Float32, Int32

from . import formats as fmt
from . import lanes, mailbox
from . import lowlevel as ll
from .build import Site, Tasks
from .context import Context, each, renew

WAVES = 4


def _pair_sums(c: Context, site: Site, token: Any, column: Any) -> list[Any]:
    """The words of bf16(P0 + P1): four of q, one of kv (3.5)."""
    shape = c.build.shape
    spots = []
    for half in range(2):
        region = (
            c.build.scratch.qkvp + half * (shape.rows * shape.qkv_rows * 8) + token * (shape.qkv_rows * 8)
        )
        spots += [(region, column * 64 + 16 * k, 2) for k in range(4)]
        spots += [(region, c.tid * 16 + shape.q_rank * 8, 2)]
    got = [w.bitcast(Float32) for w in mailbox.poll(c, site, spots)]
    return [
        fmt.bf16_pair(c.build.how, got[k] + got[10 + k], got[k + 1] + got[11 + k]) for k in range(0, 10, 2)
    ]


def _sum_squares(values: list[Any]) -> Any:
    total = values[0] * values[0]
    for v in values[1:]:
        total = total + v * v
    return total


@ll.device
def _add_up(c: Context, has_q: Any, words: list[Any]) -> None:
    """The wave's sums of squares of q and kv to LDS (3.6, 3.7)."""
    q = has_q.select(_sum_squares(fmt.unpack(words[:4])), Float32(0.0))
    kv = _sum_squares(fmt.unpack(words[4:]))
    q, kv = lanes.sum_down(c, q), lanes.sum_down(c, kv)
    if c.lane == 0:
        ll.lds_store(c.lds, c.build.front.tail + c.wave * 8, fx.Vector.from_elements([q, kv], Float32))


def _scales(c: Context) -> tuple[Any, Any]:
    """1 / rms of q and of kv, from the waves' sums in pairs."""
    shape, eps = c.build.shape, Float32(c.build.numerics.rms_eps)
    low, high = (ll.lds_load(c.lds, c.build.front.tail + 16 * k, count=4) for k in range(2))
    q, kv = ((low[k] + low[2 + k]) + (high[k] + high[2 + k]) for k in range(2))
    return (
        ll.rsq(fmt.divide(q, float(shape.q_rank)) + eps),
        ll.rsq(fmt.divide(kv, float(shape.kv_dim)) + eps),
    )


@ll.device
def _q_row(
    c: Context, token: Any, has_q: Any, words: list[Any], weights: Any, scale: Any, qr_out: Any
) -> None:
    how, shape, scratch = c.build.how, c.build.shape, c.build.scratch
    w = fmt.unpack([weights[k] for k in range_constexpr(4)])
    values = fmt.unpack(words)
    pairs = [
        fmt.bf16_pair(how, (values[k] * scale) * w[k], (values[k + 1] * scale) * w[k + 1])
        for k in range_constexpr(0, 8, 2)
    ]
    values = fmt.unpack(pairs)
    code = fmt.scale_code(how, lanes.quad_max(fmt.amax16(how, pairs, values)), fmt.MX_FLOOR)
    if has_q:
        packed = fmt.pack8(values, fmt.multiplier(code))
        mailbox.store(c, scratch.qx8 + token * shape.q_rank, c.tid * 8, packed)
        if (c.tid & 3) == 0:
            mailbox.store(c, scratch.qx8s + token * (shape.q_rank // 8), c.tid, code)
        if const_expr(qr_out is not None):
            row = qr_out + fx.Int64(token * (shape.q_rank * 2))
            ll.global_store(row, c.tid * 16, fx.Vector.from_elements(pairs, Int32))


@ll.device
def _record(c: Context, slot: Any, word: Any, a: dict[str, Any]) -> None:
    """The record at ``slot`` (2.1): e4m3 of the nope dims, bf16 of the rope dims, eight scale bytes."""
    how, shape = c.build.how, c.build.shape
    top = fmt.amax16(how, [word], fmt.unpack([word]))
    code = fmt.scale_code(how, lanes.half_max(c, top), fmt.record_floor(how))
    if slot >= 0:
        block = fx.Uint32(slot) // fx.Uint32(a["swa_block"])
        inside = slot - Int32(block) * a["swa_block"]
        base = a["swa"] + fx.Int64(block) * a["swa_stride"]
        data = base + fx.Int64(inside * shape.record_data)
        scales = base + fx.Int64(a["swa_block"] * shape.record_data + inside * shape.record_scales)
        by = fmt.multiplier(code)
        low, high = fmt.unpack([word])
        is_rope = c.tid >= shape.nope // 2
        if is_rope:
            ll.global_store(data, c.tid * 4 - shape.nope, word)
        else:
            ll.global_store(data, c.tid * 2, ll.pack_fp8(low * by, high * by, Int32(0), False), size=2)
        if (c.tid & 31) == 0:
            ll.global_store(scales, c.tid >> 5, is_rope.select(Int32(0), code), size=1)


@ll.device
def _turn(c: Context, word: Any, weight: Any, scale: Any, cosine: Any, sine: Any) -> Any:
    """kv norm and RoPE of the lane's pair: bf16 after each."""
    how = c.build.how
    v, w = fmt.unpack([word]), fmt.unpack([weight])
    even, odd = fmt.unpack([fmt.bf16_pair(how, (v[0] * scale) * w[0], (v[1] * scale) * w[1])])
    return fmt.bf16_pair(how, even * cosine - odd * sine, even * sine + odd * cosine)


def qkv(
    c: Context,
    tasks: Tasks,
    site: Site,
    qn_w: Any,
    kvn_w: Any,
    cos_sin: Any,
    pos: Any,
    slot: Any,
    swa: Any,
    swa_stride: Any,
    swa_block: Any,
    qr_out: Any = None,
) -> None:
    """A token a task: QKVP pairs to QX8 / QX8S with its flag, and its KV record where slot >= 0.

    ``qr_out`` in builds for index layers: the normed q row as bf16.
    """
    a = {
        "qn_w": qn_w,
        "kvn_w": kvn_w,
        "cos_sin": cos_sin,
        "pos": pos,
        "slot": slot,
        "swa": swa,
        "swa_stride": swa_stride,
        "swa_block": swa_block,
        "qr_out": qr_out,
    }
    c = renew(c)
    each(c, tasks, lambda token: _token(c, site, token, a))


@ll.device
def _token(c: Context, site: Site, token: Any, a: dict[str, Any]) -> None:
    shape = c.build.shape
    words = [ll.undef(Int32) for _ in range(5)]
    q_weights, kv_weight = ll.undef(Int32, 4), ll.undef(Int32)
    cosine, sine, where = Float32(1.0), Float32(0.0), Int32(0)
    has_q = c.tid < shape.q_rank // 8
    if c.wave < WAVES:
        column = fx.min(c.tid, Int32(shape.q_rank // 8 - 1))
        q_weights = ll.global_load(a["qn_w"], column * 16, count=4)
        kv_weight = ll.global_load(a["kvn_w"], c.tid * 4)
        where = ll.global_load(a["slot"], token * 8, constant=True)
        if c.tid >= shape.nope // 2:
            row = a["cos_sin"] + fx.Int64(ll.global_load(a["pos"], token * 8, constant=True)) * (
                shape.rope * 4
            )
            at = c.tid * 4 - shape.nope * 2
            cosine = ll.global_load(row, at, Float32)
            sine = ll.global_load(row, at + shape.rope * 2, Float32)
        words = _pair_sums(c, site, token, column)
        _add_up(c, has_q, words)
    fx.barrier()
    kv_scale = Float32(0.0)
    if c.wave < WAVES:
        q_scale, kv_scale = _scales(c)
        _q_row(c, token, has_q, words[:4], q_weights, q_scale, a["qr_out"])
    mailbox.publish(c, c.build.scratch.qrdy + token * 8, 1)
    if c.wave < WAVES:
        word = _turn(c, words[4], kv_weight, kv_scale, cosine, sine)
        _record(c, where, word, a)
