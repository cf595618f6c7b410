"""Which builds have a plan: every reason why one has none, and the nearest one that has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from ...specs.schema import ArchSpec, ModelSpec
from .dims import dims_of, shape_reasons
from .ffn.limits import expert_reasons
from .ffn.regions import ffn_regions
from .k2.limits import attention_reasons
from .keys import DEFAULT_RATIO, WITHOUT_RATIO, BuildKey
from .layout import ffn_shape, fits, layer_layout
from .unsupported import Code, Reason, Unsupported
from .width import layer_reasons, width_report

KINDS = ("k1", "k2", "ffn", "keylist")
"""Kernel kinds, in the order in which a layer launches them (k2 and ffn are alternatives)."""


class SpecSet(Protocol):
    """What planning needs of the loaded specs."""

    @property
    def arch(self) -> Mapping[str, ArchSpec]: ...
    @property
    def model(self) -> Mapping[str, ModelSpec]: ...


def model_of(specs: SpecSet, prefix: str) -> ModelSpec | None:
    """The model whose build ids start with `prefix`."""
    return next((m for m in specs.model.values() if m.prefix == prefix), None)


def key_reasons(specs: SpecSet, key: BuildKey) -> list[Reason]:
    """Every reason why `key` has no plan; empty if it has one."""
    reasons = (
        []
        if key.kind in KINDS
        else [
            Reason(
                Code.KIND_UNKNOWN, f"there is no kernel kind {key.kind!r}", f"take one of {', '.join(KINDS)}"
            )
        ]
    )
    model, arch = model_of(specs, key.model), specs.arch.get(key.arch)
    if model is None:
        known = ", ".join(sorted(m.prefix for m in specs.model.values()))
        reasons.append(
            Reason(Code.MODEL_UNKNOWN, f"no model spec has the prefix {key.model!r}", f"take one of {known}")
        )
    else:
        reasons += _layer_kind_reasons(model, key)
        reasons += model_routing_reasons(model) if key.kind in ("k2", "ffn") else []
    if arch is None:
        reasons.append(
            Reason(
                Code.ARCH_UNKNOWN,
                f"there is no arch spec {key.arch!r}",
                f"take one of {', '.join(sorted(specs.arch))}, or write specs/arch/{key.arch}.yaml",
            )
        )
        return reasons
    if key.tp not in arch.tp:
        reasons.append(
            Reason(
                Code.TP_NOT_OFFERED,
                f"TP{key.tp} on {arch.name}: the arch spec offers " + " and ".join(f"TP{t}" for t in arch.tp),
                "take one of these, or extend tp in the arch spec",
            )
        )
        reasons += shape_reasons(model, key.tp) if model is not None and key.tp > 0 else []
    if model is not None:
        reasons += _expert_reasons(model, arch, key) + _row_reasons(model, arch, key)
    return reasons


def _expert_reasons(model: ModelSpec, arch: ArchSpec, key: BuildKey) -> list[Reason]:
    """What K2's halves are not built for, where a build has them and can have a plan at all."""
    if key.kind not in ("k2", "ffn") or key.tp not in arch.tp or layer_reasons(model, arch):
        return []
    own = attention_reasons(model) if key.kind == "k2" else []
    return own + expert_reasons(model, arch, key.tp)


@dataclass(frozen=True)
class Routing:
    """How a layer of a running model routes, as its host code reports it."""

    experts: int
    per_token: int
    scoring: str
    renormalise: bool
    scaling: float
    limit: float
    shared_experts: int = 1
    by_hash: bool = False


def routing_reasons(model: ModelSpec, found: Routing, *, draft: bool = False) -> list[Reason]:
    """Why the kernels would not compute what a layer that routes like `found` means; empty if they do."""
    moe = model.moe
    counts = (
        (model.draft.experts, model.draft.experts_per_token)
        if draft
        else (moe.experts, moe.experts_per_token)
    )
    pairs = (
        ("routed experts", found.experts, counts[0]),
        ("experts a row", found.per_token, counts[1]),
        ("scoring", found.scoring, moe.scoring),
        ("renormalised", found.renormalise, True),
        ("routed scaling", found.scaling, moe.routed_scaling),
        ("SwiGLU limit", found.limit, moe.swiglu_limit),
        ("shared experts", found.shared_experts, 1),
        ("routes by hash", found.by_hash, False),
    )
    fix = "leave the layer to vLLM, or take a model spec that says so"
    return [
        Reason(Code.ROUTING_UNKNOWN, f"{what}: {got}, the kernels compute {want}", fix)
        for what, got, want in pairs
        if got != want
    ]


