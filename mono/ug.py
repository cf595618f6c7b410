"""Routed gate and up: 32 columns of one expert and their gates, a group or two a task, x the picks of a unit.

Wave map: bit 0 of the wave is which 16 of a group's 32 columns, above it the K slice, above that the group. A wave
multiplies two 16-row tiles (its columns' gate and up rows, by tile or row by row as the layout has them) by the same
activations. Weights go straight to registers, a ring of rounds of one or two steps of 128 columns in flight: a
round's registers are filled again as soon as its products are issued.

Sums of the K slices meet in LDS; thirty-two lanes then have a group of a pick: activation with the limit, bf16,
MXFP8 by the routed rule (FFN math 4.4), MID and MIDS behind a flag a task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flydsl.expr as fx
from flydsl.expr import const_expr, range_constexpr
from flydsl.expr.typing import Float32, Int32

from . import epoch_end, fp4, gemv, lanes, mailbox, rows, table
from . import formats as fmt
from . import lowlevel as ll
from .build import Site, Tasks
from .context import Context, place, renew
from .seam_gate import LOG2E

GROUP = 32
STEP = 128
TILE_STEP = 1024  # bytes of a step of 16 rows
DEPTH = 5  # pairs of steps in flight where FP4 is native
FNUZ_RING = (2, 2, 1)  # steps of the rounds in flight where it is converted


@dataclass(frozen=True)
class Experts:
    """Addresses of a routed weight and its codes."""

    data: Any
    codes: Any


def _slices(c: Context) -> int:
    """K slices of a task."""
    return c.build.waves // (2 * c.build.ffn.mix.groups_per_task)


def _half(c: Context) -> Any:
    return c.wave & 1


def _slice(c: Context) -> Any:
    return (c.wave >> 1) & (_slices(c) - 1)


def _group(c: Context) -> Any:
    """Group of the task."""
    return c.wave >> _slices(c).bit_length()


def _own(c: Context) -> Any:
    """LDS of the wave's two tiles of sums; before them its scale factors of a round."""
    return (((_group(c) << 1) | _half(c)) * _slices(c) + _slice(c)) * 2048 + c.build.ffn.lds.red


def _x(c: Context) -> rows.Slice:
    k, f = c.build.shape.hidden, c.build.ffn
    return rows.Slice(k, k, Int32(f.scratch.x8r), Int32(f.scratch.x8rs), f.lds.x, f.lds.xs)


def _held(c: Context) -> int:
    """Rows of x in LDS: the step's, or the picks of a unit."""
    return min(c.build.shape.rows, c.build.ffn.mix.pick_width)


def _by_unit(c: Context) -> bool:
    """Whether a step has more rows than a unit has picks: then x is gathered for every task."""
    return c.build.shape.rows > c.build.ffn.mix.pick_width


def _steps(c: Context) -> int:
    """Steps of a wave's K slice."""
    return c.build.shape.hidden // STEP // _slices(c)


# ------------------------------------------------------------------ the K loop


@dataclass(frozen=True)
class _Tiles:
    """The wave's two tiles of a task: buffers, and the first byte of the first (both uniform)."""

    data: Any
    codes: Any
    base: Any
    code_base: Any


