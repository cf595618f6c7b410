"""Shared expert, gate and up: 16 gate rows and the matching 16 up rows x the rows of a token tile a unit.

Three calls, as in wqkv: both weights go out before the rows exist, the rows before the product. The
activation rounds to bf16 after gate, up, silu and their product, with an accurate exponential and an IEEE
quotient (FFN math 5). A group of 32 columns is two units: the odd one waits for the even one's half and
quantises both, sixteen lanes a row, one column of either half a lane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flydsl.expr as fx
from flydsl.expr.typing import Float32, Int32

from . import formats as fmt
from . import gemv, lanes, mailbox, rows
from . import lowlevel as ll
from .build import Gemv, Site, Tasks
from .context import Context, place, stage
from .seam_gate import LOG2E

LOG2E_LOW = 1.9259629911266175e-8  # log2(e) minus its float32
OVERFLOW = 88.72  # e**z is inf above


@dataclass(frozen=True)
class Unit:
    """A workgroup's unit: columns of ``tile``, rows from ``first`` on; ``live``: it has one."""

    live: Any
    tile: Any
    first: Any
    steps: gemv.Steps
    weights: list[list[Any]]


def shared_weights(c: Context, tasks: Tasks, how: Gemv, sgu: Any, sgu_s: Any) -> Unit:
    """Issue the weight loads of the workgroup's unit; a workgroup without one loads nothing."""
    if tasks.count > tasks.span:
        raise ValueError(f"shared: {tasks.count} units on {tasks.span} workgroups; one each is built")
    unit = place(c, tasks)
    live = fx.Uint32(unit) < fx.Uint32(tasks.count)
    unit = live.select(unit, Int32(0))
    per_tile = c.build.ffn.mix.shared_tasks
    token_tile = Int32(fx.Uint32(unit) // per_tile) if tasks.count > per_tile else Int32(0)
    tile = unit - token_tile * per_tile
    steps = gemv.Steps(Int32(0), how.steps)
    matrix = gemv.Matrix(sgu, sgu_s, how.rows, how.k)
    weights = [gemv.load_weights(c, matrix, tile + half, steps, live) for half in (0, per_tile)]
    return Unit(live, tile, token_tile * c.build.pass_width, steps, weights)


def _slice(c: Context) -> rows.Slice:
    k, f = c.build.shape.hidden, c.build.ffn
    return rows.Slice(k, k, Int32(f.scratch.x8), Int32(f.scratch.x8s), f.lds.shared_x, f.lds.shared_xs)


def _rows_of(c: Context, unit: Unit) -> Any:
    """Rows of the unit's token tile."""
    return fx.min(Int32(c.build.pass_width), c.build.shape.rows - unit.first)


@ll.device
def shared_rows(c: Context, site: Site, unit: Unit) -> list[Any]:
    """Wait for the tile's quantised rows, then issue their loads."""
    s, width = _slice(c), c.build.pass_width
    regs = rows.nothing(c, s, width)
    if unit.live:
        flags = c.build.ffn.scratch.x8rdy + unit.first * 8
        mailbox.await_flags(c, site, flags, _rows_of(c, unit), 8)
        regs = rows.load_rows(c, s, unit.first, width, regs)
    return regs


@ll.device
def shared_product(c: Context, site: Site, unit: Unit, regs: list[Any]) -> None:
    """Gate, up and activation of the unit: SMID pairs, and from an odd one SMQ and SMC pairs of two units."""
    s, red = _slice(c), c.build.ffn.lds.red
    if unit.live:
        rows.store_rows(c, s, unit.first, c.build.pass_width, regs)
        fx.barrier()
        count = _rows_of(c, unit)
        gemv.multiply(c, s, unit.steps, count, unit.weights, red)
        fx.barrier()
        _activate(c, site, unit, count)
        fx.barrier()


def _exp(z: Any) -> Any:
    """e**z for z >= -88: 2 to a fraction and an exact power of two."""
    product = z * Float32(LOG2E)
    whole = ll.round_even(product)
    rest = ll.fma(z, Float32(LOG2E_LOW), ll.fma(z, Float32(LOG2E), -product))
    value = ll.ldexp(ll.exp2((product - whole) + rest), whole.to(Int32))
    return (z > Float32(OVERFLOW)).select(Float32(float("inf")), value)


def _silu_times_up(c: Context, gate: Any, up: Any) -> Any:
    how, limit = c.build.how, Float32(c.build.ffn.mix.limit)
    g = fx.min(fmt.bf16_round(how, gate), limit)
    u = fx.max(fx.min(fmt.bf16_round(how, up), limit), -limit)
    silu = fmt.bf16_round(how, g / (Float32(1.0) + _exp(-g)))
    return fmt.bf16_round(how, silu * u)


@ll.device
def _activate(c: Context, site: Site, unit: Unit, count: Any) -> None:
    f, red = c.build.ffn, c.build.ffn.lds.red
    r, t = c.tid & 15, c.tid >> 4
    if t < count:
        spot = (r >> 2) * 256 + t * 16 + (r & 3) * 4
        gate, up = (gemv.sum_waves(c, red + k * gemv.SUM_BYTES, spot) for k in range(2))
        own = _silu_times_up(c, gate, up)
        row = t * (f.mix.inter * 8) + r * 8
        region = f.scratch.smid + unit.first * (f.mix.inter * 8) + unit.tile * (gemv.TILE_ROWS * 8)
        mailbox.put(c, region, row, own.bitcast(Int32))
        if (unit.tile & 1) == 1:
            stage("shared_q")
            even = mailbox.poll(c, site, [(region - gemv.TILE_ROWS * 8, row, 1)])[0]
            _quantise(c, unit, t, even.bitcast(Float32), own)


def _quantise(c: Context, unit: Unit, t: Any, even: Any, odd: Any) -> None:
    """A lane's columns r and 16 + r of a group of 32: MXFP8 of the group (2.2), to the down projections."""
    how = c.build.how
    word = fmt.packed(even, odd)
    code = fmt.scale_code(how, lanes.row_max(fmt.amax16(how, [word], [even, odd])), fmt.MX_FLOOR)
    by = fmt.multiplier(code)
    octets = ll.pack_fp8(even * by, odd * by, Int32(0), False)
    spot = (c.lane & 3) << 3
    words = [lanes.quad_or((half & 0xFF) << spot) for half in (octets, octets >> 8)]
    _put(c, unit, t, ((c.lane & 1) == 0).select(words[0], words[1]), code)


@ll.device
def _put(c: Context, unit: Unit, t: Any, word: Any, code: Any) -> None:
    f, group = c.build.ffn, unit.tile >> 1
    inter = f.mix.inter
    token = unit.first + t
    if (c.lane & 3) < 2:
        at = f.scratch.smq + group * 64
        mailbox.put(c, at, token * (inter * 2) + (c.lane & 12) * 2 + (c.lane & 1) * 32, word)
    if (c.lane & 15) == 0:
        mailbox.put(c, f.scratch.smc + group * 8, token * (inter // 4), code)