def model_routing_reasons(model: ModelSpec) -> list[Reason]:
    """The same of a model spec: what its own routing states and the kernels do not compute."""
    moe = model.moe
    own = Routing(
        moe.experts,
        moe.experts_per_token,
        moe.scoring,
        moe.norm_topk_prob,
        moe.routed_scaling,
        moe.swiglu_limit,
        moe.shared_experts,
        moe.hash_layers > 0,
    )
    return routing_reasons(model, own)


def _kind_reasons(model: ModelSpec, key: BuildKey) -> list[Reason]:
    """Parts of the key that its kind does not depend on, and so must be left at their default."""
    parts = {
        "-nofold": not key.fold and key.kind != "k1",
        "-index": key.index and key.kind in ("ffn", "keylist"),
        "-draft": key.draft and key.kind in ("k1", "keylist"),
        f"-w{key.window}": key.window != model.attention.window and key.kind != "k1",
        "-timeline": key.timeline and key.kind == "keylist",
        f"-r{key.ratio}": key.kind in WITHOUT_RATIO and key.ratio != DEFAULT_RATIO,
    }
    why = {"-draft": "K1 of a draft layer differs by its window list alone" if key.kind == "k1" else ""}
    return [
        Reason(
            Code.NOT_OF_THIS_KIND,
            f"{part} on kind {key.kind}" + (f": {why[part]}" if why.get(part) else ""),
            f"leave {part} out",
        )
        for part, wrong in parts.items()
        if wrong and key.kind in KINDS
    ]


def _index_reasons(model: ModelSpec, key: BuildKey) -> list[Reason]:
    """Pairs of ratio and index that no layer has; the key-list kernel serves index layers alone.

    K1 of an index layer only leaves the key table to another launch, so it has that build at every ratio.
    """
    index = key.index or key.kind == "keylist"
    pairs = layer_kinds(model)
    if key.kind in ("k1", "ffn") or (key.ratio, index) in pairs or key.ratio not in {r for r, _ in pairs}:
        return []
    what = "builds an index" if index else "builds none"
    return [
        Reason(
            Code.LAYER_KIND_UNKNOWN,
            f"no layer of {model.name} has ratio {key.ratio} and {what}",
            "take one of " + ", ".join(f"r{r}{'-index' if i else ''}" for r, i in sorted(pairs)),
        )
    ]


def layer_kinds(model: ModelSpec) -> set[tuple[int, bool]]:
    """(ratio, builds an index) of every layer, draft layers included."""
    top = model.topology
    return {(ratio, layer in top.index_source_layers) for layer, ratio in enumerate(top.compress_ratios)}


def _draft_reasons(model: ModelSpec, key: BuildKey) -> list[Reason]:
    ratios = sorted(set(model.topology.compress_ratios[model.topology.layers :]))
    if not key.draft or key.kind in WITHOUT_RATIO or key.ratio in ratios:
        return []
    text = f"draft layers of {model.name} read no compressed cache of ratio {key.ratio}"
    return [Reason(Code.DRAFT_UNKNOWN, text, f"take r{ratios[0]}, or leave -draft out")]


