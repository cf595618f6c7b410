"""The K loop of a routed gate/up task: two 16-row tiles a wave x the activations of up to 16 picks.

Weights go straight to registers. A round is two steps of 128 columns; some rounds are in flight, and a
round's registers are filled again as soon as its products are issued.

Native FP4: the rounds stand one after the other in the code; a slice's rounds are blocks of eight steps in
turn, the last block shared (FFN math 4.3). The codes of a round are one dword a lane, in the order of the
MFMA's lanes. FP4 as FNUZ: a run-time loop over rings of rounds, K slices in one piece. A lane loads the codes
of four rows of one block and leaves their factors in the wave's LDS, where every lane group finds those of
its four rows; what a step reads from LDS is asked for a step ahead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flydsl.expr as fx
from flydsl.expr import const_expr, range_constexpr
from flydsl.expr.typing import Float32, Int32

from . import fp4, rows
from . import lowlevel as ll
from .context import Context
from .ug_map import GROUP, STEP, group, half, k_slice, map_of, own, share, x_at

TILE_STEP = 1024  # bytes of a step of 16 rows
DEPTH = 5  # rounds in flight where FP4 is native


@dataclass(frozen=True)
class Experts:
    """Addresses of a weight and its codes."""

    data: Any
    codes: Any


@dataclass(frozen=True)
class Tiles:
    """The wave's two tiles of a task: buffers, and the first bytes of the first (uniform)."""

    data: Any
    codes: Any
    base: Any
    code_base: Any


def bounded(size: int, live: Any) -> Any:
    """Bytes of a buffer, none where ``live`` (scalar) does not hold; without bytes nothing is loaded."""
    return live.select(Int32(size - 2**32 if size >= 2**31 else size), Int32(0))


