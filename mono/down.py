"""Down: 16 hidden rows of the shared expert and of every picked expert, combined in selection order and
pushed.

Task b runs on workgroup b; the tasks past the grid go to the workgroups that arrive first, which then do both
together. The shared expert comes first: it fills the time in which a workgroup would only wait for routed
results.

A wave takes (task, slot) items in turn and does the whole K of one alone, so nothing has to be added across
waves: weights, the slot's flags, then up to 16 picks a pass with their activations straight from MID into
registers. The next item's weights are asked for as soon as the last pass has used this one's. A result times
its routing weight is rounded to bf16 and parked in LDS by pick; the combine adds a row's picks in selection
order, rounding each time, then the shared expert (FFN math 6.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flydsl.expr as fx
from flydsl.expr import const_expr, range_constexpr
from flydsl.expr.typing import Float32, Int32

from . import epoch_end, fp4, gemv, mailbox, peers, rows, table
from . import formats as fmt
from . import lowlevel as ll
from .build import Gemv, Site, Tasks
from .context import WAVE, Context, renew
from .ug_map import STEP
from .ug_product import TILE_STEP, Experts, bounded

PICKS = 16  # of a pass: the columns of an MFMA
PAIRS = 8  # words of two bf16 rows that a task has
NO_SCALE = 127  # the code of 2^0


@dataclass(frozen=True)
class Share:
    """A workgroup's tasks: how many (1 or 2, scalar), and their numbers."""

    count: Any
    first: Any
    second: Any


def _tile(share: Share, which: Any) -> Any:
    """The number of the first (``which`` = 0) or second task."""
    return (which == 0).select(share.first, share.second)


# ------------------------------------------------------------------ arrival


@ll.device
def _arrive(c: Context, tasks: Tasks) -> Share:
    """The workgroup's task, and for the first to arrive one of those past the grid."""
    grid, extra = c.build.workgroups, c.build.ffn.mix.down_extra
    count, second = Int32(1), Int32(0)
    if const_expr(extra > 0):
        word = table.broadcast_word(c)
        if c.tid == 0:
            at = epoch_end.counter(c, c.build.ffn.epoch.down_counters)
            ll.lds_store(c.lds, word, ll.ticket(c.epoch, at))
        fx.barrier()
        rank = ll.uniform(ll.lds_load(c.lds, word, Int32))
        both = fx.Uint32(rank) < fx.Uint32(extra)
        count = both.select(Int32(2), Int32(1))
        second = both.select(rank + grid, Int32(0))
    return Share(count, c.workgroup, second)


# ------------------------------------------------------------------ shared expert


def _columns(c: Context) -> int:
    """Columns of the shared intermediate in LDS: whole steps."""
    return (c.build.ffn.mix.inter + STEP - 1) // STEP * STEP


def _shared_slice(c: Context) -> rows.Slice:
    f, k = c.build.ffn, _columns(c)
    return rows.Slice(k, k, Int32(0), Int32(0), f.lds.smq, f.lds.smc)


def _shared_weights(c: Context, how: Gemv, share: Share, w: Experts) -> list[list[Any]]:
    columns = _columns(c) if c.build.how.weight_layout == "tile_major" else how.k
    matrix, steps = gemv.Matrix(w.data, w.codes, how.rows, columns), gemv.Steps(Int32(0), how.steps)
    both = [gemv.load_weights(c, matrix, share.first, steps)]
    if c.build.ffn.mix.down_extra:
        both.append(gemv.load_weights(c, matrix, share.second, steps, share.count > 1))
    return both


