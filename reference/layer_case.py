"""A whole layer's case from a seed: K1's inputs with caches that hold real records where the step reads.

Invariants
 - Every record that a row's key list names is a real one: a normed latent, rotated at its own position,
   window records in the arch's flavour and compressed ones in OCP. Equal (request, position) give equal
   records, whatever the step, so cases of one seed agree with each other.
 - Caches are as large as their block tables say, but only pages with records take memory.
 - Nothing here depends on a kernel: inputs of K2 alone are drawn, or come from the reference's own K1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from ..specs.schema import ModelSpec
from .case import K1Case, make_case
from .compressor import latents, rotated
from .draws import Draws
from .ffn import FfnCase
from .formats import F32, FLAVOURS, OCP
from .front import key_table
from .k2 import K2Case
from .layer_sizes import LayerSizes
from .records import RecordCache, empty_cache

BF16 = torch.bfloat16
ZERO_RECORD = 1024
SAME_IN_K1 = (
    "rows", "tp", "ratio", "window", "fp8", "seed", "swa_stride", "swa_block", "comp_block", "slot",
    "swa_idx", "swa_lens", "t2r", "topk", "comp_bt", "bt_stride", "pos", "cos_sin",
)  # fmt: skip


class AfterSeam(Protocol):
    """What a seam leaves: the residual streams and their gates."""

    @property
    def res_out(self) -> Tensor: ...
    @property
    def post_out(self) -> Tensor: ...
    @property
    def comb_out(self) -> Tensor: ...
    @property
    def pre_out(self) -> Tensor: ...


class AfterK1(AfterSeam, Protocol):
    """What K1 left on a rank, as K2 takes it (the reference's K1Outputs, or a kernel's buffers)."""

    @property
    def q(self) -> Tensor: ...
    @property
    def swa(self) -> Tensor: ...


@dataclass(frozen=True)
class LayerCase:
    """K1's inputs and the compressed cache, one step of one layer on all ranks."""

    model: ModelSpec
    layer: int
    k1: K1Case
    comp: Tensor  # uint8, the compressed cache that the layer reads (a dummy for ratio 0)
    comp_stride: int

    @property
    def compressed_cache(self) -> RecordCache:
        """The compressed cache."""
        return RecordCache(self.comp, self.comp_stride, self.k1.comp_block, OCP)

    def k2(self, after: Sequence[AfterK1], keys_inside: bool = False) -> K2Case:
        """K2's inputs from what K1 left on every rank."""
        first = after[0]
        kt, klen = key_table(self.k1, LayerSizes.of(self.model, self.k1.tp))
        return self._k2(
            torch.stack([rank.q for rank in after]), keys_inside, swa=first.swa, kt=kt, klen=klen,
            res_in=first.res_out, post_in=first.post_out, comb_in=first.comb_out, pre_in=first.pre_out,
        )  # fmt: skip

    def _k2(self, q: Tensor, keys_inside: bool, **given: Tensor) -> K2Case:
        k1 = self.k1
        inputs: dict[str, Any] = {name: getattr(k1, name) for name in SAME_IN_K1}
        zeros = torch.zeros(ZERO_RECORD, dtype=torch.uint8)
        inputs |= {"q": q, "comp": self.comp, "comp_stride": self.comp_stride, "zrec": zeros, **given}
        return K2Case(keys_inside=keys_inside, **inputs)


def kv_source(model: ModelSpec, layer: int) -> int:
    """The layer whose compressor wrote the cache that `layer` reads (-1 for none)."""
    return max((s for s in model.topology.kv_source_layers if s <= layer), default=-1)


# ------------------------------------------------------------------ records


def _normed(draws: Iterable[Draws], width: int) -> Tensor:
    """bf16 rows as a kv norm leaves them."""
    rows = torch.stack([d.normal(width) for d in draws]).unsqueeze(1)
    return latents(rows, torch.ones(width), 1, 1e-20)


def window_positions(case: K1Case) -> dict[int, tuple[int, int]]:
    """Slot -> (request, position) of every entry of the window lists."""
    places: dict[int, tuple[int, int]] = {}
    for row in torch.nonzero(case.live).flatten().tolist():
        count, slots = int(case.swa_lens[row]), case.swa_idx[row].tolist()
        own = slots.index(int(case.slot[row]))
        first = int(case.pos[row]) - own
        places |= {slots[k]: (int(case.t2r[row]), first + k) for k in range(count)}
    return places


