"""Small layers for tests: every structure of the real one (ranks, groups, chunks, tiles), few of each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from flymono.reference.compare_ffn import FfnComparison
from flymono.reference.compare_k2 import K2Comparison
from flymono.reference.launch import Launch
from flymono.reference.layer_case import make_ffn_case, make_k2_case
from flymono.reference.layer_sizes import LayerOrder, LayerSizes
from flymono.reference.layer_weights import WholeLayer, seeded_layer
from flymono.reference.planted_layer import Bench, Bug, launches_of
from flymono.specs import load
from flymono.specs.schema import ModelSpec, NumericsSpec

SPECS = load()
FULL = SPECS.model["deepseek_v41_flash"]
TABLES: Mapping[str, NumericsSpec] = SPECS.numerics
CONTEXTS = (1, 100, 130, 400)


def small_model(experts: int = 128, limit: float = 2.0) -> ModelSpec:
    """Hidden 512, 16 heads, 4 groups, 256 keys, 256 columns an expert; the limit is met often."""
    attention = FULL.attention.model_copy(
        update={"heads": 8, "q_lora_rank": 256, "o_groups": 4, "o_lora_rank": 128}
    )
    moe = FULL.moe.model_copy(update={"intermediate": 256, "experts": experts, "swiglu_limit": limit})
    indexer = FULL.indexer.model_copy(update={"topk": 128})
    update = {"hidden": 512, "attention": attention, "moe": moe, "indexer": indexer}
    return FULL.model_copy(update=update)


@cache
def layer(experts: int = 128, number: int = 3) -> WholeLayer:
    """A seeded layer of the small model."""
    return seeded_layer(small_model(experts), number)


def _weights(whole: WholeLayer, tp: int) -> tuple[list[Any], list[Any], LayerSizes]:
    ranks = range(tp)
    return [whole.back(tp, r) for r in ranks], [whole.ffn(tp, r) for r in ranks], whole.sizes(tp)


def order_of(fp8: str, **changes: int) -> LayerOrder:
    """Orders of the strategy that reads this flavour."""
    return LayerOrder.of("scaled_mfma" if fp8 == "ocp" else "fp8_mfma_fma", **changes)


@cache
def k2_bench(fp8: str = "ocp", tp: int = 4, rows: int = 6, ratio: int = 2, inside: bool = False,
             seed: int = 0, padded: int | None = None) -> Bench:  # fmt: skip
    """A step of K2."""
    whole = layer()
    case = make_k2_case(
        whole.model, rows=rows, tp=tp, layer=3, ratio=ratio, fp8=fp8, contexts=CONTEXTS, keys_inside=inside,
        seed=seed, padded=padded,
    )  # fmt: skip
    return Bench(case, *_weights(whole, tp), order_of(fp8))


@cache
def ffn_bench(fp8: str = "ocp", tp: int = 4, rows: int = 6, experts: int = 128, tile: int = 0,
              seed: int = 0) -> Bench:  # fmt: skip
    """A step of the FFN launch."""
    whole = layer(experts)
    case = make_ffn_case(whole.model, rows=rows, tp=tp, fp8=fp8, seed=seed)
    _, ffn, sizes = _weights(whole, tp)
    return Bench(case, [], ffn, sizes, order_of(fp8, **({"pick_tile": tile} if tile else {})))


def compare(bench: Bench, launches: list[Launch]) -> FfnComparison | K2Comparison:
    """The comparison of a bench's launches."""
    if bench.k2 is not None:
        return K2Comparison(bench.k2, bench.back, bench.ffn, bench.sizes, bench.order, TABLES, launches)
    return FfnComparison(bench.case, bench.ffn, bench.sizes, bench.order, TABLES, launches)  # type: ignore[arg-type]


def failures(bench: Bench, bug: Bug | None = None) -> dict[str, str]:
    """stage.output -> where, of every stage that is rejected."""
    verdicts = compare(bench, launches_of(bug, bench)).stages()
    return {v.name: f"{v.worst} > {v.budget} at {v.where}" for v in verdicts if not v.ok}
