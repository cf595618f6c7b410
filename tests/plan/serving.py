"""Servers and layers for tests of the layer plan, and the rule that every plan keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hypothesis import strategies as st

from flymono.runtime.plan import Deployed, Routing
from flymono.runtime.plan.layers import FEATURES, Host, HostLayer, ModelPlan, Path
from flymono.specs.schema import ModelSpec

PUBLISHED = Routing(384, 6, "sqrtsoftplus", True, 1.5, 10.0)
HOSTS = {
    "gfx942-tp4": Host("gfx942", 4),
    "gfx950-tp2-fp8": Host("gfx950", 2),
    "gfx950-tp2-mxfp4": Host("gfx950", 2, indexer="mxfp4"),
    "gfx950-tp4-fp8": Host("gfx950", 4),
    "gfx950-tp4-mxfp4": Host("gfx950", 4, indexer="mxfp4"),
}

found = st.one_of(
    st.just(Deployed()),
    st.builds(
        Deployed,
        routing=st.one_of(st.none(), st.just(PUBLISHED), st.just(Routing(256, 8, "sigmoid", True, 2.5, 7.0))),
        kv_dtype=st.sampled_from([None, "fp8_ds_mla", "mxfp8"]),
        ratio=st.sampled_from([None, None, 0, 1, 2, 4]),
        index=st.sampled_from([None, None, True, False]),
        window=st.sampled_from([None, None, 128, 256]),
    ),
)
layers = st.lists(
    st.builds(
        HostLayer,
        number=st.integers(0, 45),
        found=found,
        indexer=st.sampled_from([None, None, "fp8", "mxfp4"]),
        compressor=st.sampled_from([None, True, False]),
        fused_seam=st.sampled_from([None, None, True, False]),
        sequence_parallel=st.sampled_from([False, False, False, True]),
        made=st.sampled_from([None, None, *Path]),
    ),
    max_size=8,
    unique_by=lambda one: one.number,
)
hosts = st.one_of(
    st.sampled_from(list(HOSTS.values())),
    st.builds(
        Host,
        arch=st.sampled_from(["gfx942", "gfx950", "gfx90a"]),
        tp=st.sampled_from([1, 2, 4, 8]),
        compute_units=st.sampled_from([None, 38, 256, 304]),
        kv_dtype=st.sampled_from(["fp8_ds_mla", "mxfp8"]),
        indexer=st.sampled_from(["fp8", "mxfp4"]),
        moe_backend=st.sampled_from([None, "AITER_MXFP4_BF16", "TRITON"]),
        fused_seam=st.sampled_from([None, True, False]),
        expert_parallel=st.booleans(),
        dp=st.sampled_from([1, 2]),
        drafts=st.sampled_from([None, 0, 5, 65]),
        features=st.sampled_from([(), (), ("lora",), ("prefix-cache-replay", "dbo"), tuple(FEATURES)]),
    ),
)


def consumers_of(model: ModelSpec) -> Mapping[int, list[int]]:
    """Index source -> backbone layers that read its selection, from the topology alone."""
    top, source, found = model.topology, -1, dict[int, list[int]]()
    for layer, ratio in enumerate(top.compress_ratios[: top.layers]):
        if layer in top.index_source_layers:
            source = layer
        elif ratio:
            found.setdefault(source, []).append(layer)
    return found


def check_never_mixed(model: ModelSpec, paths: Mapping[int, Path]) -> None:
    """No consumer of a whole index source is on the host's attention."""
    for source, consumers in consumers_of(model).items():
        wrong = [
            layer for layer in consumers if paths[source] is Path.WHOLE and paths[layer] is not Path.WHOLE
        ]
        assert not wrong, f"source {source} is whole, its consumers {wrong} are not"


def check_reasons(plan: ModelPlan) -> None:
    """A layer is whole exactly if it has no reason."""
    for one in plan.layers:
        assert (one.path is Path.WHOLE) == (not one.reasons), one


def paths_of(plan: ModelPlan) -> dict[int, Path]:
    """Layer -> path."""
    return {one.layer: one.path for one in plan.layers}


def codes(reasons: Iterable[object]) -> set[str]:
    """The codes of reasons, as users see them."""
    return {str(r.code) for r in reasons}  # type: ignore[attr-defined]
