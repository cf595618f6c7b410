"""Weights of K2 and of the FFN launch on one rank, in the published form, and a layer of them from a seed.

Invariants
 - Names are the launch arguments'; bytes are OCP e4m3 or e2m1 pairs, codes E8M0, as the checkpoint has them.
 - Routed experts are asked for one at a time: a layer's are gigabytes, a step reads a few.
 - A rank's share is a slice of the published tensor: rows of wo_a, of gate and of up; columns of wo_b, of
   down, and of the shared down projection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from ..specs.schema import ModelSpec
from .draws import Draws
from .formats import F32
from .fp4 import fp4_magnitudes, fp4_values
from .layer_sizes import LayerSizes
from .weights import dequantise, magnitudes, random_gate, random_norm, without_nan


@dataclass(frozen=True)
class BackWeights:
    """Attention back; G groups of R rows and K columns, H heads, hidden size D."""

    woa: Tensor  # uint8 [G * R, K]
    woa_s: Tensor  # uint8 [G * R / 32, K / 32]
    wob: Tensor  # uint8 [D, G * R]
    wob_s: Tensor  # uint8 [D / 32, G * R / 32]
    sink: Tensor  # f32 [H], natural-log units
    block: int = 32

    def values(self, name: str) -> Tensor:
        """float64 of `woa` or `wob` (not kept: a rank's are hundreds of megabytes)."""
        return dequantise(getattr(self, name), getattr(self, f"{name}_s"), self.block)

    def magnitudes(self, name: str) -> Tensor:
        """float32 magnitudes of `woa` or `wob`, for error bounds."""
        return magnitudes(getattr(self, name), getattr(self, f"{name}_s"), self.block)

    def tensors(self) -> dict[str, Tensor]:
        """Name -> tensor in launch-argument order, the sink first."""
        return {name: getattr(self, name) for name in ("sink", "woa", "woa_s", "wob", "wob_s")}


@dataclass(frozen=True)
class Expert:
    """One routed expert's share of a rank: I columns of gate (w1), up (w3) and down (w2)."""

    w1: Tensor  # uint8 [I, D / 2]
    w1_s: Tensor  # uint8 [I, D / 32]
    w3: Tensor
    w3_s: Tensor
    w2: Tensor  # uint8 [D, I / 2]
    w2_s: Tensor  # uint8 [D, I / 32]

    def up_values(self) -> Tensor:
        """float32 [2 I, D]: gate rows, then up rows."""
        return torch.cat([fp4_values(self.w1, self.w1_s), fp4_values(self.w3, self.w3_s)])

    def up_magnitudes(self) -> Tensor:
        """float32 [2 I, D]."""
        return torch.cat([fp4_magnitudes(self.w1, self.w1_s), fp4_magnitudes(self.w3, self.w3_s)])

    def down_values(self) -> Tensor:
        """float32 [D, I]."""
        return fp4_values(self.w2, self.w2_s)

    def down_magnitudes(self) -> Tensor:
        """float32 [D, I]."""
        return fp4_magnitudes(self.w2, self.w2_s)

    def share(self, tp: int, rank: int) -> Expert:
        """A rank's part of a whole expert."""
        inter = self.w1.shape[0] // tp
        rows, first = slice(rank * inter, (rank + 1) * inter), rank * inter
        pairs = slice(first // 2, (first + inter) // 2)
        groups = slice(first // 32, (first + inter) // 32)
        return Expert(self.w1[rows], self.w1_s[rows], self.w3[rows], self.w3_s[rows],
                      self.w2[:, pairs].contiguous(), self.w2_s[:, groups].contiguous())  # fmt: skip


class Experts(Protocol):
    """Where a rank's routed experts come from."""

    def expert(self, number: int) -> Expert:
        """The rank's share of expert `number`."""


@dataclass(frozen=True)
class FfnWeights:
    """FFN half; E experts, hidden size D, streams C, shared columns I."""

    hc_fn: Tensor  # f32 [C * (C + 2), C * D]
    hc_scale: Tensor  # f32 [3]
    hc_base: Tensor  # f32 [C * (C + 2)]
    ffn_w: Tensor  # bf16 [D]
    gate_w: Tensor  # bf16 [E, D]
    bias: Tensor  # f32 [E]
    sgu: Tensor  # uint8 [2 I, D]: gate rows, then up rows
    sgu_s: Tensor  # uint8 [2 I / 32, D / 32]
    sw2: Tensor  # uint8 [D, I]
    sw2_s: Tensor  # uint8 [D / 32, I / 32]
    experts: Experts
    block: int = 32

    def values(self, name: str) -> Tensor:
        """float64 of `sgu` or `sw2`."""
        return dequantise(getattr(self, name), getattr(self, f"{name}_s"), self.block)

    def magnitudes(self, name: str) -> Tensor:
        """float32 magnitudes of `sgu` or `sw2`, for error bounds."""
        return magnitudes(getattr(self, name), getattr(self, f"{name}_s"), self.block)

    def tensors(self) -> dict[str, Tensor]:
        """Name -> tensor in launch-argument order, without the routed experts."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("experts", "block")}


def rank_rows(whole: Tensor, tp: int, rank: int) -> Tensor:
    """A rank's rows."""
    return whole.chunk(tp, 0)[rank]


def rank_columns(whole: Tensor, tp: int, rank: int) -> Tensor:
    """A rank's columns."""
    return whole.chunk(tp, 1)[rank].contiguous()


# ------------------------------------------------------------------ seeded


def skewed_codes(draws: Draws, codes: tuple[int, int], *shape: int) -> Tensor:
    """uint8 scale codes over a whole range, each value half as frequent as the one below it.

    Uniform codes would let a few blocks carry a whole row; so skewed, sums of a few thousand products of
    unit inputs come out near one, and a gate meets the limit in its tails as a trained one does.
    """
    low, high = codes
    word = draws.words(*shape)
    lowest = torch.frexp((word & -word).to(torch.float64)).exponent.to(torch.int64) - 1
    return (low + lowest.clamp(0, high - low)).to(torch.uint8)


def skewed_linear(
    draws: Draws, rows: int, columns: int, block: int, codes: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Bytes over the whole e4m3 range and skewed codes of an MXFP8 linear."""
    scale = skewed_codes(draws, codes, -(-rows // block), -(-columns // block))
    return without_nan(draws.octets(rows, columns)), scale


@dataclass(frozen=True)
class Layer:
    """Seeded tensors of one layer, each drawn on demand from (seed, layer, its own name)."""

    model: ModelSpec
    layer: int = 0
    seed: int = 0
    draft: bool = False

    def draws(self, key: str) -> Draws:
        """The stream of one tensor."""
        return Draws(self.seed, f"layer{self.layer}/{key}")

    @property
    def sizes(self) -> LayerSizes:
        """Sizes of the whole layer."""
        return LayerSizes.of(self.model, 1, self.draft)

    def linear(self, key: str, rows: int, columns: int) -> tuple[Tensor, Tensor]:
        """Bytes and codes of a whole MXFP8 linear."""
        quant = self.model.quantisation
        block = quant.weight_block[0]
        return skewed_linear(self.draws(key), rows, columns, block, quant.dense_code_range)

    def gate(self) -> tuple[Tensor, Tensor]:
        """gate_w and bias, with pairs of experts that tie exactly and are picked often."""
        sizes, draws = self.sizes, self.draws("gate")
        width = 1.2 * sizes.hidden**-0.5
        weight = (draws.normal(sizes.experts, sizes.hidden) * width).to(torch.bfloat16)
        bias = (0.1 * draws.normal(sizes.experts)).to(F32)
        for low, high in self.ties():
            weight[low] *= 2
            weight[high], bias[high] = weight[low], bias[low]
        return weight, bias

    def ties(self) -> list[tuple[int, int]]:
        """Experts (low, high) with equal router rows: the low id must win, whatever its place modulo 64."""
        experts = self.sizes.experts
        return [(1, 64), (3, experts - 2), (65, 66)] if experts >= 128 else [(1, experts // 2)]

    def whole_expert(self, number: int) -> Expert:
        """Expert `number`, not sliced."""
        sizes, draws = self.sizes, self.draws(f"expert{number}")
        codes, inter, hidden = self.model.quantisation.expert_code_range, sizes.inter, sizes.hidden
        data = [draws.octets(*shape) for shape in ((inter, hidden // 2),) * 2 + ((hidden, inter // 2),)]
        scale = [skewed_codes(draws, codes, t.shape[0], t.shape[1] // 16) for t in data]
        return Expert(data[0], scale[0], data[1], scale[1], data[2], scale[2])

    def back(self, tp: int, rank: int) -> BackWeights:
        """Attention back of a rank."""
        sizes = self.sizes
        woa = self.linear("wo_a", sizes.o_rows, sizes.group_k)
        wob = self.linear("wo_b", sizes.hidden, sizes.o_rows)
        sink = self.draws("sink").normal(sizes.heads).to(F32)
        wa, wa_s = (rank_rows(t, tp, rank) for t in woa)
        wb, wb_s = (rank_columns(t, tp, rank) for t in wob)
        return BackWeights(wa, wa_s, wb, wb_s, rank_rows(sink, tp, rank), sizes.weight_block)

    def ffn(self, tp: int, rank: int) -> FfnWeights:
        """FFN half of a rank."""
        sizes = self.sizes
        gate, up = (self.linear(k, sizes.shared_inter, sizes.hidden) for k in ("shared_w1", "shared_w3"))
        down = self.linear("shared_w2", sizes.hidden, sizes.shared_inter)
        sgu, sgu_s = (
            torch.cat([rank_rows(g, tp, rank), rank_rows(u, tp, rank)]) for g, u in zip(gate, up, strict=True)
        )
        sw2, sw2_s = (rank_columns(t, tp, rank) for t in down)
        fn, scale, base = random_gate(self.draws("hc_ffn"), sizes)
        gate_w, bias = self.gate()
        return FfnWeights(
            hc_fn=fn, hc_scale=scale, hc_base=base, gate_w=gate_w, bias=bias, sgu=sgu, sgu_s=sgu_s, sw2=sw2,
            sw2_s=sw2_s, ffn_w=random_norm(self.draws("ffn_norm"), sizes.hidden),
            experts=SeededExperts(self, tp, rank), block=sizes.weight_block,
        )  # fmt: skip


class SeededExperts:
    """A rank's experts of a seeded layer; the last few stay in memory, shared by the ranks of a layer."""

    def __init__(self, layer: Layer, tp: int, rank: int) -> None:
        self.layer, self.tp, self.rank = layer, tp, rank

    def expert(self, number: int) -> Expert:
        """The rank's share of expert `number`."""
        if not 0 <= number < self.layer.sizes.experts:
            raise ValueError(f"expert {number}: the layer has experts 0 .. {self.layer.sizes.experts - 1}")
        return _whole(self.layer)(number).share(self.tp, self.rank)


_KEPT: dict[str, Callable[[int], Expert]] = {}


def _whole(layer: Layer) -> Callable[[int], Expert]:
    """A small cache of whole experts, one a layer (the model spec itself cannot be hashed)."""
    key = f"{layer.model.model_dump_json()}/{layer.layer}/{layer.seed}/{layer.draft}"
    if key not in _KEPT:
        _KEPT.clear()  # one layer at a time: a chain goes from layer to layer
        _KEPT[key] = lru_cache(maxsize=8)(layer.whole_expert)
    return _KEPT[key]
