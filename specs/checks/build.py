"""Does the shipped matrix name only builds that the archs and the model admit?

What depends on arithmetic of a kernel (does LDS suffice, is a row limit computed) is the plan's to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from ..findings import Code, Finding, near
from ..schema import ArchSpec, BuildGroup, BuildSpec, ModelSpec
from ..source import Source
from ..tree import Step
from .context import Context, repeats

AXES = ("tp", "ratio", "fold", "index", "window", "timeline", "draft")
"""What a group lists itself; its rows may be a name of `widths`."""


def check_build(source: Source, build: BuildSpec, context: Context) -> Iterator[Finding]:
    """All findings of one build file."""
    yield from context.unknown(source, Code.UNKNOWN_MODEL, "model", build.model, "model")
    model = context.model(build.model)
    yield from _widths(source, build)
    for i, group in enumerate(build.groups):
        yield from _axes(source, group, i)
        yield from _rows(source, build, group, i)
        yield from context.unknown(source, Code.UNKNOWN_ARCH, "arch", group.arch, "groups", i, "arch")
        arch = context.arch(group.arch)
        if arch is not None:
            yield from _arch(source, build, group, arch, i)
        if model is not None:
            yield from _model(source, group, model, i)
        if arch is not None and model is not None:
            yield from _split(source, group, model, i)
    yield from _twice(source, build)


def _widths(source: Source, build: BuildSpec) -> Iterator[Finding]:
    used = {group.rows for group in build.groups}
    for name, rows in build.widths.items():
        yield from _listed(source, "rows", rows, "widths", name)
        if name not in used:
            yield source.finding(Code.UNUSED_WIDTHS, "widths", name, name=name)


def _rows(source: Source, build: BuildSpec, group: BuildGroup, i: int) -> Iterator[Finding]:
    if not isinstance(group.rows, str):
        yield from _listed(source, "rows", group.rows, "groups", i, "rows")
    elif group.rows not in build.widths:
        hint = near(group.rows, build.widths)
        yield source.finding(Code.UNKNOWN_WIDTHS, "groups", i, "rows", name=group.rows, hint=hint)


def _listed(source: Source, what: str, values: Sequence[object], *path: Step) -> Iterator[Finding]:
    """Values of a list: at least one, and none twice."""
    yield from repeats(source, what, values, *path)
    if not values:
        empty = f"{what} is empty, so the group has no build"
        yield source.finding(Code.FIGURE, *path, what=empty, hint="list at least one value")


def _axes(source: Source, group: BuildGroup, i: int) -> Iterator[Finding]:
    for axis in AXES:
        yield from _listed(source, axis, getattr(group, axis), "groups", i, axis)


def _arch(source: Source, build: BuildSpec, group: BuildGroup, arch: ArchSpec, i: int) -> Iterator[Finding]:
    choices = "TP" + ", TP".join(map(str, arch.tp))
    for j, tp in enumerate(group.tp):
        if tp not in arch.tp:
            yield source.finding(Code.BUILD_TP, "groups", i, "tp", j, tp=tp, arch=arch.name, choices=choices)
    limit = arch.rows.limit
    place: tuple[Step, ...] = ("groups", i, "rows")
    for j, rows in enumerate(build.rows_of(group)):
        if limit != "auto" and rows > limit:
            at = place if isinstance(group.rows, str) else (*place, j)
            yield source.finding(Code.BUILD_ROWS, *at, rows=rows, arch=arch.name, limit=limit)
    if not any(arch.capabilities.get(name) for name in ("mfma_scale_f8f6f4", "mfma_fp8")):
        yield source.finding(Code.NO_STRATEGY, "groups", i, "arch", arch=arch.name, kernel=group.kernel)


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
        axes = (getattr(group, axis) for axis in AXES)
        mine = list(dict.fromkeys(product([group.kernel], [group.arch], build.rows_of(group), *axes)))
        again = next((key for key in mine if key in seen), None)
        if again is not None:
            text = ", ".join(
                f"{axis} {value}"
                for axis, value in zip(("kernel", "arch", "rows", *AXES), again, strict=True)
            )
            line = source.at("groups", seen[again]).line
            yield source.finding(Code.BUILD_TWICE, "groups", i, id=f"({text})", line=line)
        for key in mine:
            seen.setdefault(key, i)
