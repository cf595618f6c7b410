"""What a routed gate/up task makes of its sums: limited SwiGLU, bf16, MXFP8 by the routed rule (FFN math
4.4).

Thirty-two lanes have a group of a pick, a lane one column; the K slices' sums are added pairwise. Four
neighbouring lanes give a word of MID, so where FP4 weights become FNUZ bytes a quad's columns are the even or
the odd ones of eight."""

from __future__ import annotations

from typing import Any

import flydsl.expr as fx
from flydsl.expr import const_expr
from flydsl.expr.typing import Float32, Int32

from . import formats as fmt
from . import fp4, lanes, mailbox
from . import lowlevel as ll
from .context import Context
from .seam_gate import LOG2E
from .ug_map import GROUP, STEP, map_of


def _column(c: Context) -> Any:
    """The lane's column of a group: four lanes give a word of MID."""
    lane = c.lane & 31
    if fp4.is_native(c.build.how):
        return lane
    return (lane & 24) | ((lane & 3) << 1) | ((lane >> 2) & 1)


def _sums(c: Context, p: Any, j: Any) -> tuple[Any, Any]:
    """(gate, up) of pick ``j`` in the lane's column of group ``p``, K slices added pairwise."""
    i, q = _column(c), map_of(c.build).slices
    native = fp4.is_native(c.build.how)
    row = i & 15 if native else (i & 7) * 2
    spot = (
        ((p << 1) | (i >> 4)) * (q * 2048) + (row >> 2) * 256 + j * 16 + (row & 3) * 4 + c.build.ffn.lds.red
    )
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
def activate(c: Context, part: Any, count: Any, position: Any, first: int) -> None:
    """Groups of picks ``first`` .. + 15 of the task, half a wave each.

    Lanes without a pick repeat another's work up to the stores: lane exchanges need a whole wave.
    """
    f, how, held = c.build.ffn, c.build.how, map_of(c.build).held
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