def compressed_rows(case: K1Case) -> dict[int, tuple[int, int]]:
    """Slot -> (request, compressed row) of every entry of the top-k lists that is read."""
    places: dict[int, tuple[int, int]] = {}
    if not case.ratio:
        return places
    for row in torch.nonzero(case.live).flatten().tolist():
        request = int(case.t2r[row])
        visible = min((int(case.pos[row]) + 1) // case.ratio, case.topk.shape[1])
        for local in case.topk[row, :visible].tolist():
            if local >= 0:
                block = int(case.comp_bt[request, local // case.comp_block])
                places[block * case.comp_block + local % case.comp_block] = (request, local)
    return places


def fill(
    cache: RecordCache, places: dict[int, tuple[int, int]], name: str, case: K1Case, sizes: LayerSizes,
    every: int, skip: Iterable[int] = (),
) -> None:  # fmt: skip
    """Write a real record for each slot -> (request, index), rotated at position index * every."""
    kept = set(skip)
    todo = [(slot, *place) for slot, place in sorted(places.items()) if slot not in kept]
    for at in range(0, len(todo), 4096):
        part = todo[at : at + 4096]
        draws = (Draws(case.seed, f"{name}/{request}/{index}") for _, request, index in part)
        positions = torch.tensor([index * every for _, _, index in part])
        rows = rotated(_normed(draws, sizes.head_dim), positions, case.cos_sin, sizes)
        cache.write(torch.tensor([slot for slot, _, _ in part]), rows, sizes)


def with_caches(model: ModelSpec, layer: int, case: K1Case, sizes: LayerSizes) -> LayerCase:
    """`case` with real records in its window cache, and the compressed cache that the layer reads."""
    swa = RecordCache(case.swa.clone(), case.swa_stride, case.swa_block, FLAVOURS[case.fp8])
    fill(swa, window_positions(case), f"window/{layer}", case, sizes, 1)
    case = replace(case, swa=swa.data)
    if not case.ratio:
        return LayerCase(model, layer, case, torch.zeros(ZERO_RECORD, dtype=torch.uint8), 0)
    comp = empty_cache(case.comp_bt.numel(), case.comp_block, OCP, sizes)
    fill(comp, compressed_rows(case), f"compressed/{kv_source(model, layer)}", case, sizes, case.ratio)
    return LayerCase(model, layer, case, comp.data, comp.stride)


# ------------------------------------------------------------------ cases


def make_layer_case(
    model: ModelSpec, *, rows: int, tp: int, layer: int = 3, fp8: str = "ocp", seed: int = 0,
    contexts: tuple[int, ...] = (), ratio: int | None = None, fold: bool = True, index: bool = False,
    window: int = 128, first: bool = False, padded: int | None = None, positions: int = 4096,
) -> LayerCase:  # fmt: skip
    """A step of `layer` (whose ratio is the model's unless given). Arguments as make_case."""
    sizes = LayerSizes.of(model, tp)
    ratio = model.topology.compress_ratios[layer] if ratio is None else ratio
    case = make_case(
        model, rows=rows, tp=tp, ratio=ratio, fold=fold, index=index, window=window, seed=seed, fp8=fp8,
        first=first, padded=padded, positions=positions, contexts=contexts,
    )  # fmt: skip
    return with_caches(model, layer, case, sizes)


def make_k2_case(model: ModelSpec, *, keys_inside: bool = False, **options: Any) -> K2Case:
    """A step of K2 alone: queries and the seam's results are drawn. Options as make_layer_case."""
    case = make_layer_case(model, index=keys_inside, **options)
    k1, sizes = case.k1, LayerSizes.of(model, case.k1.tp)
    draws = Draws(k1.seed, f"k2/{k1.rows}/{k1.tp}")
    q = draws.normal(k1.tp, k1.rows, sizes.heads, sizes.head_dim) * 2.0
    kt, klen = key_table(k1, sizes)
    return case._k2(q.to(BF16), keys_inside, swa=k1.swa, kt=kt, klen=klen, **_seam_inputs(k1))


def _seam_inputs(k1: K1Case) -> dict[str, Tensor]:
    return {"res_in": k1.res_in, "post_in": k1.post_in, "comb_in": k1.comb_in, "pre_in": k1.pre_in}


def begins(model: ModelSpec, layer: int) -> bool:
    """Whether the layer begins with an embedding in all streams, of which it takes the first: the first of
    the backbone and the first of the draft (attention.md 9.3)."""
    return layer in (0, model.topology.layers)


def make_ffn_case(
    model: ModelSpec, *, rows: int, tp: int, fp8: str = "ocp", seed: int = 0, padded: int | None = None
) -> FfnCase:
    """A step of the FFN launch: partials, residual and gates are drawn; padded rows have zero partials.

    From three ranks on, the first column of a live row is a tie that only the last ranks' small partials
    break, and only if they are added first: a sum in another order than by rank gives other bits.
    """
    k1 = make_case(model, rows=rows, tp=tp, ratio=0, seed=seed, fp8=fp8, padded=padded, contexts=(100,))
    draws = Draws(seed, f"ffn/{rows}/{tp}")
    shape = (tp, rows, model.hidden)
    part = draws.normal(*shape) * (0.5 * tp**-0.5) * k1.live[None, :, None]
    if tp > 2:
        part[:, :, 0] = torch.tensor([1.0, 2.0**-8] + [1.5 * 2.0**-25] * (tp - 2))[:, None] * k1.live
    return FfnCase(rows, tp, fp8, seed, part.to(F32).to(BF16), **_seam_inputs(k1))
