"""The router: logits, scores, selection and weights of the experts of a token.

Our own definitions where the public code is loose (FFN math 3.2): of equal scores the lowest expert id wins
(there: the lowest id modulo 64, then the order of a sorting network), and a NaN score never wins against a
number (there: it takes the place of the first lane's head). A token whose scores are all NaN takes experts
0, 1, ... with weight 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from . import f32
from .formats import F32, F64
from .layer_sizes import LayerOrder, LayerSizes

THRESHOLD = 20.0  # softplus is the identity above
LN2 = 0.6931471805599453
FLOOR = 1e-20  # under the sum of a token's weights


@dataclass(frozen=True)
class Routing:
    """Experts of every token in selection order, and their weights."""

    ids: Tensor  # int32 [S, K]
    weights: Tensor  # [S, K]


def logit_parts_exact(y: Tensor, gate_w: Tensor, order: LayerOrder) -> tuple[Tensor, Tensor]:
    """float64 [parts, S, E] shares of the K range, and sums of magnitudes."""
    shape = (order.router_parts, -1)
    xs = torch.unflatten(y.to(F64), -1, shape).transpose(0, 1)
    ws = torch.unflatten(gate_w.to(F64), -1, shape).permute(1, 2, 0)
    return torch.bmm(xs, ws), torch.bmm(xs.abs(), ws.abs())


def logit_parts(y: Tensor, gate_w: Tensor, order: LayerOrder) -> Tensor:
    """float32 [parts, S, E]: a wave takes every eighth step of a part, bf16_k columns an MFMA."""
    out = []
    shares = (v.to(F64).chunk(order.router_parts, -1) for v in (y, gate_w))
    for xs, ws in zip(*shares, strict=True):
        total = torch.zeros(xs.shape[0], ws.shape[0], dtype=F32)
        for wave in range(order.waves):
            acc = torch.zeros_like(total)
            for at in range(wave * order.router_k, xs.shape[1], order.waves * order.router_k):
                for k in range(at, at + order.router_k, order.bf16_k):
                    step = slice(k, k + order.bf16_k)
                    acc = (acc.to(F64) + xs[:, step] @ ws[:, step].T).to(F32)
            total = total + acc
        out.append(total)
    return torch.stack(out)


def logits(parts: Tensor) -> Tensor:
    """The consumer's sum of the parts in order, [S, E]."""
    return f32.ordered_sum(parts, 0)


def score_exact(x: Tensor) -> Tensor:
    """sqrt(softplus) in float64."""
    return torch.where(x > THRESHOLD, x, torch.log1p(torch.exp(x.clamp_max(THRESHOLD)))).sqrt()


def score(x: Tensor) -> Tensor:
    """The same in float32 as kernels form it: log2(1 + exp2(.)), so that small scores become 0."""
    soft = f32.log2(1 + f32.exp2(x * f32.LOG2E)) * torch.tensor(LN2, dtype=F32)
    return torch.where(x > THRESHOLD, x, soft).sqrt()


def ranked(biased: Tensor) -> Tensor:
    """Expert ids [S, E] by descending biased score; NaN last, equal scores by ascending id."""
    value = torch.where(torch.isnan(biased), -torch.inf, biased)
    return torch.sort(value, dim=-1, descending=True, stable=True).indices


def select(x: Tensor, bias: Tensor, sizes: LayerSizes, exact: bool) -> Routing:
    """Experts and weights from logits [S, E]."""
    s = score_exact(x.to(F64)) if exact else score(x)
    ids = ranked(s + bias.to(s.dtype))[:, : sizes.picks]
    return Routing(ids.to(torch.int32), weights_of(s, ids, sizes))


def weights_of(s: Tensor, ids: Tensor, sizes: LayerSizes) -> Tensor:
    """Renormalised, scaled weights [S, K] of chosen experts from unbiased scores [S, E]."""
    chosen = torch.nan_to_num(s, nan=0.0).gather(-1, ids.to(torch.int64))
    total = f32.ordered_sum(chosen, -1)
    return chosen * (sizes.routed_scale / total.clamp_min(FLOOR))[:, None]