def _layer_kind_reasons(model: ModelSpec, key: BuildKey) -> list[Reason]:
    reasons = _kind_reasons(model, key) + _index_reasons(model, key) + _draft_reasons(model, key)
    if key.kind in WITHOUT_RATIO:
        return reasons
    ratios = sorted(set(model.topology.compress_ratios))
    if key.ratio not in ratios:
        reasons.append(
            Reason(
                Code.RATIO_UNKNOWN,
                f"no layer of {model.name} has compress ratio {key.ratio}",
                f"take one of {', '.join(map(str, ratios))}",
            )
        )
    if key.window not in model.windows:
        reasons.append(
            Reason(
                Code.WINDOW_UNKNOWN,
                f"{model.name} has no window list of width {key.window}",
                f"take one of {', '.join(map(str, model.windows))}",
            )
        )
    elif key.window != model.attention.window and key.ratio != 0:
        reasons.append(
            Reason(
                Code.WINDOW_NEEDS_RATIO_0,
                f"window width {key.window} with ratio {key.ratio}",
                f"take window {model.attention.window}, or ratio 0",
            )
        )
    return reasons


def _row_reasons(model: ModelSpec, arch: ArchSpec, key: BuildKey) -> list[Reason]:
    try:
        report = width_report(model, arch)
    except Unsupported as refused:
        return list(refused.reasons)
    limit = report.limit
    if 1 <= key.rows <= limit.rows:
        return _layout_reasons(model, arch, key, report.width)
    return [
        Reason(
            Code.ROWS_OUT_OF_RANGE,
            f"{key.rows} rows on {arch.name}: a step has 1 to {limit.rows} rows ({limit.by}: {limit.why})",
            f"take at most {limit.rows} rows" if key.rows > 0 else "take 1 or more",
        )
    ]


def _layout_reasons(model: ModelSpec, arch: ArchSpec, key: BuildKey, width: int) -> list[Reason]:
    """Why a draft's FFN launch cannot run on the target's scratch; other builds have one of their own."""
    if key.kind != "ffn" or not key.draft or key.tp not in arch.tp:
        return []
    d = dims_of(model, key.tp, draft=True)
    try:
        target = layer_layout(model, arch, key, width, draft=False)
        fits(key.id, target, ffn_regions(d, ffn_shape(model, arch, d, key.rows, width)))
    except Unsupported as refused:
        return list(refused.reasons)
    return []


def nearest(specs: SpecSet, key: BuildKey) -> BuildKey | None:
    """The supported key that differs least: fix the kernel kind, the layer kind, then TP, then the rows."""
    model = model_of(specs, key.model) or next(iter(specs.model.values()), None)
    arch = specs.arch.get(key.arch) or _closest_arch(specs, key)
    if model is None or arch is None:
        return None
    try:
        limit = width_report(model, arch).limit.rows
    except Unsupported:
        return None
    near = replace(
        _nearest_layer(model, key),
        model=model.prefix,
        arch=arch.name,
        tp=min(arch.tp, key=lambda t: (abs(t - key.tp), t)),
        rows=min(max(key.rows, 1), limit),
    )
    return None if key_reasons(specs, near) else near


def _nearest_layer(model: ModelSpec, key: BuildKey) -> BuildKey:
    """The key with a kind that exists and a kind of layer that the model has."""
    kind = key.kind if key.kind in KINDS else KINDS[0]
    pairs, index = layer_kinds(model), key.index or kind == "keylist"
    draft = key.draft and kind in ("k2", "ffn")
    if draft:
        pairs = {(r, False) for r in model.topology.compress_ratios[model.topology.layers :]}
    elif kind == "keylist":
        pairs = {pair for pair in pairs if pair[1]}
    ratio = min((abs(r - key.ratio), r) for r, _ in pairs)[1]
    known = key.window in model.windows and ratio == 0 and kind == "k1"
    return replace(
        key,
        kind=kind,
        ratio=DEFAULT_RATIO if kind in WITHOUT_RATIO else ratio,
        fold=key.fold or kind != "k1",
        index=index and (ratio, True) in pairs and kind in ("k1", "k2"),
        window=key.window if known else model.attention.window,
        draft=draft,
        timeline=key.timeline and kind != "keylist",
    )


def _closest_arch(specs: SpecSet, key: BuildKey) -> ArchSpec | None:
    """An arch that offers the TP size, else any; the first by name."""
    names = sorted(specs.arch, key=lambda name: (key.tp not in specs.arch[name].tp, name))
    return specs.arch[names[0]] if names else None
