"""A decoder layer as two launches on all ranks, and what one layer or step hands to the next.

K1 runs once a rank; its seam, norms and records are the same on every rank, so only the queries are evaluated
again. In a kv source layer the compressor writes the step's records between the launches. A chain of layers
shares the step's metadata: rows, positions, lists; every layer has its own window cache and weights, and
layers of one kv source share its compressed cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from .compressor import Arrivals, CompressorWeights, insert
from .draws import Draws
from .ffn import FfnOutputs
from .formats import F32
from .k1 import K1, Form, K1Outputs
from .k2 import K2, K2Case, K2Outputs
from .layer_case import AfterSeam, LayerCase, fill, kv_source, window_positions
from .layer_sizes import LayerOrder, LayerSizes
from .layer_weights import BackWeights, FfnWeights, WholeLayer
from .records import RecordCache
from .weights import K1Weights


@dataclass(frozen=True)
class LayerWeights:
    """Weights of both launches, an entry a rank; `compressor` in kv source layers."""

    k1: tuple[K1Weights, ...]
    back: tuple[BackWeights, ...]
    ffn: tuple[FfnWeights, ...]
    compressor: CompressorWeights | None = None

    @classmethod
    def of(cls, layer: WholeLayer, tp: int, compressor: CompressorWeights | None = None) -> LayerWeights:
        """Every rank's share of a whole layer."""
        ranks = range(tp)
        return cls(
            tuple(layer.k1(tp, r) for r in ranks), tuple(layer.back(tp, r) for r in ranks),
            tuple(layer.ffn(tp, r) for r in ranks), compressor,
        )  # fmt: skip


@dataclass(frozen=True)
class LayerOutputs:
    """Both launches' results, and K2's inputs as K1 and the compressor left them."""

    k1: tuple[K1Outputs, ...]
    k2case: K2Case
    k2: K2Outputs

    @property
    def ffn(self) -> FfnOutputs:
        """The layer's outputs are the FFN half's."""
        return self.k2.ffn


def k1_on_ranks(
    case: LayerCase, weights: Sequence[K1Weights], sizes: LayerSizes, order: LayerOrder, exact: bool
) -> tuple[K1Outputs, ...]:
    """K1's results on every rank."""
    first = K1(case.k1, weights[0], sizes, order, exact).run()
    rest = (K1(case.k1, own, sizes, order, exact) for own in weights[1:])
    return first, *(replace(first, q=k1.turned(k1.wqb(first.qx8))) for k1 in rest)


# ------------------------------------------------------------------ compressor


def arrivals_of(case: LayerCase) -> tuple[Arrivals, list[tuple[int, int]]]:
    """Compressed rows that the step completes, and (request, position) of earlier tokens that they need."""
    k1, ratio = case.k1, case.k1.ratio
    where = {(int(k1.t2r[t]), int(k1.pos[t])): t for t in torch.nonzero(k1.live).flatten().tolist()}
    tokens, first, slots, earlier = [], [], [], []
    for (request, p), _ in sorted(where.items()):
        if (p + 1) % ratio:
            continue
        group = [(request, p - ratio + 1 + i) for i in range(ratio)]
        tokens.append(tuple(where.get(place, -1) for place in group))
        earlier += [place for place in group if place not in where]
        local = p // ratio
        block = int(k1.comp_bt[request, local // k1.comp_block])
        slots.append(block * k1.comp_block + local % k1.comp_block)
        first.append(local * ratio)
    return Arrivals(tuple(tokens), tuple(first), tuple(slots)), earlier


def compress(case: LayerCase, normed: Tensor, weights: CompressorWeights, sizes: LayerSizes) -> LayerCase:
    """The case with the step's records in its compressed cache (a copy)."""
    arrivals, earlier = arrivals_of(case)
    cache = replace(case.compressed_cache, data=case.comp.clone())
    scores = weights.scores(normed)
    ring = [
        Draws(case.k1.seed, f"ring/{case.layer}/{request}/{p}").normal(scores.shape[1]).to(F32)
        for request, p in earlier
    ]
    insert(cache, scores, ring, arrivals, weights.norm, case.k1.cos_sin, sizes)
    return replace(case, comp=cache.data)


# ------------------------------------------------------------------ layers and chains


def layer_outputs(
    case: LayerCase, weights: LayerWeights, sizes: LayerSizes, order: LayerOrder | None = None,
    form: Form = "promised", keys_inside: bool = False,
) -> LayerOutputs:  # fmt: skip
    """Evaluate a layer on all ranks. A compressor needs an index build, which keeps the normed input."""
    order, exact = order or LayerOrder(), form == "exact"
    k1 = k1_on_ranks(case, weights.k1, sizes, order, exact)
    if weights.compressor is not None:
        normed = k1[0].normed_out
        if normed is None:
            raise ValueError("a compressor reads the normed layer input, which only index builds keep")
        case = compress(case, normed, weights.compressor, sizes)
    k2case = case.k2(k1, keys_inside)
    return LayerOutputs(k1, k2case, K2(k2case, weights.back, weights.ffn, sizes, order, exact).run_all())


class AfterFfn(AfterSeam, Protocol):
    """The five tensors that a layer hands on (the reference's FfnOutputs, or a kernel's buffers)."""

    @property
    def out(self) -> Tensor: ...


class AfterLayer(Protocol):
    """A layer that ran, in the reference or on a device."""

    @property
    def k2case(self) -> K2Case: ...
    @property
    def ffn(self) -> AfterFfn: ...


def handed_on(case: LayerCase, ffn: AfterFfn) -> LayerCase:
    """`case` with the five tensors that the layer before it hands over."""
    k1 = replace(
        case.k1, res_in=ffn.res_out, pend=ffn.out, post_in=ffn.post_out.to(F32),
        comb_in=ffn.comb_out.to(F32), pre_in=ffn.pre_out.to(F32),
    )  # fmt: skip
    return replace(case, k1=k1)


def following(case: LayerCase, outputs: AfterLayer, sizes: LayerSizes, index: bool = False) -> LayerCase:
    """The next layer's case in the same step: fed by this layer, with its own window cache.

    It reads the compressed cache that this layer's K2 read. Raises ValueError where the next layer reads
    another one: such a pair is no chain.
    """
    layer, topology = case.layer + 1, case.model.topology
    same = kv_source(case.model, layer) == kv_source(case.model, case.layer)
    if not same or topology.compress_ratios[layer] != case.k1.ratio:
        raise ValueError(f"layer {layer} does not read the caches of layer {case.layer}")
    k1 = case.k1
    swa = RecordCache(k1.swa.clone(), k1.swa_stride, k1.swa_block, outputs.k2case.window_cache.flavour)
    fill(swa, window_positions(k1), f"window/{layer}", k1, sizes, 1)
    after = replace(
        case, layer=layer, k1=replace(k1, swa=swa.data, index=index, fold=True), comp=outputs.k2case.comp
    )
    return handed_on(after, outputs.ffn)
