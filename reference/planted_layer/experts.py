"""Planted bugs of the shared and the routed experts, and of the sums behind them."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from .. import experts as routed
from .. import shared
from ..experts import Picks
from ..ffn import Ffn
from ..formats import F32
from ..fp4 import fp4_values
from ..layer_weights import Expert
from ..quant import Blocks, mxfp8, mxfp8_routed
from ..router import Routing
from .registry import Bench, many_ranks, planted

BF16 = torch.bfloat16


# ------------------------------------------------------------------ shared expert


@planted("ffn.shared.smid", "gate and up of the shared expert are exchanged")
class SharedSwapped(Ffn):
    def smid(self, rank: int, x8: Blocks) -> Tensor:
        y = shared.gemv(x8.values(), self.weights[rank].values("sgu"), self.order).to(BF16)
        up, gate = y.chunk(2, -1)
        return shared.activation(gate, up, self.sizes.limit)


@planted("ffn.shared.smid", "gate and up of the shared expert are not rounded to bf16")
class SharedUnrounded(Ffn):
    def smid(self, rank: int, x8: Blocks) -> Tensor:
        gate, up = shared.gemv(x8.values(), self.weights[rank].values("sgu"), self.order).chunk(2, -1)
        return routed.activation(gate, up, self.sizes.limit)


@planted("ffn.shared.smc", "the shared expert's activation has the routed floor",
         lambda bench: bool((bench.case.res_in == 0).flatten(1).all(-1).any()))  # fmt: skip
class SharedRoutedRule(Ffn):
    def sm(self, smid: Tensor) -> Blocks:
        return mxfp8_routed(smid, self.sizes.group, self.flavour)


@planted("ffn.shared.smq", "bytes of neighbouring groups are exchanged")
class SharedGroupsSwapped(Ffn):
    def sm(self, smid: Tensor) -> Blocks:
        right = super().sm(smid)
        groups = torch.unflatten(right.data, -1, (-1, 2, self.sizes.group)).flip(-2).flatten(-3)
        return replace(right, data=groups.contiguous())


# ------------------------------------------------------------------ routed gate and up


class _Altered(Ffn):
    """Gate and up from an altered expert."""

    def altered(self, expert: Expert) -> Expert:
        raise NotImplementedError

    def up(self, rank: int, expert: int, x: Tensor) -> Tensor:
        own = self.altered(self.weights[rank].experts.expert(expert))
        return routed.up_gemv(x, own.up_values(), self.order)


@planted("ffn.ug.mid", "gate and up are exchanged")
class GateUpSwapped(_Altered):
    def altered(self, expert: Expert) -> Expert:
        return replace(expert, w1=expert.w3, w1_s=expert.w3_s, w3=expert.w1, w3_s=expert.w1_s)


@planted("ffn.ug.mid", "the nibbles of a byte are exchanged")
class NibblesSwapped(_Altered):
    def altered(self, expert: Expert) -> Expert:
        return replace(expert, w1=expert.w1 >> 4 | expert.w1 << 4, w3=expert.w3 >> 4 | expert.w3 << 4)


@planted("ffn.ug.mid", "a block has the scale of its neighbour")
class BlockScaleNext(_Altered):
    def altered(self, expert: Expert) -> Expert:
        return replace(expert, w1_s=expert.w1_s.roll(1, 1))


@planted("ffn.ug.mid", "one K block of 32 is left out")
class UpBlockLost(_Altered):
    def altered(self, expert: Expert) -> Expert:
        w3 = expert.w3.clone()
        w3[:, :16] = 0
        return replace(expert, w3=w3)


@planted("ffn.ug.mid", "the router weight is multiplied before the activation")
class WeightedEarly(Ffn):
    def mids(self, x8r: Blocks, routing: Routing) -> tuple[Blocks, ...]:
        self._weight = routing.weights.flatten()[Picks(routing.ids).order]
        self._at = [0] * len(self.weights)
        return super().mids(x8r, routing)

    def up(self, rank: int, expert: int, x: Tensor) -> Tensor:
        first = self._at[rank]
        self._at[rank] += len(x)
        return super().up(rank, expert, x) * self._weight[first : first + len(x), None].to(F32)


@planted("ffn.ug.mid", "gate and up are not limited")
class LimitMissing(Ffn):
    def activation(self, gate: Tensor, up: Tensor) -> Tensor:
        return routed.activation(gate, up, 1e30)


@planted("ffn.ug.mid", "the gate is limited from below too")
class GateLimitedBelow(Ffn):
    def activation(self, gate: Tensor, up: Tensor) -> Tensor:
        return super().activation(gate.clamp_min(-2.0), up)


def _ragged(bench: Bench) -> bool:
    """More picks than one tile of every expert holds: some expert has two."""
    return bench.case.rows * bench.sizes.picks > bench.order.pick_tile * bench.sizes.experts


@planted("ffn.ug.mid", "the second pass of a ragged tile is skipped", _ragged)
class RaggedPassSkipped(Ffn):
    def up(self, rank: int, expert: int, x: Tensor) -> Tensor:
        right = super().up(rank, expert, x)
        right[self.order.pick_tile :] = 0.0
        return right


@planted("ffn.ug.mids", "codes have the floor of the shared expert and are one too high")
class MidCodesHigh(Ffn):
    def mid(self, h: Tensor) -> Blocks:
        right = mxfp8(h, self.sizes.group, self.flavour)
        return replace(right, codes=(right.codes + 1).clamp_max(254))


# ------------------------------------------------------------------ down and sums


@planted("ffn.down.ffn", "one expert is dropped")
class ExpertDropped(Ffn):
    def partial(self, v: Tensor, routing: Routing, shared_out: Tensor) -> Tensor:
        short = Routing(routing.ids[:, :-1], routing.weights[:, :-1])
        return super().partial(v[:, :-1], short, shared_out)


@planted("ffn.down.ffn", "picks are added in ascending expert order instead of selection order")
class AddedById(Ffn):
    def partial(self, v: Tensor, routing: Routing, shared_out: Tensor) -> Tensor:
        at = torch.argsort(routing.ids, -1)
        moved = v.gather(1, at[..., None].expand_as(v))
        sorted_ = Routing(routing.ids.gather(1, at), routing.weights.gather(1, at))
        return super().partial(moved, sorted_, shared_out)


@planted("ffn.down.ffn", "sums are kept in float32 over the picks")
class ChainUnrounded(Ffn):
    def partial(self, v: Tensor, routing: Routing, shared_out: Tensor) -> Tensor:
        total = (v.to(F32) * routing.weights[..., None]).sum(1)
        return (total + shared_out.to(F32)).to(BF16)


@planted("ffn.down.ffn", "the factor 1.5 is applied to the shared expert too")
class SharedScaled(Ffn):
    def partial(self, v: Tensor, routing: Routing, shared_out: Tensor) -> Tensor:
        return super().partial(v, routing, (shared_out.to(F32) * self.sizes.routed_scale).to(BF16))


@planted("ffn.down.ffn", "a down block has the scale of its neighbour")
class DownScaleNext(Ffn):
    def down(self, rank: int, expert: int, h: Tensor) -> Tensor:
        own = self.weights[rank].experts.expert(expert)
        return routed.down_gemv(h, fp4_values(own.w2, own.w2_s.roll(1, 0)), self.order)


@planted("ffn.down.ffn", "the shared expert's output is not rounded to bf16 on its own")
class SharedDownUnrounded(Ffn):
    def shared_down(self, rank: int, sm: Blocks) -> Tensor:
        return shared.gemv(sm.values(), self.weights[rank].values("sw2"), self.order)


@planted("ffn.reduce.out", "the sum is rounded to bf16 after every rank", many_ranks)
class OutRoundedEveryRank(Ffn):
    def out(self, partials: Tensor) -> Tensor:
        total = partials[0]
        for part in partials[1:]:
            total = (total.to(F32) + part.to(F32)).to(BF16)
        return total


@planted("ffn.reduce.out", "one rank's partial is left out")
class RankLost(Ffn):
    def out(self, partials: Tensor) -> Tensor:
        return super().out(partials[:-1])
