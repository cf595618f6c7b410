"""Seam gate: the 160 partial projections of a token to its post, comb and next pre gates.

500 threads add up 8 slices each; then wave 0 adds the 20 groups in order and normalises. Lanes 0..7 hold
the pre and post projections, lanes 16..31 the 4 x 4 stream matrix (one row of lanes, so row and column
sums are DPP moves), lanes 8..15 the sum of squares.
"""

from __future__ import annotations

import math
from typing import Any

import flydsl.expr as fx
from flydsl.expr import range_constexpr
from flydsl.expr.typing import Float32, Int32

from . import lanes, mailbox
from . import lowlevel as ll
from .build import Site, Tasks
from .context import Context, each, renew

LOG2E = 1.0 / math.log(2.0)
COMB_LANE = 16  # lane of comb[0][0]
SQUARES_LANE = 8


def _constant(v: float) -> Any:
    return Float32(v)


def sigmoid(z: Any) -> Any:
    """1 / (1 + 2^(-z log2 e)), the quotient IEEE."""
    return Float32(1.0) / (Float32(1.0) + ll.exp2(z * _constant(-LOG2E)))


@ll.device
def _partials(c: Context, site: Site, token: Any) -> None:
    """Thread 25 g + j: slices 8 g .. 8 g + 7 of projection j, in order, to LDS."""
    seam, shape = c.build.seam, c.build.shape
    columns = shape.mix + 1
    slice_bytes = shape.rows * columns * 8
    live = fx.min(c.tid, Int32(seam.gate_groups * columns - 1))
    group = Int32(fx.Uint32(live) // columns)
    spot = group * (seam.gate_slices * slice_bytes - columns * 8) + live * 8
    region = c.build.seam.pmix + token * (columns * 8)
    got = mailbox.poll(c, site, [(region, spot + k * slice_bytes, 1) for k in range(seam.gate_slices)])
    total = got[0].bitcast(Float32)
    for k in range_constexpr(1, seam.gate_slices):
        total = total + got[k].bitcast(Float32)
    ll.lds_store(c.lds, c.build.seam.red + live * 4, total)


def _balance(c: Context, m: Any, total: Any) -> Any:
    return m * ll.rcp(total + _constant(c.build.numerics.gate_eps))


@ll.device
def _sinkhorn(c: Context, v: Any) -> Any:
    """Softmax over rows, then columns and rows in turn, ``numerics.sinkhorn`` iterations in all (3.3)."""
    # A row's NaN makes its sum NaN whatever its maximum was, so the plain maximum serves.
    top = ll.max_plain(v, ll.dpp(v, lanes.XOR1))
    top = ll.max_plain(top, ll.dpp(top, lanes.XOR2))
    e = ll.exp2((v - top) * _constant(LOG2E))
    m = ll.fma(e, ll.rcp(lanes.quad_sum(e)), _constant(c.build.numerics.gate_eps))
    m = _balance(c, m, lanes.column_sum(m))
    for _ in range(0, c.build.numerics.sinkhorn - 1, 1, unroll=1):  # type: ignore[call-overload]
        m = _balance(c, m, lanes.quad_sum(m))
        m = _balance(c, m, lanes.column_sum(m))
    return m


@ll.device
def _gates(c: Context, token: Any, a: dict[str, Any]) -> None:
    seam, shape, numerics = c.build.seam, c.build.shape, c.build.numerics
    mix, columns = shape.mix, shape.mix + 1
    j = (c.lane < SQUARES_LANE).select(c.lane, Int32(mix))
    j = (c.lane < COMB_LANE).select(j, fx.min(c.lane - (COMB_LANE - 8), Int32(mix - 1)))
    spot = c.build.seam.red + j * 4
    total = ll.lds_load(c.lds, spot)
    for g in range_constexpr(1, seam.gate_groups):
        total = total + ll.lds_load(c.lds, (spot, g * columns * 4))
    gate = fx.min(j, Int32(mix - 1))
    part = (c.lane >= 4).select(Int32(4), Int32(0)) + (c.lane >= 8).select(Int32(4), Int32(0))
    scale = ll.global_load(a["hc_scale"], part, Float32)
    base = ll.global_load(a["hc_base"], gate * 4, Float32)
    squares = ll.read_lane(total, SQUARES_LANE)
    mean = ll.fma(squares, _constant(1.0 / (shape.streams * shape.hidden)), _constant(numerics.rms_eps))
    v = ll.fma(total * ll.rsq(mean), scale, base)
    comb = _sinkhorn(c, v)
    if (c.lane >= COMB_LANE) & (c.lane < COMB_LANE + 16):
        ll.global_store(a["comb_out"] + fx.Int64(token * 64), c.lane * 4 - 4 * COMB_LANE, comb)
    open_ = sigmoid(v)
    if c.lane < 4:
        ll.global_store(a["pre_out"] + fx.Int64(token * 16), c.lane * 4, open_ + _constant(numerics.gate_eps))
    if (c.lane >= 4) & (c.lane < 8):
        ll.global_store(
            a["post_out"] + fx.Int64(token * 16), c.lane * 4 - 16, open_ * _constant(numerics.post_multiplier)
        )


def seam_gate(
    c: Context,
    tasks: Tasks,
    site: Site,
    hc_scale: Any,
    hc_base: Any,
    post_out: Any,
    comb_out: Any,
    pre_out: Any,
) -> None:
    """Gates of a token a task, from PMIX; what they feed is the next launch."""
    a = {
        "hc_scale": hc_scale,
        "hc_base": hc_base,
        "post_out": post_out,
        "comb_out": comb_out,
        "pre_out": pre_out,
    }
    c = renew(c)
    each(c, tasks, lambda token: _gate(c, site, token, a))


@ll.device
def _gate(c: Context, site: Site, token: Any, a: dict[str, Any]) -> None:
    _partials(c, site, token)
    fx.barrier()
    if c.wave == 0:
        _gates(c, token, a)
    fx.barrier()
