"""The plan of one K2 build: the attention half, then the FFN half, of a whole layer."""

from __future__ import annotations

from dataclasses import dataclass

from ....specs.schema import ArchSpec, ModelSpec
from ..abi import Abi, abi_of
from ..base import KernelPlan, checked, longest_chain, plan_faults
from ..cost import MfmaCount, cost_of, mfma_of, residency_of, waves_per_simd
from ..dims import Dims, dims_of
from ..faults import fault_words
from ..ffn.abi import ffn_rows
from ..ffn.cost import epoch_reads, ffn_mfma, ffn_scratch, ffn_writes, seam_reads, weight_reads
from ..ffn.experts import ExpertBytes, expert_bytes
from ..ffn.launch import ffn_lds
from ..ffn.lines import ffn_line_faults
from ..ffn.regions import ffn_regions
from ..ffn.shape import FfnShape
from ..ffn.sites import ffn_sites
from ..ffn.stages import ORDER as FFN_ORDER
from ..ffn.stages import ffn_stages, mark_stage
from ..ffn.staging import Staging, stagings
from ..keys import BuildKey
from ..layout import Peer, attention_of, ffn_shape, fits, layer_layout, peer_of
from ..lds import WAVES, LdsMap, union_of
from ..lines import unit_faults
from ..passes import Passes, passes_of
from ..placement import BLOCK, Stage, grid_of
from ..points import POINTS
from ..scratch import Declared, Scratch
from ..seam import MIX_WHY, SeamMap, seam_map
from ..strategy import Strategy, strategy_of
from ..tags import epoch_words, tags_of
from ..traffic import Asked, Traffic, traffic_table
from ..waits import numbered
from ..width import WidthReport
from .abi import attention_rows
from .cost import attention_reads, attention_scratch, attention_writes, split_mfma
from .lds import gemv_struct, split_struct
from .regions import attention_regions, key_flags, unit_bytes
from .sites import attention_sites
from .stages import ORDER, AttentionShape, attention_stages

Halves = tuple[AttentionShape, FfnShape]


@dataclass(frozen=True)
class K2Plan(KernelPlan):
    """All numbers of one K2 build: `attention` and `ffn` are its halves."""

    mix_passes: Passes
    seam: SeamMap
    attention: AttentionShape
    ffn: FfnShape
    expert: ExpertBytes
    stagings: tuple[Staging, ...]
    peer: Peer


def make_k2(model: ModelSpec, arch: ArchSpec, key: BuildKey, report: WidthReport) -> K2Plan:
    """The plan of a key that `key_reasons` has nothing against."""
    d, how, grid = dims_of(model, key.tp, draft=key.draft), strategy_of(arch), grid_of(arch)
    size, f, a = (
        grid.workgroups,
        ffn_shape(model, arch, d, key.rows, report.width),
        attention_of(d, key, arch),
    )
    scratch = layer_layout(model, arch, key, report.width, draft=key.draft)
    fits(key.id, scratch, needed(d, a, f))
    stages = (mark_stage(size), *attention_stages(d, key, a, size), *ffn_stages(d, f, size))
    sites = numbered([*attention_sites(key.rows, a), *ffn_sites(d, f, size, "wo_b")])
    gemv = passes_of(key.rows, report.width, report.why)
    mix = passes_of(key.rows, how.gate_mfma.n, MIX_WHY)
    rows = ffn_rows(d, key.rows, how, size, scratch.total, k2=True, timeline=key.timeline)
    abi = abi_of([*attention_rows(d, key, how), *rows])
    lds = _lds(d, key.rows, a, f, how, arch)
    kept = residency_of([s for s in stages if s.name in ("wo_a", "wo_b")], arch)
    mfma = _mfma(d, a, f, how, arch, stages, gemv, mix)
    again = 1 if all(r.kept for r in kept) else gemv.count
    traffic = _traffic(d, key, (a, f), how, size, abi, scratch, again)
    plan = K2Plan(
        key=key,
        grid=size,
        block=BLOCK,
        waves=WAVES,
        grid_why=grid.why,
        dims=d,
        strategy=how,
        row_limit=report.limit,
        passes=gemv,
        stages=stages,
        sites=sites,
        lds=lds,
        scratch=scratch,
        tags=tags_of(),
        epoch=epoch_words(size),
        fault=fault_words(),
        abi=abi,
        cost=cost_of(arch, traffic, kept, mfma, scratch, lds.total, longest_chain(sites)),
        mix_passes=mix,
        seam=seam_map(d),
        attention=a,
        ffn=f,
        expert=expert_bytes(d, how),
        stagings=stagings(d, key.rows, report.width, how, arch),
        peer=peer_of(d, key.rows, report.limit.rows),
    )
    checked(faults_of(plan, arch), key)
    return plan


def needed(d: Dims, a: AttentionShape, f: FfnShape) -> tuple[Declared, ...]:
    """Every region of its own that a K2 build touches; lin, pmix, x8 and x8s are K1's in any layout."""
    own = (*attention_regions(d, f.rows, a, f.line), *ffn_regions(d, f))
    return (*own, key_flags(f.rows)) if a.kt_inside else own


def faults_of(plan: K2Plan, arch: ArchSpec) -> list[str]:
    """Contradictions inside a plan."""
    line = arch.memory.line_bytes
    faults = plan_faults(plan, (*ORDER, *FFN_ORDER))
    faults += unit_faults(plan.scratch, unit_bytes(plan.dims), line)
    return faults + ffn_line_faults(plan.dims, plan.scratch, line)


def _lds(d: Dims, rows: int, a: AttentionShape, f: FfnShape, how: Strategy, arch: ArchSpec) -> LdsMap:
    split = split_struct(d, a.split.chunk, a.split.head_groups)
    ffn = ffn_lds(d, f, how, arch)
    return union_of((split, gemv_struct(d, min(rows, f.width)), *ffn.structs), arch.workgroup.lds_bytes)


def _mfma(
    d: Dims,
    a: AttentionShape,
    f: FfnShape,
    how: Strategy,
    arch: ArchSpec,
    stages: tuple[Stage, ...],
    gemv: Passes,
    mix: Passes,
) -> tuple[MfmaCount, ...]:
    named, share = {s.name: s for s in stages}, waves_per_simd(arch)
    seam, *products = mfma_of(d, how, arch, (named["wo_a"], named["wo_b"]), gemv, mix)
    split = split_mfma(d, a, named["split"], how, share)
    return (*split, *products, seam, *ffn_mfma(d, f, how, share, named["ug"].grid))


def _traffic(
    d: Dims, key: BuildKey, halves: Halves, how: Strategy, grid: int, abi: Abi, scratch: Scratch, again: int
) -> tuple[Traffic, ...]:
    a, f = halves
    reads = attention_reads(d, key, a, again) | seam_reads(d, key.rows) | weight_reads(d, f, how, grid)
    reads |= epoch_reads(grid) | {"peers": Asked(grid * d.tp * 8, d.tp * 8)}
    writes = attention_writes(d, key) | ffn_writes(d, key.rows, grid, len(POINTS["k2"]))
    (w0, r0), (w1, r1) = attention_scratch(d, key.rows, a), ffn_scratch(d, f, grid)
    names = {r.name for r in needed(d, a, f)} | {"x8", "x8s", "lin", "pmix"}
    size = sum(r.bytes for r in scratch.regions if r.name in names)
    return traffic_table(abi, reads, writes, (r0 + r1, w0 + w1, size))
