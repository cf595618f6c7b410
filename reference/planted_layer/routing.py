"""Planted bugs of the router and of selection."""

from __future__ import annotations

import torch
from torch import Tensor

from .. import router
from ..ffn import Ffn
from ..formats import F32
from ..router import Routing
from .registry import planted


@planted("ffn.router.logit", "one wave's share of a part is lost")
class RouterWaveLost(Ffn):
    def logit(self, normed: Tensor) -> Tensor:
        short = torch.unflatten(normed.clone(), -1, (self.order.router_parts, -1))
        short[:, 1, : self.order.router_k] = 0
        right = super().logit(normed)
        right[1] = super().logit(short.flatten(1))[1]
        return right


@planted("ffn.router.logit", "logits are rounded to bf16")
class LogitsRounded(Ffn):
    def logit(self, normed: Tensor) -> Tensor:
        return super().logit(normed).to(torch.bfloat16).to(F32)


class _Selected(Ffn):
    """Selection by another rule; weights of whatever is chosen."""

    def order_of(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def route(self, parts: Tensor) -> Routing:
        x = router.logits(parts)
        ids = self.order_of(x)[:, : self.sizes.picks]
        return Routing(ids.to(torch.int32), router.weights_of(router.score(x), ids, self.sizes))


@planted("ffn.route.ids", "the bias does not take part in the selection")
class BiasMissing(_Selected):
    def order_of(self, x: Tensor) -> Tensor:
        return router.ranked(router.score(x))


@planted("ffn.route.ids", "the second best is taken first")
class FirstTwoSwapped(_Selected):
    def order_of(self, x: Tensor) -> Tensor:
        ids = router.ranked(router.score(x) + self.weights[0].bias)
        return torch.cat([ids[:, 1:2], ids[:, :1], ids[:, 2:]], -1)


@planted("ffn.route.ties", "of equal scores the lowest id modulo 64 wins")
class TiesByLane(_Selected):
    def order_of(self, x: Tensor) -> Tensor:
        v = router.score(x) + self.weights[0].bias
        lanes = torch.argsort(torch.arange(v.shape[1]) % 64, stable=True)
        return lanes[router.ranked(v[:, lanes])]


@planted("ffn.route.weights", "biased scores are the weights")
class BiasedWeights(Ffn):
    def route(self, parts: Tensor) -> Routing:
        right = super().route(parts)
        v = router.score(router.logits(parts)) + self.weights[0].bias
        return Routing(right.ids, router.weights_of(v, right.ids, self.sizes))


@planted("ffn.route.weights", "weights are not renormalised")
class NotRenormalised(Ffn):
    def route(self, parts: Tensor) -> Routing:
        right = super().route(parts)
        s = router.score(router.logits(parts)).gather(-1, right.ids.to(torch.int64))
        return Routing(right.ids, s * self.sizes.routed_scale)


@planted("ffn.route.weights", "the factor 1.5 is left out")
class ScaleMissing(Ffn):
    def route(self, parts: Tensor) -> Routing:
        right = super().route(parts)
        return Routing(right.ids, right.weights / self.sizes.routed_scale)
