"""xq: a token's normed row in MXFP8 twice, for the routed and the shared experts (FFN math 2.3).

The two code rules differ only below an amax of 1e-10, where the routed code stays at its floor, so both are
the same function with another floor. A lane holds 16 columns, two lanes a group. Where FP4 weights become FP8
by bit tricks, the routed copy has the even columns of each eight first, the order in which those weights come
out."""

from __future__ import annotations

from typing import Any

import flydsl.expr as fx
from flydsl.expr import range_constexpr
from flydsl.expr.typing import Int32

from . import formats as fmt
from . import fp4, lanes, mailbox
from . import lowlevel as ll
from .build import Site, Tasks
from .context import Context, each, renew

COLUMNS = 16  # of a lane
WAVE_COLUMNS = 64 * COLUMNS


def xq(c: Context, tasks: Tasks, site: Site) -> None:
    """A token a task: NORMED to X8R / X8RS and X8 / X8S behind one flag."""
    if c.build.shape.hidden % WAVE_COLUMNS or c.build.shape.hidden > 8 * WAVE_COLUMNS:
        raise ValueError(f"xq: {c.build.shape.hidden} columns are no 1 to 8 waves of {WAVE_COLUMNS}")
    c = renew(c)
    each(c, tasks, lambda token: _token(c, site, token))


def _copy(c: Context, token: Any, data: int, codes: int, values: list[Any], code: Any, order: Any) -> None:
    """One MXFP8 copy: 16 bytes a lane, a code the pair of lanes."""
    hidden, by = c.build.shape.hidden, fmt.multiplier(code)
    words = [w for k in (0, 8) for w in _words(fmt.pack8([values[k + i] for i in order], by))]
    mailbox.store(c, data + token * hidden, c.tid * COLUMNS, fx.Vector.from_elements(words, Int32))
    _code(c, codes + token * (hidden // 8), code)


def _words(pair: Any) -> list[Any]:
    return [pair[0], pair[1]]


@ll.device
def _code(c: Context, region: Any, code: Any) -> None:
    if (c.tid & 1) == 0:
        mailbox.store(c, region, c.tid * 2, code)


@ll.device
def _token(c: Context, site: Site, token: Any) -> None:
    f, how, hidden = c.build.ffn.scratch, c.build.how, c.build.shape.hidden
    mailbox.await_flags(c, site, f.xrdy + token * 8, 1, 8)
    if c.wave < hidden // WAVE_COLUMNS:
        row = f.normed + token * (hidden * 2)
        loaded = [ll.buffer_load(c.scratch, c.tid * 32 + 16 * k, row, count=4) for k in range_constexpr(2)]
        words = [v[k] for v in loaded for k in range_constexpr(4)]
        values = fmt.unpack(words)
        top = lanes.pair_max(fmt.amax16(how, words, values))
        routed = fmt.scale_code(how, top, fmt.routed_floor(how))
        _copy(c, token, f.x8r, f.x8rs, values, routed, fp4.order_of(how))
        shared = fmt.scale_code(how, top, fmt.MX_FLOOR)
        _copy(c, token, f.x8, f.x8s, values, shared, range(8))
    mailbox.publish(c, f.x8rdy + token * 8, 1)
    fx.barrier()
