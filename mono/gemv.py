"""Block-scaled FP8 GEMV: 16 weight rows against the tokens of a pass, K split over the eight waves.

Wave w takes the K steps w, w + 8, ... of 128 elements (or, of a task whose tiles have their own waves, a run
of steps); the waves' 16 x 16 sums meet in LDS and are added in wave order from 0 (attention.md 2.5). A task's
weights are loaded once, before its activations exist, and stay in registers over all passes. A step past the
end is not computed: its loads go through a descriptor of 0 bytes (no traffic) and a scalar branch skips its
MFMAs.

Strategy ``scaled_mfma``: one MFMA a step takes the bytes and both scale codes. Weights are row-major. Where
the columns end inside a step, the second half of that step is not loaded (zeros), and every lane loads its
own code. Strategy ``fp8_mfma_fma``: one fp8 MFMA a 32-wide block with a zero accumulator, then acc = fma(d,
F, acc) with F = 2^(cw + cx - 254) from v_ldexp_f32, which is right (subnormal, zero) for every pair of codes;
building the bits by a shift would turn code sums below 127 into -inf or huge negatives. Weights are tile-
major (attention.md 2.3): a step of 16 rows is 2 KB, two coalesced 16-byte accesses a lane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flydsl.expr as fx
from flydsl.expr import const_expr, range_constexpr
from flydsl.expr.typing import Float32, Int32

from . import lowlevel as ll
from .context import Context
from .rows import Slice

TILE_ROWS = 16
STEP = 128
NOWHERE = 0x7FFFFFFF  # an offset past every bounded buffer
SUM_BYTES = 8192  # one task's partial sums in LDS: 8 waves x 64 lanes x 4 floats


@dataclass(frozen=True)
class Matrix:
    """A weight argument: addresses, and the columns of a row."""

    data: Any
    codes: Any
    rows: int
    k: int


@dataclass(frozen=True)
class Steps:
    """The K steps of a tile: ``count`` from step ``first`` (uniform) of the row.

    All waves take them in turn; or, with ``sharers``, that many neighbouring waves a run each.
    """

    first: Any
    count: int
    sharers: int = 0

    def per_wave(self, waves: int) -> int:
        return -(-self.count // (self.sharers or waves))

    def stride(self, waves: int) -> int:
        """Steps between two of a wave."""
        return 1 if self.sharers else waves


def _own(c: Context, steps: Steps) -> Any:
    """The wave's first step of the tile."""
    if not steps.sharers:
        return c.wave
    if steps.count % steps.sharers:
        raise ValueError(f"{steps.count} steps in {steps.sharers} runs; only equal runs are built")
    return (c.wave & (steps.sharers - 1)) * (steps.count // steps.sharers)


def _is_ragged(steps: Steps, i: int, waves: int) -> bool:
    return not steps.sharers and (i + 1) * waves > steps.count


def _lane_offset(c: Context, m: Matrix) -> Any:
    if c.build.how.weight_layout == "tile_major":
        return c.lane * 16
    return (c.lane & 15) * m.k + (c.lane >> 4) * 16


def load_weights(c: Context, m: Matrix, tile: Any, steps: Steps, live: Any = None) -> list[Any]:
    """This wave's operands of 16-row tile ``tile`` (uniform), a list of (low, high, codes) a step.

    ``live`` (scalar condition): false for a workgroup without the task, which loads zeros without traffic.
    """
    how, waves = c.build.how, c.build.waves
    tiled = how.weight_layout == "tile_major"
    size = Int32(m.rows * m.k)
    present = size if live is None else live.select(size, Int32(0))
    lane = _lane_offset(c, m)
    own, apart = _own(c, steps), steps.stride(waves)
    first = steps.first + own
    base = tile * (TILE_ROWS * m.k) + first * (2048 if tiled else STEP)
    stride, half = (2048 * apart, 1024) if tiled else (STEP * apart, 64)
    out = []
    for i in range(steps.per_wave(waves)):
        ragged = _is_ragged(steps, i, waves)
        here = (own + i * apart < steps.count).select(present, Int32(0)) if ragged else present
        buf = ll.buffer(m.data, here)
        offset, uniform = (lane, base + i * stride) if tiled else (lane + i * stride, base)
        step = fx.min(first + i * apart, steps.first + (steps.count - 1)) if ragged else first + i * apart
        second = offset + half
        if not _whole(m):
            second = (step == steps.first + (steps.count - 1)).select(Int32(NOWHERE), second)
        low, high = (ll.buffer_load(buf, o, uniform, count=4) for o in (offset, second))
        out.append((low, high, _codes(c, m, tile, step)))
    return out


def _whole(m: Matrix) -> bool:
    """Whether a row is a whole number of steps."""
    return m.k % STEP == 0


def _codes(c: Context, m: Matrix, tile: Any, step: Any) -> Any:
    """A step's four codes in a scalar word; of rows that end inside a step the lane group's own code, as a
    vector."""
    row = (tile >> 1) * (m.k // 32)
    if _whole(m):
        return ll.global_load(m.codes + fx.Int64(row), step * 4, constant=True)
    own = ll.buffer_byte(ll.buffer(m.codes, m.rows // 32 * (m.k // 32)), row + step * 4 + (c.lane >> 4))
    return fx.Vector.from_elements([own], Int32)


def _scaled_step(c: Context, x: Any, w: Any, acc: Any) -> Any:
    low, high, codes = w
    a = fx.Vector.from_elements([v[k] for v in (low, high) for k in range(4)], Int32)
    own = codes[0] if isinstance(codes, fx.Vector) else codes >> ((c.lane >> 4) * 8)
    return ll.mfma_scaled(a, x[0], acc, own, x[1])


def _scaled_x(c: Context, s: Slice, token: Any, own: Any, step: int) -> tuple[Any, Any]:
    """A step's activations: bytes 16 j .. and 64 + 16 j .. of the lane's token, and the code of block j.

    ``own``: the wave's first step; ``step``: bytes from it.
    """
    group = c.lane >> 4
    at = token * s.lds_row + own * STEP + group * 16
    halves = [ll.lds_load(c.lds, (at, s.lds_data + step + h), Int32, 4) for h in (0, 64)]
    code = ll.lds_load(c.lds, (token * s.lds_code_row + own * 16 + group * 4, s.lds_codes + step // 8), Int32)
    return fx.Vector.from_elements([v[k] for v in halves for k in range(4)], Int32), code


def _fma_step(c: Context, x: Any, w: Any, acc: Any) -> Any:
    low, high, codes = w
    for b in range(4):
        words = low if b < 2 else high
        a = fx.Vector.from_elements([words[2 * (b & 1)], words[2 * (b & 1) + 1]], Int32)
        d = ll.mfma_fp8(a, x[0][b])
        factor = ll.ldexp_one(((codes >> (8 * b)) & 0xFF) + x[1][b] - 254)
        acc = ll.fma(d, fx.Vector.from_elements([factor] * 4, Float32), acc)
    return acc


def _fma_x(c: Context, s: Slice, token: Any, own: Any, step: int) -> tuple[Any, Any]:
    """A step's activations: of each 32-wide block bytes 8 j .. + 7 of the lane's token, and the codes."""
    at = token * s.lds_row + own * STEP + (c.lane >> 4) * 8
    blocks = [ll.lds_load(c.lds, (at, s.lds_data + step + 32 * b), Int32, 2) for b in range(4)]
    return blocks, ll.lds_load(c.lds, (token * s.lds_code_row + own * 16, s.lds_codes + step // 8), Int32, 4)


@ll.device
def _task_step(c: Context, x: Any, w: Any, acc: Any, live: Any) -> Any:
    one = _scaled_step if c.build.how.gemv == "scaled_mfma" else _fma_step
    if const_expr(live is None):
        acc = one(c, x, w, acc)
    else:
        if live:
            acc = one(c, x, w, acc)
    return acc


def _step(
    c: Context,
    s: Slice,
    at: tuple[Any, Any, int],
    i: int,
    tasks: list[Any],
    sums: list[Any],
    lives: list[Any],
) -> list[Any]:
    """Step ``i`` of every task on one read of the activations; ``at`` = (token, first step, stride)."""
    token, own, apart = at
    load = _scaled_x if c.build.how.gemv == "scaled_mfma" else _fma_x
    x = load(c, s, token, own, apart * STEP * i)
    return [_task_step(c, x, tasks[k][i], sums[k], lives[k]) for k in range(len(tasks))]


@ll.device
def multiply(
    c: Context,
    s: Slice,
    steps: Steps,
    live_rows: Any,
    tasks: list[Any],
    red: int,
    lives: list[Any] | None = None,
) -> None:
    """Every task's weights times LDS rows 0 .. live_rows - 1; partial sums to ``red`` + 8192 task.

    ``lives``: a scalar condition a task (None: always); a task that is not live leaves nothing to read.
    """
    waves = c.build.waves
    asked = lives or [None] * len(tasks)
    token = fx.min(c.lane & 15, live_rows - 1)
    at = (token, _own(c, steps), steps.stride(waves))
    sums = [fx.Vector.filled(4, 0.0, Float32) for _ in range(len(tasks))]
    for i in range_constexpr(steps.per_wave(waves)):
        if const_expr(_is_ragged(steps, i, waves)):
            if c.wave + i * waves < steps.count:
                sums = _step(c, s, at, i, tasks, sums, asked)
        else:
            sums = _step(c, s, at, i, tasks, sums, asked)
    for k in range_constexpr(len(tasks)):
        ll.lds_store(c.lds, (c.wave * 1024 + c.lane * 16, red + k * SUM_BYTES), sums[k])


def sum_waves(c: Context, red: int, spot: Any, kind_count: int = 1, waves: int = 0) -> Any:
    """One (two, four adjacent) rows of a token, summed over ``waves`` (or all) waves in order from 0."""
    total = Float32(0.0) if kind_count == 1 else fx.Vector.filled(kind_count, 0.0, Float32)
    for w in range(waves or c.build.waves):
        total = total + ll.lds_load(c.lds, (spot, red + 1024 * w), Float32, kind_count)
    return total