def _tiles(c: Context, experts: Experts, expert: Any, part: Any, live: Any = None) -> _Tiles:
    mix, hidden = c.build.ffn.mix, c.build.shape.hidden
    group = part * mix.groups_per_task + _group(c)
    tile = expert * (2 * mix.loaded // 16) + (group * 2 + _half(c)) * 2
    values = mix.experts * 2 * mix.loaded * hidden
    sizes = [values // 2, values // GROUP]
    if live is not None:
        sizes = [live.select(Int32(size - 2**32 if size >= 2**31 else size), Int32(0)) for size in sizes]
    return _Tiles(
        ll.buffer(experts.data, sizes[0]),
        ll.buffer(experts.codes, sizes[1]),
        tile * (16 * hidden // 2),
        tile * (16 * hidden // GROUP),
    )


def _data(c: Context, t: _Tiles, step: Any, at: int) -> list[Any]:
    """16 bytes a lane of either tile at step ``step`` (uniform) + ``at``."""
    tile_bytes = 16 * c.build.shape.hidden // 2
    lane = c.lane * 16 + at * TILE_STEP
    where = [t.base + k * tile_bytes + step * TILE_STEP for k in range(2)]
    return [ll.buffer_load(t.data, lane, base, count=4, cache=ll.NT) for base in where]


def _native_step(c: Context, pair: int) -> tuple[int, int]:
    """(first step, steps a K slice adds) of pair ``pair`` of a slice: blocks of eight steps in turn, the last one
    shared; with four slices two of each eight (FFN math 4.3)."""
    steps = c.build.shape.hidden // STEP
    if _slices(c) == 4:
        return 8 * pair, 2
    whole = steps // 16 * 8  # steps of a slice in whole blocks
    if 2 * pair < whole:
        return pair // 4 * 16 + pair % 4 * 2, 8
    return 2 * pair + whole, (steps - 2 * whole) // 2


def _native_load(c: Context, t: _Tiles, pair: int) -> list[Any]:
    """Two steps; a dword holds the codes of the gate and up rows of both."""
    first, by = _native_step(c, pair)
    step = _slice(c) * by + first
    data = [v for k in range(2) for v in _data(c, t, step, k)]
    return [*data, ll.buffer_load(t.codes, c.lane * 4, t.code_base + step * 128, cache=ll.NT)]


def _native_pair(c: Context, token: Any, pair: int, regs: list[Any], acc: list[Any]) -> list[Any]:
    x, j = _x(c), c.lane >> 4
    first, by = _native_step(c, pair)
    data = token * x.lds_row + j * 16 + _slice(c) * (by * STEP)
    codes = token * x.lds_code_row + j * 4 + _slice(c) * (by * 16)
    for k in range(2):
        at = x.lds_data + (first + k) * STEP
        halves = [ll.lds_load(c.lds, (data, at + h), Int32, 4) for h in (0, 64)]
        code = ll.lds_load(c.lds, (codes, x.lds_codes + (first + k) * 16), Int32)
        b = fx.Vector.from_elements([v[i] for v in halves for i in range(4)], Int32)
        acc = [
            ll.mfma_scaled(regs[2 * k + n], b, acc[n], regs[4], code, ll.E2M1, 2 * k + n) for n in range(2)
        ]
    return acc


def _native(c: Context, t: _Tiles, token: Any, acc: list[Any]) -> list[Any]:
    """All pairs of steps in program order, ``DEPTH`` pairs of weights in flight."""
    pairs = _steps(c) // 2
    ring = [_native_load(c, t, p) for p in range(min(DEPTH, pairs))]
    for p in range(pairs):
        acc = _native_pair(c, token, p, ring[p % DEPTH], acc)
        if p + DEPTH < pairs:
            ring[p % DEPTH] = _native_load(c, t, p + DEPTH)
    return acc


def _fnuz_load(c: Context, t: _Tiles, first: Any, at: int, steps: int) -> list[Any]:
    """``steps`` steps from ``first`` + ``at``; of the codes a lane has four rows of one block of one tile."""
    data = [v for k in range(steps) for v in _data(c, t, first, at + k)]
    tile = c.lane >> (3 + steps)
    lane = (c.lane & (16 * steps - 1)) * 4 + tile * (c.build.shape.hidden // 2) + at * 64
    if steps == 1:
        lane = (c.lane < 32).select(lane, Int32(gemv.NOWHERE))
    return [*data, ll.buffer_load(t.codes, lane, t.code_base + first * 64, cache=ll.NT)]


def _fnuz_round(
    c: Context, x: tuple[Any, Any], at: int, steps: int, regs: list[Any], acc: list[Any]
) -> list[Any]:
    """Products of a round. ``x``: LDS bytes of the token's data and codes at the ring's first step."""
    own = _own(c)
    ll.lds_store(c.lds, own + c.lane * 16, fp4.factors(regs[2 * steps]))
    mine = own + (c.lane >> 4) * 16
    for k in range(steps):
        codes = ll.lds_load(c.lds, (x[1], (at + k) * 16), Int32, 4)
        for b in range(4):
            v = ll.lds_load(c.lds, (x[0], (at + k) * STEP + GROUP * b), Int32, 2)
            column = fp4.splat(fp4.factor(codes[b]))
            for n in range(2):
                rows_at = 64 * (4 * k + b) + n * 256 * steps
                factors = ll.lds_load(c.lds, (mine, rows_at), Float32, 4)
                acc[n] = fp4.block(regs[2 * k + n][b], v, factors, column, acc[n])
    return acc


@ll.device
def _fnuz(c: Context, experts: Experts, expert: Any, part: Any, token: Any, acc: list[Any]) -> list[Any]:
    """A run-time loop over rings of ``FNUZ_RING`` steps; what a round has used is asked for again at once."""
    ring, steps, x = sum(FNUZ_RING), _steps(c), _x(c)
    times, starts = steps // ring, [sum(FNUZ_RING[:k]) for k in range(len(FNUZ_RING))]
    first = _slice(c) * steps
    t = _tiles(c, experts, expert, part)
    regs = [_fnuz_load(c, t, first, at, n) for at, n in zip(starts, FNUZ_RING, strict=True)]
    data = token * x.lds_row + (c.lane >> 4) * 8 + x.lds_data + first * STEP
    codes = token * x.lds_code_row + x.lds_codes + first * 16
    for turn in range(0, times, 1, unroll=1):  # type: ignore[call-overload]
        first = first + ring
        more = _tiles(c, experts, expert, part, Int32(turn) + 1 < times)
        for k in range_constexpr(len(FNUZ_RING)):
            acc = _fnuz_round(c, (data, codes), starts[k], FNUZ_RING[k], regs[k], acc)
            regs[k] = _fnuz_load(c, more, first, starts[k], FNUZ_RING[k])
        data, codes = data + ring * STEP, codes + ring * 16
    return acc


@ll.device
def _product(c: Context, experts: Experts, expert: Any, part: Any, token: Any) -> None:
    """The wave's two tiles x the activations of LDS row ``token`` (a lane's), to its LDS."""
    acc = [fx.Vector.filled(4, 0.0, Float32) for _ in range(2)]
    if const_expr(fp4.is_native(c.build.how)):
        acc = _native(c, _tiles(c, experts, expert, part), token, acc)
    else:
        acc = _fnuz(c, experts, expert, part, token, acc)
    for tile in range_constexpr(2):
        ll.lds_store(c.lds, (_own(c) + c.lane * 16, tile * 1024), acc[tile])


# ------------------------------------------------------------------ activation


def _column(c: Context) -> Any:
    """The lane's column of a group: four lanes give a word of MID."""
    lane = c.lane & 31
    if fp4.is_native(c.build.how):
        return lane
    return (lane & 24) | ((lane & 3) << 1) | ((lane >> 2) & 1)


def _sums(c: Context, p: Any, j: Any) -> tuple[Any, Any]:
    """(gate, up) of pick ``j`` in the lane's column of group ``p``, K slices added pairwise."""
    i, q = _column(c), _slices(c)
    native = fp4.is_native(c.build.how)
    row = i & 15 if native else (i & 7) * 2
    spot = ((p << 1) | (i >> 4)) * (q * 2048) + (row >> 2) * 256 + j * 16 + (row & 3) * 4 + c.build.ffn.lds.red
    if native:
        parts = [[ll.lds_load(c.lds, (spot, k * 2048 + n * 1024)) for n in range(2)] for k in range(q)]
    else:
        spot = spot + ((i >> 3) & 1) * 1024
        parts = [ll.lds_load(c.lds, (spot, k * 2048), Float32, 2) for k in range(q)]
    while len(parts) > 1:
        parts = [[a[n] + b[n] for n in range(2)] for a, b in zip(parts[0::2], parts[1::2], strict=True)]
    gate, up = parts[0][0], parts[0][1]
    scale = 1.0 if native else fp4.VALUE_SCALE
    return (gate, up) if scale == 1.0 else (gate * Float32(scale), up * Float32(scale))


def _activation(c: Context, gate: Any, up: Any) -> Any:
    """bf16((g sigmoid(g)) u) of the limited gate and up, as fp32."""
    limit = c.build.ffn.mix.limit
    g = fx.min(gate, Float32(limit))
    u = fx.max(fx.min(up, Float32(limit)), Float32(-limit))
    sigmoid = ll.rcp(Float32(1.0) + ll.exp2(g * Float32(-LOG2E)))
    return fmt.bf16_round(c.build.how, (g * sigmoid) * u)


def _mid_word(c: Context, group: Any) -> Any:
    """Byte of the lane's word in a row of MID (four lanes share it)."""
    lane = c.lane & 31
    if fp4.is_native(c.build.how):
        return group * GROUP + (lane & 28)
    return (group >> 2) * STEP + (group & 3) * 8 + (lane >> 3) * 32 + (lane & 4)


def _mids_word(c: Context, group: Any) -> Any:
    """Word of a group's code in a row of MIDS."""
    if fp4.is_native(c.build.how):
        return (group & 3) * (c.build.ffn.mix.padded // STEP) + (group >> 2)
    return group


@ll.device
def _activate(c: Context, part: Any, count: Any, position: Any, first: int) -> None:
    """Groups of picks ``first`` .. + 15 of the task, half a wave each.

    Lanes without a pick repeat another's work up to the stores: lane exchanges need a whole wave.
    """
    f, how, held = c.build.ffn, c.build.how, _held(c)
    items = f.mix.groups_per_task * held
    if c.wave * 2 + first < items:
        item = (c.tid >> 5) + first
        p = Int32(0)
        if const_expr(f.mix.groups_per_task > 1):
            p = (item >= held).select(Int32(1), Int32(0))
        j = item - p * held
        pick = fx.min(j, count - 1)
        h = _activation(c, *_sums(c, p, pick))
        top = (h.bitcast(Int32) >> 16) & 0x7FFF
        code = fmt.scale_code(how, lanes.half_max(c, top), fmt.routed_floor(how))
        scaled = h * fmt.multiplier(code)
        octet = ll.pack_fp8(scaled, scaled, Int32(0), False) & 0xFF
        word = lanes.quad_or(octet << ((c.lane & 3) << 3))
        group, row = part * f.mix.groups_per_task + p, position + pick
        live = (item < items) & (j < count)
        if live & ((c.lane & 3) == 0):
            mailbox.store(c, Int32(f.scratch.mid), row * f.mix.padded + _mid_word(c, group), word)
        if live & ((c.lane & 31) == 0):
            at = (row * f.scratch.mids_row + _mids_word(c, group)) * 4
            mailbox.store(c, Int32(f.scratch.mids), at, code)


# ------------------------------------------------------------------ tasks


@ll.device
def ug_rows(c: Context, site: Site) -> list[Any]:
    """Wait for the step's quantised rows and, if they all fit, issue their loads: before the experts are known."""
    held, s = _held(c), _x(c)
    mailbox.await_flags(c, site, Int32(c.build.ffn.scratch.x8rdy), c.build.shape.rows, 8)
    regs = rows.nothing(c, s, held)
    if const_expr(not _by_unit(c)):
        regs = rows.load_rows(c, s, Int32(0), held, regs)
    return regs


def ug(c: Context, tasks: Tasks, experts: Experts, regs: list[Any]) -> None:
    """All tasks of the workgroup: in turn, or with more rows than a unit's picks the first and then by tickets."""
    c = renew(c)
    if _by_unit(c):
        _queued(c, tasks, experts)
    else:
        _in_turn(c, tasks, experts, regs)


@ll.device
def _in_turn(c: Context, tasks: Tasks, experts: Experts, regs: list[Any]) -> None:
    rows.store_rows(c, _x(c), Int32(0), _held(c), regs)
    fx.barrier()
    total = table.count_of_units(c) * c.build.ffn.mix.parts
    for task in range(place(c, tasks), total, tasks.span, unroll=1):  # type: ignore[call-overload]
        _task(c, experts, Int32(task))


@ll.device
def _queued(c: Context, tasks: Tasks, experts: Experts) -> None:
    word = table.broadcast_word(c)
    total = table.count_of_units(c) * c.build.ffn.mix.parts
    task = place(c, tasks)
    while task < total:
        if c.tid == 0:
            at = epoch_end.counter(c, c.build.ffn.epoch.ug_counters)
            ll.lds_store(c.lds, word, ll.ticket(c.epoch, at))
        _task(c, experts, task)
        task = ll.uniform(ll.lds_load(c.lds, word, Int32)) + tasks.span
        fx.barrier()


@ll.device
def _task(c: Context, experts: Experts, task: Any) -> None:
    f, s = c.build.ffn, _x(c)
    unit = Int32(fx.Uint32(task) // f.mix.parts)
    part = task - unit * f.mix.parts
    expert, count, position, _ = table.record(c, f.lds.units if _by_unit(c) else f.lds.slots, unit)
    lane = fx.min(c.lane & 15, count - 1)
    if const_expr(_by_unit(c)):
        _gather(c, s, count, position)
    else:
        order = ll.lds_load(c.lds, (position + lane) * 4 + f.lds.order, Int32)
        lane = Int32(fx.Uint32(order) >> 16)
    _product(c, experts, expert, part, lane)
    fx.barrier()
    for first in range_constexpr(0, f.mix.groups_per_task * _held(c), c.build.waves * 2):
        _activate(c, part, count, position, first)
    mailbox.publish(c, f.scratch.ugf + task * 8, 1)


@ll.device
def _gather(c: Context, s: rows.Slice, count: Any, position: Any) -> None:
    """The unit's rows of x to LDS, in pick order."""
    order = c.build.ffn.lds.order

    def row_of(slot: Any) -> Any:
        word = ll.uniform(ll.lds_load(c.lds, (position + slot) * 4 + order, Int32))
        return Int32(fx.Uint32(word) >> 16)

    def is_live(slot: Any) -> Any:
        return slot < count

    regs = rows.load_picked(c, s, row_of, is_live, _held(c), rows.nothing(c, s, _held(c)))
    rows.store_picked(c, s, is_live, _held(c), regs)
    fx.barrier()
