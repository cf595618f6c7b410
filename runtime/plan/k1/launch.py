"""The plan of one K1 build: every number that its template, its host code and its checks read."""

from __future__ import annotations

from dataclasses import dataclass

from ....specs.schema import ArchSpec, ModelSpec
from ..base import KernelPlan, checked, longest_chain, plan_faults
from ..cost import cost_of, mfma_of, residency_of
from ..dims import Dims, dims_of
from ..faults import fault_words
from ..keys import BuildKey
from ..layout import fits, is_draft, layer_layout
from ..lds import WAVES, LdsMap, union_of
from ..passes import Passes, passes_of
from ..placement import BLOCK, Stage, grid_of
from ..seam import MIX_WHY, SeamMap, seam_map, seam_struct
from ..strategy import strategy_of
from ..tags import epoch_words, tags_of
from ..width import WidthReport
from .abi import k1_abi
from .lds import front_struct
from .lines import k1_line_faults
from .regions import k1_regions
from .sites import sites_of
from .stages import STAGE_ORDER, stages_of
from .traffic import Maps, traffic_of


@dataclass(frozen=True)
class K1Plan(KernelPlan):
    """All numbers of one K1 build. `mix_passes` are the gate projection's."""

    mix_passes: Passes
    seam: SeamMap


def make_k1(model: ModelSpec, arch: ArchSpec, key: BuildKey, report: WidthReport) -> K1Plan:
    """The plan of a key that `key_reasons` has nothing against."""
    draft = is_draft(model, key)
    d, how, grid = dims_of(model, key.tp, draft=draft), strategy_of(arch), grid_of(arch)
    scratch = layer_layout(model, arch, key, report.width, draft=draft)
    fits(key.id, scratch, k1_regions(d, key.rows))
    stages, sites = stages_of(d, key, grid), sites_of(d, key.rows)
    gemv = passes_of(key.rows, report.width, report.why)
    mix = passes_of(key.rows, how.gate_mfma.n, MIX_WHY)
    lds = _lds(d, key.rows, gemv, stages, arch)
    abi = k1_abi(d, key, how, grid.workgroups, scratch.total)
    kept = residency_of(stages, arch)
    maps = Maps(d, key, grid.workgroups, {s.name: s for s in stages}, gemv, {r.stage: r.kept for r in kept})
    mfma = mfma_of(d, how, arch, stages, gemv, mix)
    traffic = traffic_of(maps, abi, scratch)
    cost = cost_of(arch, traffic, kept, mfma, scratch, lds.total, longest_chain(sites))
    plan = K1Plan(
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
        seam=seam_map(d),
        stages=stages,
        sites=sites,
        lds=lds,
        scratch=scratch,
        tags=tags_of(),
        epoch=epoch_words(grid.workgroups),
        fault=fault_words(),
        abi=abi,
        cost=cost,
    )
    checked(faults_of(plan, arch), key)
    return plan


def _lds(d: Dims, rows: int, gemv: Passes, stages: tuple[Stage, ...], arch: ArchSpec) -> LdsMap:
    per_workgroup = next(s.per_workgroup for s in stages if s.name == "wq_b")
    return union_of(
        (seam_struct(d, rows), front_struct(d, gemv.lds_rows, per_workgroup)), arch.workgroup.lds_bytes
    )


def faults_of(plan: K1Plan, arch: ArchSpec) -> list[str]:
    """Contradictions inside a plan."""
    rows, line = plan.key.rows, arch.memory.line_bytes
    return plan_faults(plan, STAGE_ORDER) + k1_line_faults(plan.dims, rows, plan.scratch, line)
