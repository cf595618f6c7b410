"""Route: a token's experts in selection order and their weights (FFN math 3.2, with our own rules for ties
and NaN).

One wave has the token: lane l owns the experts l, l + 64, ... A biased score becomes an integer key of the
same order; NaN becomes the key of -inf, so it never wins against a number. A round takes the largest key of
the wave; of equal keys the lowest expert wins: the first list with a holder, in it the lowest lane. A taken
expert's key falls below every score."""

from __future__ import annotations

from typing import Any

import flydsl.expr as fx
from flydsl.expr import range_constexpr
from flydsl.expr.typing import Float32, Int32

from . import lanes, mailbox
from . import lowlevel as ll
from .build import Site, Tasks
from .context import WAVE, Context, each, renew
from .seam_gate import LOG2E

LN2 = 0.6931471805599453
LINEAR = 20.0  # softplus is the identity above
WEIGHT_FLOOR = 1e-20  # under the sum of a token's weights
_MINUS_INF = -0x7F800001  # key of -inf
_TAKEN = -(2**31)


def route(c: Context, tasks: Tasks, site: Site, bias: Any) -> None:
    """A token a task: LOGIT pairs to every copy of ROUTE: ids, then weights, of its experts."""
    c = renew(c)
    each(c, tasks, lambda token: _task(c, site, token, bias))


@ll.device
def _task(c: Context, site: Site, token: Any, bias: Any) -> None:
    if c.wave == 0:
        _token(c, site, token, bias)


def _logits(c: Context, site: Site, token: Any, lists: int) -> list[Any]:
    """The lane's logits: K parts added in order from 0."""
    mix = c.build.ffn.mix
    region = c.build.ffn.scratch.logit + token * (mix.experts * mix.router_parts * 8)
    at = c.lane * (mix.router_parts * 8)
    spots = [
        (region, at + i * (WAVE * mix.router_parts * 8) + 16 * k, 2)
        for i in range(lists)
        for k in range(mix.router_parts // 2)
    ]
    words = mailbox.poll(c, site, spots)
    out = []
    for i in range(lists):
        total = Float32(0.0)
        for word in words[i * mix.router_parts : (i + 1) * mix.router_parts]:
            total = total + word.bitcast(Float32)
        out.append(total)
    return out


def _root(x: Any) -> Any:
    """The square root, correctly rounded: the hardware's, moved by a last place where the residual says
    so."""
    s = ll.sqrt(x)
    bits = s.bitcast(Int32)
    below, above = (bits - 1).bitcast(Float32), (bits + 1).bitcast(Float32)
    low = ll.fma(-below, s, x) <= Float32(0.0)
    high = ll.fma(-above, s, x) > Float32(0.0)
    return high.select(above, low.select(below, s))


def _score(x: Any) -> Any:
    """sqrt(softplus(x)) as fp32 forms it: small scores become 0."""
    soft = ll.log2(Float32(1.0) + ll.exp2(x * Float32(LOG2E))) * Float32(LN2)
    return _root((x > Float32(LINEAR)).select(x, soft))


def _key(v: Any) -> Any:
    """An integer in the order of v; NaN as -inf."""
    bits = v.bitcast(Int32)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (v == v).select(ordered, Int32(_MINUS_INF))


def _holder(keys: list[Any], top: Any) -> Any:
    """The lowest expert whose key is ``top`` (some lane has it)."""
    best = Int32(0)
    for i in reversed(range(len(keys))):
        mask = ll.ballot(keys[i] == top)
        best = (mask != fx.Int64(0)).select(ll.lowest_bit(mask) + WAVE * i, best)
    return best


@ll.device
def _token(c: Context, site: Site, token: Any, bias: Any) -> None:
    mix = c.build.ffn.mix
    lists, k = mix.experts // WAVE, mix.per_token
    biases = [ll.global_load(bias, c.lane * 4 + i * (WAVE * 4), Float32) for i in range_constexpr(lists)]
    scores = [_score(x) for x in _logits(c, site, token, lists)]
    keys = [_key(s + b) for s, b in zip(scores, biases, strict=True)]
    chosen, weight, total = Int32(0), Float32(0.0), Float32(0.0)
    for turn in range(0, k, 1, unroll=1):  # type: ignore[call-overload]
        top = keys[0]
        for key in keys[1:]:
            top = fx.max(top, key)
        expert = _holder(keys, lanes.wave_max(top))
        held = Float32(0.0)
        for i in range_constexpr(lists):
            mine = c.lane + WAVE * i == expert
            held = mine.select(scores[i], held)
            keys[i] = mine.select(Int32(_TAKEN), keys[i])
        taken = ll.read_word(held.bitcast(Int32), expert & (WAVE - 1)).bitcast(Float32)
        taken = (taken == taken).select(taken, Float32(0.0))
        total = total + taken
        here = c.lane == Int32(turn)
        chosen = here.select(expert, chosen)
        weight = here.select(taken, weight)
    scale = Float32(mix.routed_scale) / fx.max(total, Float32(WEIGHT_FLOOR))
    weight = weight * scale
    if c.lane < k:
        _put(c, token, chosen, weight)


def _put(c: Context, token: Any, chosen: Any, weight: Any) -> None:
    mix = c.build.ffn.mix
    row = c.build.ffn.scratch.route + token * (mix.per_token * 16)
    for copy in range(mix.copies):
        at = row + copy * (mix.picks(c.build.shape.rows) * 16)
        mailbox.put(c, at, c.lane * 8, chosen)
        mailbox.put(c, at, c.lane * 8 + mix.per_token * 8, weight.bitcast(Int32))
