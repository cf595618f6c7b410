"""A layer's configuration and its weights are refused with all reasons, before anything is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flymono.runtime.plan import Code, Deployed, Routing, Unsupported, deployment_reasons
from flymono.runtime.step import check_layer
from flymono.runtime.weights import WeightsError, make_layer_file
from flymono.specs import Specs
from flymono.specs.findings import SeveralErrors
from flymono.specs.schema import ModelSpec

PUBLISHED = Routing(384, 6, "sqrtsoftplus", True, 1.5, 10.0)
HOST = Deployed(PUBLISHED, "fp8_ds_mla", ratio=2, index=False, window=128)


def routed(**changes: object) -> Deployed:
    """The published layer but for its routing."""
    return replace(HOST, routing=replace(PUBLISHED, **changes))  # type: ignore[arg-type]


def test_the_published_layer_is_taken(specs: Specs) -> None:
    for layer, ratio, index in ((0, 0, False), (2, 2, True), (3, 2, False), (20, 1, True), (39, 1, False)):
        check_layer(specs, "gfx942", 4, 6, layer, replace(HOST, ratio=ratio, index=index))
    draft = Deployed(replace(PUBLISHED, experts=128, per_token=3), "fp8_ds_mla", 0, False, 192)
    check_layer(specs, "gfx950", 2, 5, 41, draft)
    check_layer(specs, "gfx950", 2, 6, 3)


@pytest.mark.parametrize(
    ("found", "code", "text"),
    [
        (routed(scoring="sigmoid"), Code.ROUTING_UNKNOWN, "sigmoid"),
        (routed(limit=7.0), Code.ROUTING_UNKNOWN, "7.0, the kernels compute 10.0"),
        (routed(scaling=2.5), Code.ROUTING_UNKNOWN, "2.5"),
        (routed(renormalise=False), Code.ROUTING_UNKNOWN, "renormalised: False"),
        (replace(HOST, kv_dtype="bfloat16"), Code.KV_DTYPE_UNKNOWN, "the KV cache is bfloat16"),
        (replace(HOST, ratio=4), Code.RATIO_UNKNOWN, "4, deepseek_v41_flash has 2"),
        (replace(HOST, index=True), Code.LAYER_KIND_UNKNOWN, "an indexer of its own: True"),
        (replace(HOST, window=192), Code.WINDOW_UNKNOWN, "192, deepseek_v41_flash has 128"),
    ],
)  # fmt: skip
def test_a_layer_that_does_something_else(specs: Specs, found: Deployed, code: Code, text: str) -> None:
    reasons, near = deployment_reasons(specs, "gfx942", 4, 6, 3, found)
    assert [r.code for r in reasons] == [code] and text in reasons[0].text and near is None


def test_all_reasons_of_a_layer_come_at_once(specs: Specs) -> None:
    routing = Routing(256, 8, "sigmoid", False, 2.5, 0.0, shared_experts=0, by_hash=True)
    found = Deployed(routing, "fp8", ratio=4, index=True, window=256)
    with pytest.raises(Unsupported) as caught:
        check_layer(specs, "gfx942", 3, 43, 3, found)
    codes = [r.code for r in caught.value.reasons]
    assert codes.count(Code.ROUTING_UNKNOWN) == 8
    assert {Code.TP_NOT_OFFERED, Code.MODEL_SHAPE, Code.ROWS_OUT_OF_RANGE, Code.KV_DTYPE_UNKNOWN,
            Code.RATIO_UNKNOWN, Code.LAYER_KIND_UNKNOWN, Code.WINDOW_UNKNOWN} <= set(codes)  # fmt: skip
    assert caught.value.exit_code == 2 and caught.value.nearest is not None
    assert len(codes) == len(set(caught.value.reasons))


def test_an_unknown_layer_model_or_arch(specs: Specs) -> None:
    for arch, layer, prefix, code in (
        ("gfx942", 43, "dsv41", Code.LAYER_KIND_UNKNOWN),
        ("gfx90a", 3, "dsv41", Code.ARCH_UNKNOWN),
        ("gfx942", 3, "other", Code.MODEL_UNKNOWN),
    ):
        with pytest.raises(Unsupported) as caught:
            check_layer(specs, arch, 4, 6, layer, Deployed(kv_dtype="auto"), prefix=prefix)
        assert code in [r.code for r in caught.value.reasons]


@pytest.fixture(scope="module")
def small(model: ModelSpec) -> ModelSpec:
    attention = model.attention.model_copy(
        update={"heads": 4, "q_lora_rank": 256, "o_groups": 2, "o_lora_rank": 64}
    )
    moe = model.moe.model_copy(update={"intermediate": 384, "experts": 8})
    return model.model_copy(update={"hidden": 512, "attention": attention, "moe": moe})


def test_a_shard_without_selected_experts_beside_the_other_reasons(
    specs: Specs, small: ModelSpec, tmp_path: Path
) -> None:
    path = make_layer_file(tmp_path / "layer3.safetensors", small, 3, experts=(1, 4))

    class Copied:
        arch = specs.arch
        model = {"small": small}  # noqa: RUF012

    with pytest.raises(SeveralErrors) as caught:
        check_layer(Copied, "gfx942", 4, 6, 3, Deployed(kv_dtype="auto"), source=path, selected=(1, 2))  # type: ignore[arg-type]
    kinds = {type(e) for e in caught.value.errors}
    assert kinds == {Unsupported, WeightsError} and caught.value.exit_code == 2
    weights = next(e for e in caught.value.errors if isinstance(e, WeightsError))
    assert [f.tensor for f in weights.findings] == [
        f"layers.3.ffn.experts.2.{leaf}.{end}" for leaf in ("w1", "w3", "w2") for end in ("weight", "scale")
    ]
    refused = next(e for e in caught.value.errors if isinstance(e, Unsupported))
    assert Code.KV_DTYPE_UNKNOWN in [r.code for r in refused.reasons]
