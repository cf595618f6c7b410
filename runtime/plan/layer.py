"""Which launches a layer of the model takes, and where their tasks and bytes go.

Layers are numbered as in the checkpoint's `compress_ratios`: the backbone's, then the draft layers. Draft
layers run whole wherever the arch's limits admit their builds; their attention needs nothing that the
target's does not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...specs.schema import ArchSpec, ModelSpec
from .arith import cdiv
from .base import KernelPlan
from .keys import BuildKey
from .placement import Stage
from .planner import plan_of
from .points import POINTS
from .support import SpecSet, model_of
from .unsupported import Code, Reason, Unsupported


@dataclass(frozen=True)
class LayerKind:
    """What a layer is, and why its launches are as they are."""

    layer: int
    ratio: int
    fold: bool
    index: bool
    draft: bool
    window: int
    why: str


@dataclass(frozen=True)
class Handoff:
    """A region on its way from the stage that writes it to a stage that waits for it."""

    producer: str
    stage: str
    region: str
    bytes: int
    kind: str
    space: str


@dataclass(frozen=True)
class LayerPlan:
    """The launches of one layer, in order."""

    kind: LayerKind
    plans: tuple[KernelPlan, ...]


def kind_of(model: ModelSpec, layer: int) -> LayerKind:
    """The kind of layer `layer`; Unsupported if the model has no such layer."""
    top = model.topology
    if not 0 <= layer < len(top.compress_ratios):
        last = len(top.compress_ratios) - 1
        text = f"{model.name} has layers 0 to {top.layers - 1} and draft layers {top.layers} to {last}"
        reason = Reason(Code.LAYER_KIND_UNKNOWN, text, f"take a layer of 0 to {last}")
        raise Unsupported(f"layer {layer}", (reason,))
    draft, ratio = layer >= top.layers, top.compress_ratios[layer]
    first, engram = layer in (0, top.layers), layer in top.engram_layers
    index = layer in top.index_source_layers
    wide = [w for w in model.windows if w != model.attention.window]
    return LayerKind(
        layer=layer,
        ratio=ratio,
        fold=not (first or engram),
        index=index,
        draft=draft,
        window=wide[0] if draft and wide else model.attention.window,
        why=_why(first, engram, index, ratio, draft),
    )


def _why(first: bool, engram: bool, index: bool, ratio: int, draft: bool) -> str:
    parts = ["draft layer" if draft else "backbone layer"]
    parts += ["first of its stack: its residual is settled"] if first else []
    parts += ["engram: the residual is settled before K1"] if engram else []
    parts += ["runs the indexer between K1 and K2"] if index else []
    parts += [f"reads the ratio-{ratio} compressed cache" if ratio else "reads the window alone"]
    return ", ".join(parts)


def layer_keys(model: ModelSpec, arch: ArchSpec, tp: int, rows: int, layer: int) -> tuple[BuildKey, ...]:
    """The builds of a layer in launch order."""
    kind = kind_of(model, layer)
    own_launch = kind.index and arch.layers.index_keys == "launch"
    k1 = BuildKey(
        "k1", arch.name, tp, rows, kind.ratio, kind.fold, kind.index, kind.window, model=model.prefix
    )
    k2 = BuildKey(
        "k2",
        arch.name,
        tp,
        rows,
        kind.ratio,
        index=kind.index and not own_launch,
        model=model.prefix,
        draft=kind.draft,
    )
    between = (
        (BuildKey("keylist", arch.name, tp, rows, kind.ratio, model=model.prefix),) if own_launch else ()
    )
    return (k1, *between, k2)


def plan_layer(
    specs: SpecSet, arch: str, tp: int, rows: int, layer: int, prefix: str = "dsv41", timeline: bool = False
) -> LayerPlan:
    """The plans of a layer's launches (`timeline`: of builds that note the clock, where there are such);
    Unsupported with the reasons of every launch that has none."""
    model, spec = model_of(specs, prefix), specs.arch.get(arch)
    there = model is not None and 0 <= layer < len(model.topology.compress_ratios)
    if model is None or spec is None or not there:
        _refuse_layer(specs, BuildKey("k1", arch, tp, rows, model=prefix), model, layer)
        raise AssertionError("an unknown model, arch or layer has no plan")
    plans, reasons = list[KernelPlan](), list[Reason]()
    near: str | None = None
    for key in layer_keys(model, spec, tp, rows, layer):
        key = replace(key, timeline=timeline and key.kind in POINTS)
        try:
            plans.append(plan_of(specs, key))
        except Unsupported as refused:
            reasons += refused.reasons
            near = near or refused.nearest
    if reasons:
        name = f"layer {layer} of {model.name} on {arch} TP{tp}, {rows} rows"
        raise Unsupported(name, tuple(dict.fromkeys(reasons)), near)
    return LayerPlan(kind_of(model, layer), tuple(plans))


def _refuse_layer(specs: SpecSet, key: BuildKey, model: ModelSpec | None, layer: int) -> None:
    """Unsupported with what is wrong with the layer's number beside what is wrong with any launch."""
    reasons, near = list[Reason](), None
    try:
        if model is not None:
            kind_of(model, layer)
    except Unsupported as refused:
        reasons += refused.reasons
    try:
        plan_of(specs, key)
    except Unsupported as refused:
        reasons, near = reasons + list(refused.reasons), refused.nearest
    if reasons:
        raise Unsupported(f"layer {layer} on {key.arch} TP{key.tp}, {key.rows} rows", tuple(reasons), near)


def occupancy(stage: Stage, columns: int) -> list[int]:
    """Tasks of the busiest workgroup in each of `columns` equal parts of the grid."""
    each = cdiv(stage.grid, columns)
    held = [len(stage.tasks_of(w)) for w in range(stage.grid)]
    return [max(held[i : i + each], default=0) for i in range(0, stage.grid, each)]


def handoffs(plan: KernelPlan) -> list[Handoff]:
    """Every region that a stage of the launch waits for, with what travels in it: data behind flags too."""
    regions = list(plan.scratch.regions)
    peer = getattr(plan, "peer", None)
    regions += peer.regions.regions if peer is not None else ()
    held, found = {r.name: r for r in regions}, []
    for site in plan.sites:
        travels = [site.region]
        if site.kind == "flags":
            writes = [held[name] for name in plan.stage(site.producer).publishes if name in held]
            read = [r.name for r in writes if r.kind == "data" and site.stage in r.reader.split()]
            travels = read or travels  # a flag may stand for an argument, as that of the key table does
        total = sum(held[name].bytes if name in held else plan.grid * 4 for name in travels)
        found.append(Handoff(site.producer, site.stage, " ".join(travels), total, site.kind, site.space))
    return found
