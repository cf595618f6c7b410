"""Weights of K2 and of the FFN launch on one rank, in the published form, and a layer of them from a seed.

Invariants
 - Names are the launch arguments'; bytes are OCP e4m3 or e2m1 pairs, codes E8M0, as the checkpoint has them.
 - Routed experts are asked for one at a time: a layer's are gigabytes, a step reads a few.
 - A rank's share is a slice of the published tensor: rows of wo_a, of gate and of up; columns of wo_b, of
   down, and of the shared down projection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from typing import Protocol

import torch
from torch import Tensor

from ..specs.schema import ModelSpec
from .draws import Draws
from .formats import F32, table_take
from .fp4 import fp4_magnitudes, fp4_values
from .layer_sizes import LayerSizes
from .weights import K1Weights, dequantise, magnitudes, random_gate, random_norm, without_nan


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
        return fp4_values(torch.cat([self.w1, self.w3]), torch.cat([self.w1_s, self.w3_s]))

    def up_magnitudes(self) -> Tensor:
        """float32 [2 I, D]."""
        return fp4_magnitudes(torch.cat([self.w1, self.w3]), torch.cat([self.w1_s, self.w3_s]))

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


# ------------------------------------------------------------------ seeded


def peaked_codes(draws: Draws, codes: tuple[int, int], *shape: int) -> Tensor:
    """uint8 scale codes of a range: most just under its middle, a quarter anywhere below, few above.

    A code above is an eighth as frequent as the one under it: were they uniform, a few blocks would carry
    every row. So sums of a few thousand products of unit inputs come out a few units wide, and a gate meets
    the limit in its tails, as a trained one does.
    """
    middle, most, up, down = _code_tables(*codes)
    half = draws.words(*shape).view(torch.int32)
    tail = half[..., ::2] & ((1 << 3 * most) - 1)
    lowest = (tail & -tail).to(F32).view(torch.int32) >> 23  # its exponent, biased by 127; 0 if no bit is set
    above, spread = table_take(up, lowest.to(torch.uint8)), (half[..., 1::2] >> 8) & 0xFFFF
    return torch.where(above > 0, middle + above, middle - table_take(down, spread))


@cache
def _code_tables(low: int, high: int) -> tuple[int, int, Tensor, Tensor]:
    """The middle code, most steps above it, those by a word's lowest bit, and steps below it by 16 bits."""
    middle, bits, exponent = (low + high) // 2 - 1, torch.arange(1 << 16), torch.arange(256)
    most = min(high - middle, 10)  # an int32 has no more threes of bits
    above = torch.where(exponent == 0, most, (exponent - 127).clamp_min(0) // 3)
    below = torch.where(bits & 3 == 0, (bits >> 2) % (middle - low + 1), 0)
    return middle, most, above.to(torch.uint8), below.to(torch.uint8)


def peaked_linear(
    draws: Draws, rows: int, columns: int, block: int, codes: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Bytes over the whole e4m3 range and peaked codes of an MXFP8 linear."""
    scale = peaked_codes(draws, codes, -(-rows // block), -(-columns // block))
    return without_nan(draws.octets(rows, columns)), scale


def _linear_keys(sizes: LayerSizes) -> dict[str, tuple[int, int]]:
    """Whole MXFP8 linears of a layer: key -> (rows, columns)."""
    return {
        "wq_a": (sizes.q_rank, sizes.hidden),
        "wkv": (sizes.kv_dim, sizes.hidden),
        "wqb": (sizes.q_rows, sizes.q_rank),
        "woa": (sizes.o_rows, sizes.group_k),
        "wob": (sizes.hidden, sizes.o_rows),
        "sw1": (sizes.shared_inter, sizes.hidden),
        "sw3": (sizes.shared_inter, sizes.hidden),
        "sw2": (sizes.hidden, sizes.shared_inter),
    }


def tied_experts(experts: int) -> list[tuple[int, int]]:
    """Experts (low, high) with equal router rows: the low id must win, whatever its place modulo 64."""
    return [(1, 64), (3, experts - 2), (65, 66)] if experts >= 128 else [(1, experts // 2)]


class SeededTensors:
    """Published tensors of one layer, each drawn from (seed, layer, its own key)."""

    def __init__(self, model: ModelSpec, layer: int, seed: int) -> None:
        self.model, self.layer, self.seed = model, layer, seed
        self.sizes = LayerSizes.of(model, 1, is_draft(model, layer))

    def draws(self, key: str) -> Draws:
        """The stream of one tensor."""
        return Draws(self.seed, f"layer{self.layer}/{key}")

    def dense(self) -> dict[str, Tensor]:
        """Key -> whole tensor of everything but the routed experts."""
        quant, sizes = self.model.quantisation, self.sizes
        out: dict[str, Tensor] = {}
        for key, (rows, columns) in _linear_keys(sizes).items():
            pair = peaked_linear(
                self.draws(key), rows, columns, quant.weight_block[0], quant.dense_code_range
            )
            out[key], out[f"{key}_s"] = pair
        for key in ("hc", "hc_ffn"):
            names = (f"{key}_fn", f"{key}_scale", f"{key}_base")
            out |= dict(zip(names, random_gate(self.draws(key), sizes), strict=True))
        widths = {"attn_w": sizes.hidden, "qn_w": sizes.q_rank, "kvn_w": sizes.kv_dim, "ffn_w": sizes.hidden}
        out |= {key: random_norm(self.draws(key), width) for key, width in widths.items()}
        out["sink"] = self.draws("sink").normal(sizes.heads).to(F32)
        out["gate_w"], out["bias"] = self._gate()
        return out

    def _gate(self) -> tuple[Tensor, Tensor]:
        """Router weights, with pairs of experts that tie exactly and are picked often."""
        sizes, draws = self.sizes, self.draws("gate")
        width = 1.2 * sizes.hidden**-0.5
        weight = (draws.normal(sizes.experts, sizes.hidden) * width).to(torch.bfloat16)
        bias = (0.1 * draws.normal(sizes.experts)).to(F32)
        for low, high in tied_experts(sizes.experts):
            weight[low] *= 2
            weight[high], bias[high] = weight[low], bias[low]
        return weight, bias

    def expert(self, number: int) -> Expert:
        """Expert `number`, whole."""
        sizes, draws = self.sizes, self.draws(f"expert{number}")
        if not 0 <= number < sizes.experts:
            raise ValueError(f"expert {number}: the layer has experts 0 .. {sizes.experts - 1}")
        codes, inter, hidden = self.model.quantisation.expert_code_range, sizes.inter, sizes.hidden
        data = [draws.octets(*shape) for shape in ((inter, hidden // 2),) * 2 + ((hidden, inter // 2),)]
        scale = [peaked_codes(draws, codes, t.shape[0], t.shape[1] // 16) for t in data]
        return Expert(data[0], scale[0], data[1], scale[1], data[2], scale[2])


# ------------------------------------------------------------------ a layer's shares


KEPT_EXPERTS, FEW_EXPERTS = 100, 4


class WholeLayer:
    """Published tensors of one layer and the ranks' shares of them.

    `dense` holds whole tensors by key; `expert` gives one whole routed expert. The last ones are kept, since
    ranks and stages ask for the same ones in turn: a step of 17 rows selects about 90, of 19 MB each.
    """

    def __init__(
        self,
        model: ModelSpec,
        layer: int,
        dense: Mapping[str, Tensor],
        expert: Callable[[int], Expert],
    ) -> None:
        self.model, self.layer, self.dense = model, layer, dense
        self._fetch = expert
        self.keep_experts(KEPT_EXPERTS)
        self.block = model.quantisation.weight_block[0]

    def keep_experts(self, count: int) -> None:
        """Keep what a step of `count` experts uses again: all, or of too many the last few (every loop
        over experts has the ranks inside). Those kept until now are given back."""
        self.expert = lru_cache(maxsize=count if count <= KEPT_EXPERTS else FEW_EXPERTS)(self._fetch)

    @property
    def draft(self) -> bool:
        """A draft layer: fewer experts, fewer picks."""
        return is_draft(self.model, self.layer)

    def sizes(self, tp: int) -> LayerSizes:
        """Sizes of the layer on one of `tp` ranks."""
        return LayerSizes.of(self.model, tp, self.draft)

    def _rows(self, key: str, tp: int, rank: int) -> tuple[Tensor, Tensor]:
        data, codes = self.dense[key], self.dense[f"{key}_s"]
        return data.chunk(tp, 0)[rank], codes.chunk(tp, 0)[rank]

    def _columns(self, key: str, tp: int, rank: int) -> tuple[Tensor, Tensor]:
        data, codes = self.dense[key], self.dense[f"{key}_s"]
        return data.chunk(tp, 1)[rank].contiguous(), codes.chunk(tp, 1)[rank].contiguous()

    def _stacked(self, first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return torch.cat([first[0], second[0]]), torch.cat([first[1], second[1]])

    def k1(self, tp: int, rank: int) -> K1Weights:
        """K1's weights of a rank."""
        wqkv, wqkv_s = self._stacked(self._rows("wq_a", 1, 0), self._rows("wkv", 1, 0))
        wqb, wqb_s = self._rows("wqb", tp, rank)
        same = {key: self.dense[key] for key in ("hc_fn", "hc_scale", "hc_base", "attn_w", "qn_w", "kvn_w")}
        return K1Weights(**same, wqkv=wqkv, wqkv_s=wqkv_s, wqb=wqb, wqb_s=wqb_s, block=self.block)

    def back(self, tp: int, rank: int) -> BackWeights:
        """The attention back's weights of a rank."""
        woa, woa_s = self._rows("woa", tp, rank)
        wob, wob_s = self._columns("wob", tp, rank)
        return BackWeights(woa, woa_s, wob, wob_s, self.dense["sink"].chunk(tp)[rank], self.block)

    def ffn(self, tp: int, rank: int) -> FfnWeights:
        """The FFN half's weights of a rank."""
        sgu, sgu_s = self._stacked(self._rows("sw1", tp, rank), self._rows("sw3", tp, rank))
        sw2, sw2_s = self._columns("sw2", tp, rank)
        dense = self.dense
        return FfnWeights(
            hc_fn=dense["hc_ffn_fn"], hc_scale=dense["hc_ffn_scale"], hc_base=dense["hc_ffn_base"],
            ffn_w=dense["ffn_w"], gate_w=dense["gate_w"], bias=dense["bias"], sgu=sgu, sgu_s=sgu_s, sw2=sw2,
            sw2_s=sw2_s, experts=RankExperts(self, tp, rank), block=self.block,
        )  # fmt: skip


class RankExperts:
    """A rank's shares of a layer's routed experts."""

    def __init__(self, layer: WholeLayer, tp: int, rank: int) -> None:
        self.layer, self.tp, self.rank = layer, tp, rank

    def expert(self, number: int) -> Expert:
        """The rank's share of expert `number`."""
        return self.layer.expert(number).share(self.tp, self.rank)


def is_draft(model: ModelSpec, layer: int) -> bool:
    """Whether `layer` is one of the draft layers, which are numbered after the backbone."""
    return layer >= model.topology.layers


def seeded_layer(model: ModelSpec, layer: int = 3, seed: int = 0) -> WholeLayer:
    """A layer's weights from a seed: dense ones drawn now, experts when they are asked for."""
    tensors = SeededTensors(model, layer, seed)
    return WholeLayer(model, layer, tensors.dense(), tensors.expert)