def tiles_of(c: Context, experts: Experts, expert: Any, part: Any, live: Any = None) -> Tiles:
    """Tiles of the wave in part ``part`` of an expert."""
    mix, hidden = c.build.ffn.mix, c.build.shape.hidden
    columns = part * mix.groups_per_task + group(c)
    tile = expert * (2 * mix.loaded // 16) + (columns * 2 + half(c)) * 2
    values = mix.experts * 2 * mix.loaded * hidden
    sizes = [size if live is None else bounded(size, live) for size in (values // 2, values // GROUP)]
    return Tiles(
        ll.buffer(experts.data, sizes[0]),
        ll.buffer(experts.codes, sizes[1]),
        tile * (16 * hidden // 2),
        tile * (16 * hidden // GROUP),
    )


def _data(c: Context, t: Tiles, step: Any, at: int) -> list[Any]:
    """16 bytes a lane of either tile, at step ``step`` (uniform) + ``at``."""
    tile_bytes, lane = 16 * c.build.shape.hidden // 2, c.lane * 16 + at * TILE_STEP
    where = [t.base + n * tile_bytes + step * TILE_STEP for n in range(2)]
    return [ll.buffer_load(t.data, lane, base, count=4, cache=ll.NT) for base in where]


# ------------------------------------------------------------------ native FP4


def _first_step(c: Context, pair: int) -> tuple[int, int]:
    """(first step of K slice 0, steps from slice to slice) of a slice's round ``pair``."""
    slices, steps = map_of(c.build).slices, c.build.shape.hidden // STEP
    if slices == 4:
        return 8 * pair, 2
    whole = steps // 16 * 8  # steps of a slice in whole blocks
    if 2 * pair < whole:
        return pair // 4 * 16 + pair % 4 * 2, 8
    return 2 * pair + whole, (steps - 2 * whole) // 2


def _native_load(c: Context, t: Tiles, pair: int) -> list[Any]:
    first, by = _first_step(c, pair)
    step = k_slice(c) * by + first
    data = [v for k in range(2) for v in _data(c, t, step, k)]
    return [*data, ll.buffer_load(t.codes, c.lane * 4, t.code_base + step * 128, cache=ll.NT)]


def _native_round(c: Context, token: Any, pair: int, regs: list[Any], acc: list[Any]) -> list[Any]:
    lds, j = c.build.ffn.lds, c.lane >> 4
    first, by = _first_step(c, pair)
    row, code_row = c.build.shape.hidden + rows.PAD, c.build.shape.hidden // 8 + rows.PAD
    data = token * row + j * 16 + k_slice(c) * (by * STEP)
    codes = token * code_row + j * 4 + k_slice(c) * (by * 16)
    for k in range(2):
        at = lds.x + (first + k) * STEP
        halves = [ll.lds_load(c.lds, (data, at + h), Int32, 4) for h in (0, 64)]
        code = ll.lds_load(c.lds, (codes, lds.xs + (first + k) * 16), Int32)
        b = fx.Vector.from_elements([v[i] for v in halves for i in range(4)], Int32)
        acc = [
            ll.mfma_scaled(regs[2 * k + n], b, acc[n], regs[4], code, ll.E2M1, 2 * k + n) for n in range(2)
        ]
    return acc


def _native(c: Context, t: Tiles, token: Any, acc: list[Any]) -> list[Any]:
    if map_of(c.build).blocks > 1:
        raise ValueError("ug: K blocks of x are built for FP4 as FNUZ only")
    pairs = map_of(c.build).steps // 2
    ring = [_native_load(c, t, p) for p in range(min(DEPTH, pairs))]
    for p in range(pairs):
        acc = _native_round(c, token, p, ring[p % DEPTH], acc)
        if p + DEPTH < pairs:
            ring[p % DEPTH] = _native_load(c, t, p + DEPTH)
    return acc


# ------------------------------------------------------------------ FP4 as FNUZ


def _ring(c: Context) -> int:
    """Rounds of a ring: a K block's, or two (all where their number is odd)."""
    m = map_of(c.build)
    if m.blocks > 1:
        return m.part // (2 * STEP)
    return 2 if m.steps % 4 == 0 else m.steps // 2


def _fnuz_load(c: Context, t: Tiles, step: Any, k: int) -> list[Any]:
    """Round ``k`` of the ring whose first step is ``step``; of the codes, which are needed first, four rows
    of one block of one tile.

    Rounds are asked for in the same order before the loop and in it: a wait counts the loads behind the one
    that it needs, so another order before the loop would make every turn wait for the next round as well."""
    lane = (c.lane & 31) * 4 + (c.lane >> 5) * (c.build.shape.hidden // 2) + k * 128
    codes = ll.buffer_load(t.codes, lane, t.code_base + step * 64, cache=ll.NT)
    data = [v for n in range(2) for v in _data(c, t, step, 2 * k + n)]
    ll.keep_order()
    return [*data, codes]


def _fnuz_reads(c: Context, x: tuple[Any, Any], s: int, regs: list[Any]) -> list[Any]:
    """What LDS has for step ``s`` of the ring: (words, activation code, row factors of both tiles) of each
    block. ``x``: LDS bytes of the token's data and codes at the ring's first step; ``regs``: the step's
    round.

    Rounds take turns in the halves of the wave's LDS."""
    k, n = divmod(s, 2)
    factors = own(c) + (k & 1) * 1024
    if n == 0:
        ll.lds_store(c.lds, factors + c.lane * 16, fp4.factors(regs[4]))
    mine = factors + (c.lane >> 4) * 16
    codes = ll.lds_load(c.lds, (x[1], s * 16), Int32, 4)
    out = []
    for b in range(4):
        words = ll.lds_load(c.lds, (x[0], s * STEP + GROUP * b), Int32, 2)
        spots = [(mine, 64 * (4 * n + b) + 512 * tile) for tile in range(2)]
        out.append((words, codes[b], [ll.lds_load(c.lds, spot, Float32, 4) for spot in spots]))
    return out


@dataclass(frozen=True)
class Unscaled:
    """A block's products of both tiles, and what they are scaled by."""

    products: list[Any]
    rows: list[Any]
    column: Any

    def added(self, acc: list[Any]) -> list[Any]:
        """The sums with this block."""
        return [fp4.scaled(self.products[t], self.rows[t], self.column, acc[t]) for t in range(2)]


def _fnuz_step(
    s: int, regs: list[Any], reads: list[Any], acc: list[Any], last: Unscaled | None
) -> tuple[list[Any], Unscaled]:
    """Products of step ``s`` of the ring. A block is scaled behind the next one's products: a matrix
    instruction takes as long as some others, which the compiler would fill with waiting."""
    for b, (words, code, factors) in enumerate(reads):
        products = [fp4.product(regs[2 * (s & 1) + tile][b], words) for tile in range(2)]
        ll.keep_order()
        acc = acc if last is None else last.added(acc)
        last = Unscaled(products, factors, fp4.splat(fp4.factor(code)))
    assert last is not None
    return acc, last


def load_block(c: Context, picked: list[rows.Picked], block: Any, live: Any) -> list[list[Any]]:
    """Every K slice's share of K block ``block`` of the picked rows, issued and not waited for."""
    m = map_of(c.build)
    here = [rows.Picked(p.row, p.live & live) for p in picked]
    shares = [share(c, s, block) for s in range(m.slices)]
    return [rows.load_picked(c, s, here, rows.nothing(c, s, m.held)) for s in shares]


def _store_block(c: Context, picked: list[rows.Picked], regs: list[list[Any]]) -> None:
    for s in range(map_of(c.build).slices):
        rows.store_picked(c, share(c, s, Int32(0)), picked, regs[s])


@ll.device
def _fnuz(
    c: Context,
    experts: Experts,
    expert: Any,
    part: Any,
    token: Any,
    picked: list[rows.Picked],
    acc: list[Any],
) -> list[Any]:
    m, rounds = map_of(c.build), _ring(c)
    times, ring = m.steps // (2 * rounds), 2 * rounds
    always = Int32(0) == 0
    blocks = load_block(c, picked, Int32(0), always) if m.blocks > 1 else []
    first = k_slice(c) * m.steps
    t = tiles_of(c, experts, expert, part)
    regs = [_fnuz_load(c, t, first, k) for k in range(rounds)]
    data, codes = x_at(c, token)
    data = data + (c.lane >> 4) * 8
    for turn in range(0, times, 1, unroll=1):  # type: ignore[call-overload]
        more = Int32(turn) + 1 < times
        if const_expr(m.blocks > 1):
            fx.barrier()
            _store_block(c, picked, blocks)
            fx.barrier()
            blocks = load_block(c, picked, Int32(turn) + 1, more)
        first = first + ring
        ahead = tiles_of(c, experts, expert, part, more)
        reads = _fnuz_reads(c, (data, codes), 0, regs[0])
        last: Any = None  # products that are still to be scaled
        for s in range_constexpr(ring):
            now = reads
            if const_expr(s + 1 < ring):
                reads = _fnuz_reads(c, (data, codes), s + 1, regs[(s + 1) // 2])
            acc, last = _fnuz_step(s, regs[s // 2], now, acc, last)
            if const_expr(s % 2 == 1):
                regs[s // 2] = _fnuz_load(c, ahead, first, s // 2)
        acc = last.added(acc)
        if const_expr(m.blocks == 1):
            data, codes = data + ring * STEP, codes + ring * 16
    return acc


# ------------------------------------------------------------------ both


@ll.device
def product(
    c: Context, experts: Experts, expert: Any, part: Any, token: Any, picked: list[rows.Picked]
) -> None:
    """The wave's two tiles x the activations of LDS row ``token`` (a lane's), to its LDS.

    ``picked``: rows of x that the wave stages in K blocks; not used where x is held whole.
    """
    acc = [fx.Vector.filled(4, 0.0, Float32) for _ in range(2)]
    if const_expr(fp4.is_native(c.build.how)):
        acc = _native(c, tiles_of(c, experts, expert, part), token, acc)
    else:
        acc = _fnuz(c, experts, expert, part, token, picked, acc)
    for tile in range_constexpr(2):
        ll.lds_store(c.lds, (own(c) + c.lane * 16, tile * 1024), acc[tile])
