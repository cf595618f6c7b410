"""Does the shipped matrix name only builds that the archs and the model admit?

What depends on arithmetic of a kernel (does LDS suffice, is a row limit computed) is the plan's to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ..findings import Code, Finding
from ..schema import ArchSpec, BuildGroup, BuildSpec, ModelSpec
from ..source import Source
from .context import Context, repeats

AXES = ("tp", "rows", "ratio", "fold", "index", "window", "timeline", "draft")


def check_build(source: Source, build: BuildSpec, context: Context) -> Iterator[Finding]:
    """All findings of one build file."""
    yield from context.unknown(source, Code.UNKNOWN_MODEL, "model", build.model, "model")
    model = context.model(build.model)
    for i, group in enumerate(build.groups):
        yield from _axes(source, group, i)
        yield from context.unknown(source, Code.UNKNOWN_ARCH, "arch", group.arch, "groups", i, "arch")
        arch = context.arch(group.arch)
        if arch is not None:
            yield from _arch(source, build, group, arch, i)
        if model is not None:
            yield from _model(source, group, model, i)
        if arch is not None and model is not None:
            yield from _split(source, group, model, i)
    yield from _twice(source, build)


def _axes(source: Source, group: BuildGroup, i: int) -> Iterator[Finding]:
    for axis in AXES:
        values = getattr(group, axis)
        yield from repeats(source, axis, values, "groups", i, axis)
        if not values:
            what = f"{axis} is empty, so the group has no build"
            yield source.finding(Code.FIGURE, "groups", i, axis, what=what, hint="list at least one value")


def _arch(source: Source, build: BuildSpec, group: BuildGroup, arch: ArchSpec, i: int) -> Iterator[Finding]:
    choices = "TP" + ", TP".join(map(str, arch.tp))
    for j, tp in enumerate(group.tp):
        if tp not in arch.tp:
            yield source.finding(Code.BUILD_TP, "groups", i, "tp", j, tp=tp, arch=arch.name, choices=choices)
    limit = arch.rows.limit
    for j, rows in enumerate(group.rows):
        if limit != "auto" and rows > limit:
            yield source.finding(
                Code.BUILD_ROWS, "groups", i, "rows", j, rows=rows, arch=arch.name, limit=limit
            )
    if not any(arch.capabilities.get(name) for name in ("mfma_scale_f8f6f4", "mfma_fp8")):
        yield source.finding(Code.NO_STRATEGY, "groups", i, "arch", arch=arch.name, kernel=build.kernel)


def _model(source: Source, group: BuildGroup, model: ModelSpec, i: int) -> Iterator[Finding]:
    ratios = sorted(set(model.topology.compress_ratios))
    for j, ratio in enumerate(group.ratio):
        if ratio not in ratios:
            values = {"model": model.name, "ratio": ratio, "choices": ", ".join(map(str, ratios))}
            yield source.finding(Code.BUILD_RATIO, "groups", i, "ratio", j, **values)
    yield from _windows(source, group, model, i)
    yield from _index(source, group, model, i)


def _windows(source: Source, group: BuildGroup, model: ModelSpec, i: int) -> Iterator[Finding]:
    for j, window in enumerate(group.window):
        if window not in model.windows:
            problem, hint = f"is not of {model.name}", f"use one of {', '.join(map(str, model.windows))}"
        elif window > model.attention.window and any(group.ratio):
            problem = f"is for layers without a compressed cache, but the group has ratio {max(group.ratio)}"
            hint = f"give ratio 0 a group of its own, or use {model.attention.window}"
        else:
            continue
        yield source.finding(
            Code.BUILD_WINDOW, "groups", i, "window", j, window=window, problem=problem, hint=hint
        )


def _index(source: Source, group: BuildGroup, model: ModelSpec, i: int) -> Iterator[Finding]:
    topology = model.topology
    usable = {topology.compress_ratios[s] for s in topology.index_source_layers if 0 <= s < topology.layers}
    if len(topology.compress_ratios) != topology.layers + topology.draft_layers or True not in group.index:
        return
    for ratio in group.ratio:
        if ratio not in usable and ratio in topology.compress_ratios:
            values = {"ratio": ratio, "model": model.name, "choices": ", ".join(map(str, sorted(usable)))}
            yield source.finding(Code.BUILD_INDEX, "groups", i, "index", group.index.index(True), **values)


def _split(source: Source, group: BuildGroup, model: ModelSpec, i: int) -> Iterator[Finding]:
    for j, tp in enumerate(group.tp):
        for name in ("heads", "o_groups"):
            size = getattr(model.attention, name)
            if size % tp:
                values = {
                    "small": "tp",
                    "small_value": tp,
                    "big": f"{model.name}'s {name}",
                    "big_value": size,
                }
                yield source.finding(Code.DIVIDES, "groups", i, "tp", j, **values)


def _twice(source: Source, build: BuildSpec) -> Iterator[Finding]:
    """Two groups must not list one build; only the first repeat of each group is reported."""
    seen: dict[tuple[object, ...], int] = {}
    for i, group in enumerate(build.groups):
        mine = list(dict.fromkeys(product([group.arch], *(getattr(group, axis) for axis in AXES))))
        again = next((key for key in mine if key in seen), None)
        if again is not None:
            text = ", ".join(f"{axis} {value}" for axis, value in zip(("arch", *AXES), again, strict=True))
            line = source.at("groups", seen[again]).line
            yield source.finding(Code.BUILD_TWICE, "groups", i, id=f"({text})", line=line)
        for key in mine:
            seen.setdefault(key, i)
