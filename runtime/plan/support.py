"""Which builds have a plan: every reason why one has none, and the nearest one that has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from ...specs.schema import ArchSpec, ModelSpec
from .keys import BuildKey
from .unsupported import Code, Reason, Unsupported
from .width import width_report

KINDS = ("k1",)


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
    return reasons + (_row_reasons(model, arch, key) if model is not None else [])


def _layer_kind_reasons(model: ModelSpec, key: BuildKey) -> list[Reason]:
    reasons = []
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
        limit = width_report(model, arch).limit
    except Unsupported as refused:
        return list(refused.reasons)
    if 1 <= key.rows <= limit.rows:
        return []
    return [
        Reason(
            Code.ROWS_OUT_OF_RANGE,
            f"{key.rows} rows on {arch.name}: a step has 1 to {limit.rows} rows ({limit.by}: {limit.why})",
            f"take at most {limit.rows} rows" if key.rows > 0 else "take 1 or more",
        )
    ]


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
    ratios = sorted(set(model.topology.compress_ratios))
    ratio = key.ratio if key.ratio in ratios else min(ratios, key=lambda r: abs(r - key.ratio))
    window = key.window if key.window in model.windows and ratio == 0 else model.attention.window
    near = replace(
        key,
        kind=key.kind if key.kind in KINDS else KINDS[0],
        model=model.prefix,
        arch=arch.name,
        tp=min(arch.tp, key=lambda t: (abs(t - key.tp), t)),
        rows=min(max(key.rows, 1), limit),
        ratio=ratio,
        index=key.index and ratio != 0,
        window=window,
    )
    return None if key_reasons(specs, near) else near


def _closest_arch(specs: SpecSet, key: BuildKey) -> ArchSpec | None:
    """An arch that offers the TP size, else any; the first by name."""
    names = sorted(specs.arch, key=lambda name: (key.tp not in specs.arch[name].tp, name))
    return specs.arch[names[0]] if names else None
