"""Whether a layer of a running model is one that the kernels compute: every reason against it at once.

The specs say which builds exist; a host also knows what its own layer does. Facts: a layer that routes in
another way, keeps its KV cache in another format, reads a cache of another ratio or has other window lists
than the model spec says must not run on the kernels (attention.md 9.3).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...specs.schema import ModelSpec
from .layer import LayerKind, kind_of, plan_layer
from .support import Routing, SpecSet, model_of, routing_reasons
from .unsupported import Code, Reason, Unsupported

KV_DTYPE = "fp8_ds_mla"
"""The one record format that kernels read and write (attention.md 2.1), by the name that hosts give it."""


@dataclass(frozen=True)
class Deployed:
    """What the host of a layer says of it; None for what it does not know."""

    routing: Routing | None = None
    kv_dtype: str | None = None
    ratio: int | None = None  # of the compressed cache that the layer reads
    index: bool | None = None  # has an indexer of its own
    window: int | None = None  # entries a row of its window lists


def deployment_reasons(
    specs: SpecSet, arch: str, tp: int, rows: int, layer: int, found: Deployed, prefix: str = "dsv41"
) -> tuple[list[Reason], str | None]:
    """Every reason against the layer as `found` on `arch` at `tp` with `rows` rows, and the nearest build.

    Reasons of the builds (arch, TP size, rows, model shape), of the layer's number and of the host's layer.
    """
    reasons, near = list[Reason](), None
    try:
        plan_layer(specs, arch, tp, rows, layer, prefix)
    except Unsupported as refused:
        reasons, near = list(refused.reasons), refused.nearest
    model = model_of(specs, prefix)
    if model is None:
        return reasons, near
    try:
        kind = kind_of(model, layer)
    except Unsupported:
        return reasons + _format_reasons(found), near  # plan_layer's reasons say that there is no such layer
    return list(dict.fromkeys(reasons + found_reasons(model, kind, found))), near


def found_reasons(model: ModelSpec, kind: LayerKind, found: Deployed) -> list[Reason]:
    """Every difference between a host's layer as `found` and the model spec's layer of that number."""
    reasons = _format_reasons(found)
    if found.routing is not None:
        reasons += routing_reasons(model, found.routing, draft=kind.draft)
    pairs = (
        ("the ratio of its compressed cache", found.ratio, kind.ratio, Code.RATIO_UNKNOWN),
        ("an indexer of its own", found.index, kind.index, Code.LAYER_KIND_UNKNOWN),
        ("the width of its window lists", found.window, kind.window, Code.WINDOW_UNKNOWN),
    )
    fix = "leave the layer to its host, or take a model spec that says so"
    return reasons + [
        Reason(code, f"layer {kind.layer}, {what}: {got}, {model.name} has {want}", fix)
        for what, got, want, code in pairs
        if got is not None and got != want
    ]


def _format_reasons(found: Deployed) -> list[Reason]:
    if found.kv_dtype in (None, KV_DTYPE):
        return []
    text = f"the KV cache is {found.kv_dtype}, the kernels' records are {KV_DTYPE}"
    return [Reason(Code.KV_DTYPE_UNKNOWN, text, f"start the host with KV cache dtype {KV_DTYPE}")]


def check_deployment(
    specs: SpecSet, arch: str, tp: int, rows: int, layer: int, found: Deployed, prefix: str = "dsv41"
) -> None:
    """Raise Unsupported with every reason of `deployment_reasons`."""
    reasons, near = deployment_reasons(specs, arch, tp, rows, layer, found, prefix)
    if reasons:
        raise Unsupported(f"layer {layer} on {arch} TP{tp}, {rows} rows", tuple(reasons), near)
