"""The plan of one K1 build: every number that its template, its host code and its checks read.

`plan_k1(specs, key)` is a pure function of specs and key. It answers with a plan that has passed
`faults_of`, or raises `Unsupported` with every reason and the nearest key that has a plan.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...specs.schema import ArchSpec, ModelSpec
from .abi import Abi, k1_abi
from .cost import Cost, cost_of, mfma_of, residency_of
from .dims import SLICE_COLUMNS, Dims, dims_of
from .handoff import blocked, programs_of
from .keys import BuildKey
from .lds import WAVES, LdsMap, front_struct, seam_struct, union_of
from .lines import k1_line_faults
from .passes import Passes, passes_of
from .placement import BLOCK, Stage, gate_groups, gate_slices, grid_of, slices_of, stages_of
from .scratch import Scratch, k1_regions, lay_out
from .strategy import Strategy, strategy_of
from .support import SpecSet, key_reasons, model_of, nearest
from .tags import EpochWords, Tags, epoch_words, tags_of
from .traffic import Maps, traffic_of
from .unsupported import Unsupported
from .waits import Site, order_faults, sites_of
from .width import RowLimit, WidthReport, width_report


@dataclass(frozen=True)
class SeamMap:
    """Loop counts of the seam's thread maps (attention.md 5.10)."""

    slices: int
    slice_columns: int
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
    if faults:
        raise AssertionError(f"{key.id}: the plan contradicts itself: {faults}")
    return plan


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
    kept = residency_of(stages, arch)
    maps = Maps(d, key, grid.workgroups, {s.name: s for s in stages}, gemv, {r.stage: r.kept for r in kept})
    mfma = mfma_of(d, how, arch, stages, gemv, mix)
    traffic = traffic_of(maps, abi, scratch)
    cost = cost_of(arch, traffic, kept, mfma, scratch, lds.total, longest_chain(sites))
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
        seam=SeamMap(slices_of(d), SLICE_COLUMNS, gate_groups(d), gate_slices(d)),
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