@ll.device
def _stage_rows(c: Context, sites: tuple[Site, Site], first: Any, count: Any) -> None:
    """SMQ and SMC of the pass's rows into LDS; columns past the width are zeros with any code."""
    f, s, inter = c.build.ffn, _shared_slice(c), c.build.ffn.mix.inter
    threads, width = c.build.waves * WAVE, min(c.build.pass_width, c.build.shape.rows)
    words, codes = inter // 8, inter // 64  # loads of two pairs
    smq, smc = f.scratch.smq + first * (inter * 2), f.scratch.smc + first * (inter // 4)
    loads = (width * words + threads - 1) // threads
    last = count * words - 1
    items = [fx.min(c.tid + i * threads, last) for i in range(loads)]
    got = mailbox.poll(c, sites[0], [(smq, item * 16, 2) for item in items])
    item = fx.min(c.tid, count * codes - 1)
    code = fx.Vector.from_elements(mailbox.poll(c, sites[1], [(smc, item * 16, 2)]), Int32)
    for i in range_constexpr(loads):
        if c.tid + i * threads <= last:
            row = Int32(fx.Uint32(items[i]) // words)
            at = row * s.lds_row + (items[i] - row * words) * 8
            pair = fx.Vector.from_elements([got[2 * i], got[2 * i + 1]], Int32)
            ll.lds_store(c.lds, (at, s.lds_data), pair)
    if c.tid < count * codes:
        row = Int32(fx.Uint32(item) // codes)
        ll.lds_store(c.lds, (row * s.lds_code_row + (item - row * codes) * 8, s.lds_codes), code)
    if const_expr(s.k > inter):
        _clear_tail(c, s, inter, count)


@ll.device
def _clear_tail(c: Context, s: rows.Slice, inter: int, count: Any) -> None:
    words, codes = (s.k - inter) // 4, (s.k - inter) // 32
    row, word = Int32(fx.Uint32(c.tid) // words), Int32(fx.Uint32(c.tid) % words)
    if row < count:
        ll.lds_store(c.lds, (row * s.lds_row + word * 4, s.lds_data + inter), Int32(0))
        if word < codes:
            ll.lds_store(c.lds, (row * s.lds_code_row + word * 4, s.lds_codes + inter // 8), Int32(NO_SCALE))


@ll.device
def _shared_pass(
    c: Context, sites: tuple[Site, Site], how: Gemv, share: Share, weights: list[Any], first: Any
) -> None:
    f, s, shape = c.build.ffn, _shared_slice(c), c.build.shape
    count = fx.min(Int32(c.build.pass_width), shape.rows - first)
    steps = gemv.Steps(Int32(0), how.steps)
    _stage_rows(c, sites, first, count)
    fx.barrier()
    gemv.multiply(c, s, steps, count, weights[:1], f.lds.red)
    if const_expr(len(weights) > 1):  # noqa: SIM102 (a build-time and a run-time test)
        if share.count > 1:
            gemv.multiply(c, s, steps, count, weights[1:], f.lds.red + gemv.SUM_BYTES)
    fx.barrier()
    pair, t, which = c.tid & 7, (c.tid >> 3) & 15, c.tid >> 7
    if (t < count) & (which < share.count):
        spot = which * gemv.SUM_BYTES + (pair >> 1) * 256 + t * 16 + (pair & 1) * 8
        total = gemv.sum_waves(c, f.lds.red, spot, 2)
        at = (which * shape.rows + first + t) * (PAIRS * 4) + pair * 4 + f.lds.sdl
        ll.lds_store(c.lds, at, fmt.bf16_pair(c.build.how, total[0], total[1]))
    fx.barrier()


@ll.device
def _shared(c: Context, sites: tuple[Site, Site], how: Gemv, share: Share, weights: list[Any]) -> None:
    shape, width = c.build.shape, c.build.pass_width
    if const_expr(shape.rows <= width):
        _shared_pass(c, sites, how, share, weights, Int32(0))
    else:
        for p in range(0, (shape.rows + width - 1) // width, 1, unroll=1):  # type: ignore[call-overload]
            _shared_pass(c, sites, how, share, weights, Int32(p) * width)


# ------------------------------------------------------------------ routed experts


def _steps(c: Context) -> tuple[int, int]:
    """(whole steps of an expert's columns, columns of the step that is left)."""
    return divmod(c.build.ffn.mix.inter, STEP)


def _weights(c: Context, w: Experts, share: Share, item: Any, slots: Any) -> list[Any]:
    """The item's weights and codes; an item past the end loads nothing."""
    f = c.build.ffn
    second = (item >= slots).select(Int32(1), Int32(0))
    live = item < slots * share.count
    slot = live.select(item - second * slots, Int32(0))
    expert, _, _, _ = table.record(c, f.lds.slots, slot)
    load = _native_weights if fp4.is_native(c.build.how) else _fnuz_weights
    return load(c, w, expert, _tile(share, second), live)


def _native_weights(c: Context, w: Experts, expert: Any, tile: Any, live: Any) -> list[Any]:
    """Steps of 16 bytes a lane; of the codes a dword for two steps, which holds the neighbouring tile's as
    well, and a byte for the last of an odd number."""
    mix, hidden = c.build.ffn.mix, c.build.shape.hidden
    row_bytes, columns = mix.padded // 2, (mix.padded // 32 + 7) // 8 * 8
    data = ll.buffer(w.data, bounded(mix.experts * hidden * row_bytes, live))
    codes = ll.buffer(w.codes, bounded(mix.experts * hidden * columns, live))
    base = (expert * (hidden // 16) + tile) * (16 * row_bytes)
    steps = mix.padded // STEP
    out = [
        ll.buffer_load(data, c.lane * 16 + k * TILE_STEP, base, count=4, cache=ll.NT) for k in range(steps)
    ]
    base = (expert * (hidden // 32) + (tile >> 1)) * (32 * columns)
    shift = (tile & 1) << 3
    for k in range(steps // 2):
        word = ll.buffer_load(codes, c.lane * 4 + k * 256, base, cache=ll.NT)
        out.append(Int32(fx.Uint32(word) >> fx.Uint32(shift)))
    if steps % 2:
        out.append(ll.buffer_byte(codes, c.lane * 4 + steps // 2 * 256 + (tile & 1), base))
    return out


def _fnuz_weights(c: Context, w: Experts, expert: Any, tile: Any, live: Any) -> list[Any]:
    """Steps of 16 bytes a lane, half of it for a last step of 64 columns; eight codes a lane."""
    mix, hidden = c.build.ffn.mix, c.build.shape.hidden
    whole, rest = _steps(c)
    tile_bytes, tile_codes = 8 * mix.inter, mix.inter // 2
    data = ll.buffer(w.data, bounded(mix.experts * hidden * mix.inter // 2, live))
    codes = ll.buffer(w.codes, bounded(mix.experts * hidden * mix.inter // 32, live))
    base = (expert * (hidden // 16) + tile) * tile_bytes
    out = [
        ll.buffer_load(data, c.lane * 16 + k * TILE_STEP, base, count=4, cache=ll.NT) for k in range(whole)
    ]
    if rest:
        out.append(ll.buffer_load(data, c.lane * 8 + whole * TILE_STEP, base, count=2, cache=ll.NT))
    lane = (c.lane < tile_codes // 8).select(c.lane * 8, Int32(gemv.NOWHERE))
    base = (expert * (hidden // 16) + tile) * tile_codes
    return [*out, ll.buffer_load(codes, lane, base, count=2, cache=ll.NT)]


def _own(c: Context) -> Any:
    """The wave's LDS for the scale factors of an item: [block][row]."""
    return c.wave * 2048 + c.build.ffn.lds.red


def _native_product(c: Context, row: Any, regs: list[Any]) -> Any:
    """16 rows x the picks at MID rows ``row`` (a lane's): two chains of steps."""
    f, mix = c.build.ffn, c.build.ffn.mix
    j, steps = c.lane >> 4, mix.padded // STEP
    rest = _steps(c)[1]
    at, mid = row * mix.padded + j * 16, Int32(f.scratch.mid)
    code_at = (row * f.scratch.mids_row + j * steps) * 4
    x = []
    for k in range(steps):
        last = rest > 0 and k == steps - 1
        low = ll.buffer_load(c.scratch, at + k * STEP, mid, count=4)
        high = None if last else ll.buffer_load(c.scratch, at + k * STEP + 64, mid, count=4)
        x.append((low, high))
    codes = _words(c, code_at, Int32(f.scratch.mids), steps)
    acc = [fx.Vector.filled(4, 0.0, Float32) for _ in range(2)]
    for k, (low, high) in enumerate(x):
        weight, code, byte = regs[steps + k // 2], codes[k], 2 * (k & 1)
        if high is None:  # lane groups past the width hold nothing, whatever their codes say
            high, empty = fx.Vector.filled(4, 0, Int32), j >= rest // 32
            weight = empty.select(Int32(NO_SCALE * 0x01010101), weight)
            code = empty.select(Int32(NO_SCALE), code)
        b = fx.Vector.from_elements([v[i] for v in (low, high) for i in range(4)], Int32)
        acc[k & 1] = ll.mfma_scaled(regs[k], b, acc[k & 1], weight, code, ll.E2M1, byte)
    return acc[0] + acc[1]


def _words(c: Context, lane: Any, uniform: Any, count: int) -> list[Any]:
    """``count`` words of the scratch from a lane's byte on, up to four a load."""
    out: list[Any] = []
    while len(out) < count:
        n = min(4, count - len(out))
        got = ll.buffer_load(c.scratch, lane + 4 * len(out), uniform, count=n)
        out += [got] if n == 1 else [got[i] for i in range(n)]
    return out


def _fnuz_product(c: Context, row: Any, regs: list[Any]) -> Any:
    """16 rows x the picks at MID rows ``row`` (a lane's): blocks of 32 in order, on the factors in LDS."""
    f, mix = c.build.ffn, c.build.ffn.mix
    j, mid = c.lane >> 4, Int32(f.scratch.mid)
    at = row * mix.padded + j * 32
    x = _words_x(c, at, mid)
    codes = _words(c, row * (f.scratch.mids_row * 4), Int32(f.scratch.mids), mix.inter // 32)
    acc = fx.Vector.filled(4, 0.0, Float32)
    mine = _own(c) + j * 16
    for k in range(mix.inter // 32):
        factors = ll.lds_load(c.lds, (mine, 64 * k), Float32, 4)
        column = fp4.splat(fp4.factor(codes[k]))
        acc = fp4.block(regs[k // 4][k % 4], x[k], factors, column, acc)
    return acc * Float32(fp4.VALUE_SCALE)


def _words_x(c: Context, at: Any, mid: Any) -> list[Any]:
    """Eight bytes of every block of a lane group: 32 together of a step of four blocks."""
    blocks, out = c.build.ffn.mix.inter // 32, []
    for k in range(0, blocks, 2):
        got = ll.buffer_load(c.scratch, at + (k // 4) * STEP + (k % 4) * 8, mid, count=4)
        out += [fx.Vector.from_elements([got[2 * i], got[2 * i + 1]], Int32) for i in range(2)]
    return out[:blocks]


def _prepare(c: Context, regs: list[Any]) -> None:
    """The item's scale factors to LDS, where they are not operands: eight a lane."""
    if fp4.is_native(c.build.how):
        return
    at = _own(c) + c.lane * 32
    for k in range(2):
        ll.lds_store(c.lds, (at, 16 * k), fp4.factors(regs[-1][k]))


@ll.device
def _park(c: Context, which: Any, position: Any, count: Any, v: Any) -> None:
    """Results times routing weights, as bf16, at their picks."""
    f, how = c.build.ffn, c.build.how
    column, j = c.lane & 15, c.lane >> 4
    n = f.mix.picks(c.build.shape.rows)
    if column < count:
        pick = table.pick_at(c, position + column)
        weight = ll.lds_load(c.lds, pick * 4 + f.lds.weights)
        v = v * fp4.splat(weight)
        words = [fmt.bf16_pair(how, v[2 * k], v[2 * k + 1]) for k in range_constexpr(2)]
        at = (which * n + pick) * (PAIRS * 4) + j * 8 + f.lds.kept
        ll.lds_store(c.lds, at, fx.Vector.from_elements(words, Int32))


@ll.device
def _await_slot(c: Context, site: Site, count: Any, first_unit: Any) -> None:
    """Until all gate/up tasks of the wave's slot are done."""
    mix, rows_of_step = c.build.ffn.mix, c.build.shape.rows
    most = mix.parts * ((rows_of_step + mix.pick_width - 1) // mix.pick_width)
    units = Int32(1)
    if const_expr(rows_of_step > mix.pick_width):
        units = table.units_of(c, count)
    last = units * mix.parts - 1
    region = c.build.ffn.scratch.ugf + first_unit * (mix.parts * 8)
    offsets = [fx.min(c.lane + k, last) * 8 for k in range(0, most, WAVE)]
    mailbox.see_flags(c, site, region, offsets)


@ll.device
def _routed(c: Context, site: Site, share: Share, w: Experts, regs: list[Any], slots: Any) -> None:
    f, waves = c.build.ffn, c.build.waves
    items = slots * share.count
    for i in range(c.wave, items, waves, unroll=1):  # type: ignore[call-overload]
        item = Int32(i)
        which = (item >= slots).select(Int32(1), Int32(0))
        _, count, position, first_unit = table.record(c, f.lds.slots, item - which * slots)
        _await_slot(c, site, count, first_unit)
        _prepare(c, regs)
        if const_expr(c.build.shape.rows <= PICKS):
            _pass(c, which, position, count, regs)
        else:
            for done in range(0, count, PICKS, unroll=1):  # type: ignore[call-overload]
                _pass(c, which, position + Int32(done), count - Int32(done), regs)
        regs = _weights(c, w, share, item + waves, slots)


def _pass(c: Context, which: Any, position: Any, count: Any, regs: list[Any]) -> None:
    """Up to 16 picks from ``position`` on."""
    row = position + fx.min(c.lane & 15, count - 1)
    product = _native_product if fp4.is_native(c.build.how) else _fnuz_product
    _park(c, which, position, count, product(c, row, regs))


# ------------------------------------------------------------------ combine


@ll.device
def _combine(c: Context, share: Share, out: peers.Outbox) -> None:
    """A row's picks in selection order, then the shared expert, bf16 after each; to every rank."""
    f, how, shape = c.build.ffn, c.build.how, c.build.shape
    pair, t = c.tid & 7, c.tid >> 3
    k, n = f.mix.per_token, f.mix.picks(shape.rows)
    for i in range(0, share.count, 1, unroll=1):  # type: ignore[call-overload]
        which = Int32(i)
        if t < shape.rows:
            at = (which * n + t * k) * (PAIRS * 4) + pair * 4
            low, high = Float32(0.0), Float32(0.0)
            for q in range_constexpr(k):
                more = fmt.unpack([ll.lds_load(c.lds, (at, f.lds.kept + q * PAIRS * 4), Int32)])
                low, high = fmt.unpack([fmt.bf16_pair(how, low + more[0], high + more[1])])
            spot = (which * shape.rows + t) * (PAIRS * 4) + pair * 4
            more = fmt.unpack([ll.lds_load(c.lds, (spot, f.lds.sdl), Int32)])
            word = fmt.bf16_pair(how, low + more[0], high + more[1])
            column = _tile(share, which) * gemv.TILE_ROWS + pair * 2
            peers.push(c, out, f.peer.ffn, t, column, word)


def down(
    c: Context,
    tasks: Tasks,
    how: Gemv,
    smq: Site,
    smc: Site,
    ugf: Site,
    routed: Experts,
    shared: Experts,
) -> None:
    """FFN pairs of this rank's partial in every rank's peer buffer."""
    grid, mix = c.build.workgroups, c.build.ffn.mix
    if tasks.count - mix.down_extra != grid or mix.down_extra > grid:
        raise ValueError(
            f"down: {tasks.count} tasks on {grid} workgroups; between one and two each are built"
        )
    if c.build.shape.rows * PAIRS > c.build.waves * WAVE:
        raise ValueError(f"down: {c.build.shape.rows} rows; a block combines {c.build.waves * WAVE // PAIRS}")
    c = renew(c)
    _run(c, tasks, how, (smq, smc), ugf, routed, shared)


@ll.device
def _run(
    c: Context, tasks: Tasks, how: Gemv, sites: tuple[Site, Site], ugf: Site, routed: Experts, shared: Experts
) -> None:
    share = _arrive(c, tasks)
    slots = table.count_of_slots(c)
    weights = _shared_weights(c, how, share, shared)
    regs = _weights(c, routed, share, c.wave, slots)
    _shared(c, sites, how, share, weights)
    _routed(c, ugf, share, routed, regs, slots)
    out = peers.outbox(c)
    fx.barrier()
    _combine(c, share, out)
    fx.barrier()
