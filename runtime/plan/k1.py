"""The plan of one K1 build: every number that its template, its host code and its checks read.

`plan_k1(specs, key)` is a pure function of specs and key. It answers with a plan that has passed
`faults_of`, or raises `Unsupported` with every reason and the nearest key that has a plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from ...specs.schema import ArchSpec, ModelSpec
from .abi import Abi, k1_abi
from .cost import Cost, cost_of
from .dims import Dims, dims_of
from .handoff import blocked, programs_of
from .keys import BuildKey
from .lds import WAVES, LdsMap, front_struct, seam_struct, union_of
from .lines import k1_line_faults
from .passes import Passes, passes_of
from .placement import BLOCK, Grid, Stage, gate_groups, gate_slices, grid_of, slices_of, stages_of
from .scratch import Scratch, k1_regions, lay_out
from .strategy import Strategy, strategy_of
from .tags import EpochWords, Tags, epoch_words, tags_of
from .unsupported import Code, Reason, Unsupported
from .waits import Site, order_faults, sites_of
from .width import RowLimit, WidthReport, width_report

KINDS = ("k1",)


class SpecSet(Protocol):
    """What planning needs of the loaded specs."""

    @property
    def arch(self) -> Mapping[str, ArchSpec]: ...
    @property
    def model(self) -> Mapping[str, ModelSpec]: ...


@dataclass(frozen=True)
class SeamMap:
    """Loop counts of the seam's thread maps (attention.md 5.10)."""

    slices: int
    gate_groups: int
    gate_slices: int


@dataclass(frozen=True)
class K1Plan:
    """All numbers of one K1 build. `passes` are the GEMVs', `mix_passes` the gate projection's."""

    key: BuildKey
    grid: int
    block: int
    waves: int
    grid_why: str
    dims: Dims
    strategy: Strategy
    row_limit: RowLimit
    passes: Passes
    mix_passes: Passes
    seam: SeamMap
    stages: tuple[Stage, ...]
    sites: tuple[Site, ...]
    lds: LdsMap
    scratch: Scratch
    tags: Tags
    epoch: EpochWords
    abi: Abi
    cost: Cost

    def stage(self, name: str) -> Stage:
        """The stage `name`."""
        return {s.name: s for s in self.stages}[name]

    def site(self, name: str) -> Site:
        """The wait site `name`."""
        return {s.name: s for s in self.sites}[name]


def plan_k1(specs: SpecSet, key: BuildKey) -> K1Plan:
    """The plan of `key`; Unsupported with every reason and the nearest supported build."""
    reasons = key_reasons(specs, key)
    if reasons:
        near = nearest(specs, key)
        raise Unsupported(key.id, tuple(reasons), near.id if near else None)
    model, arch = model_of(specs, key.model), specs.arch[key.arch]
    assert model is not None
    plan = _plan(model, arch, key, width_report(model, arch))
    faults = faults_of(plan, arch)
    assert not faults, f"{key.id}: the plan contradicts itself: {faults}"
    return plan


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
    if key.index and key.ratio == 0:
        reasons.append(
            Reason(
                Code.INDEX_NEEDS_RATIO,
                "an index build of ratio 0: such layers select no compressed rows",
                "drop index, or take another ratio",
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


def _plan(model: ModelSpec, arch: ArchSpec, key: BuildKey, report: WidthReport) -> K1Plan:
    d, how, grid = dims_of(model, key.tp), strategy_of(arch), grid_of(arch)
    stages, sites = stages_of(d, key, grid), sites_of(d, key.rows, arch)
    gemv = passes_of(key.rows, report.width, report.why)
    mix = passes_of(
        key.rows, how.gate_mfma.n, "the seam holds every row of its columns in LDS: the MFMA's N decides"
    )
    lds = _lds(d, key.rows, gemv, stages, arch)
    scratch = lay_out(k1_regions(d, key.rows))
    abi = k1_abi(d, key, how, grid.workgroups, scratch.total)
    waves_per_simd = WAVES // arch.machine.simds_per_cu
    cost = cost_of(
        d,
        key,
        how,
        arch,
        stages,
        gemv,
        mix,
        abi,
        scratch,
        lds.total,
        grid.workgroups,
        waves_per_simd,
        longest_chain(sites),
    )
    return K1Plan(
        key=key,
        grid=grid.workgroups,
        block=BLOCK,
        waves=WAVES,
        grid_why=grid.why,
        dims=d,
        strategy=how,
        row_limit=report.limit,
        passes=gemv,
        mix_passes=mix,
        seam=SeamMap(slices_of(d), gate_groups(d), gate_slices(d)),
        stages=stages,
        sites=sites,
        lds=lds,
        scratch=scratch,
        tags=tags_of(),
        epoch=epoch_words(grid.workgroups),
        abi=abi,
        cost=cost,
    )


def _lds(d: Dims, rows: int, gemv: Passes, stages: tuple[Stage, ...], arch: ArchSpec) -> LdsMap:
    per_workgroup = next(s.per_workgroup for s in stages if s.name == "wq_b")
    return union_of(
        (seam_struct(d, rows), front_struct(d, gemv.lds_rows, per_workgroup)), arch.workgroup.lds_bytes
    )


def longest_chain(sites: tuple[Site, ...]) -> int:
    """Hand-offs in a row on the longest path through the wait graph."""
    depth: dict[str, int] = {}
    for site in sites:
        depth[site.stage] = max(depth.get(site.stage, 0), depth.get(site.producer, 0) + 1)
    return max(depth.values())


def faults_of(plan: K1Plan, arch: ArchSpec) -> list[str]:
    """Contradictions inside a plan, checked for each plan that is made; the property tests look deeper."""
    faults = order_faults(plan.sites, plan.stages)
    faults += [
        f"workgroup {b.workgroup} waits for ever in {b.task.stage} {b.task.index}"
        for b in blocked(programs_of(plan.stages, plan.sites, plan.grid))
    ]
    faults += k1_line_faults(plan.dims, plan.key.rows, plan.scratch, arch.memory.line_bytes)
    if plan.lds.total > plan.lds.budget:
        faults.append(f"LDS {plan.lds.total} exceeds {plan.lds.budget}")
    for stage in plan.stages:
        faults += [
            f"{stage.name}: no site {name!r}"
            for name in stage.waits
            if name not in {s.name for s in plan.sites}
        ]
        if stage.first + stage.span > plan.grid:
            faults.append(f"{stage.name}: runs past the grid")
    return faults


__all__ = ["Grid", "K1Plan", "SpecSet", "key_reasons", "model_of", "nearest", "plan_k1"]
