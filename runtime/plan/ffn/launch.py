"""The plan of one FFN launch: the FFN half behind a push stage, for layers whose attention something else
runs.

It runs on the target's scratch, whatever its own mixture is (a draft layer's has fewer experts and picks):
that its regions fit is checked for every plan.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....specs.schema import ArchSpec, ModelSpec
from ..abi import abi_of
from ..base import KernelPlan, checked, longest_chain, plan_faults
from ..cost import cost_of, mfma_of, waves_per_simd
from ..dims import Dims, dims_of
from ..faults import fault_words
from ..keys import BuildKey
from ..layout import Peer, ffn_shape, fits, layer_layout, peer_of
from ..lds import WAVES, LdsMap, union_of
from ..passes import Passes, passes_of
from ..placement import BLOCK, grid_of
from ..points import POINTS
from ..scratch import Scratch
from ..seam import MIX_WHY, SeamMap, seam_map, seam_struct
from ..strategy import Strategy, strategy_of
from ..tags import epoch_words, tags_of
from ..traffic import Asked, Traffic, traffic_table
from ..waits import numbered
from ..width import WidthReport
from .abi import ffn_rows, part_row
from .cost import epoch_reads, ffn_mfma, ffn_scratch, ffn_writes, seam_reads, weight_reads
from .experts import ExpertBytes, expert_bytes
from .lds import moe_structs
from .lines import ffn_line_faults
from .regions import ffn_regions
from .shape import FfnShape
from .sites import ffn_sites
from .stages import ORDER, PUSH, ffn_stages, mark_stage, push_stage
from .staging import Staging, stagings


@dataclass(frozen=True)
class FfnPlan(KernelPlan):
    """All numbers of one FFN launch; `ffn` is the half that K2 shares."""

    mix_passes: Passes
    seam: SeamMap
    ffn: FfnShape
    expert: ExpertBytes
    stagings: tuple[Staging, ...]
    peer: Peer


def make_ffn(model: ModelSpec, arch: ArchSpec, key: BuildKey, report: WidthReport) -> FfnPlan:
    """The plan of a key that `key_reasons` has nothing against."""
    d, how = dims_of(model, key.tp, draft=key.draft), strategy_of(arch)
    grid, f = grid_of(arch), ffn_shape(model, arch, d, key.rows, report.width)
    size = grid.workgroups
    scratch = layer_layout(model, arch, key, report.width, draft=False)
    fits(key.id, scratch, ffn_regions(d, f))
    stages = (mark_stage(size), push_stage(d, size), *ffn_stages(d, f, size))
    sites = numbered(ffn_sites(d, f, size, PUSH))
    mix = passes_of(key.rows, how.gate_mfma.n, MIX_WHY)
    gemv = passes_of(key.rows, report.width, report.why)
    rows = ffn_rows(d, key.rows, how, size, scratch.total, k2=False, timeline=key.timeline)
    abi = abi_of([part_row(d, key.rows), *rows])
    lds = ffn_lds(d, f, how, arch)
    mfma = (*mfma_of(d, how, arch, (), gemv, mix), *ffn_mfma(d, f, how, waves_per_simd(arch), size))
    reads = seam_reads(d, key.rows) | weight_reads(d, f, how, size) | epoch_reads(size)
    reads["part"] = Asked(key.rows * d.hidden * 2, key.rows * d.hidden * 2, True)
    reads["peers"] = Asked(size * d.tp * 8, d.tp * 8)
    written, read = ffn_scratch(d, f, size)
    traffic: tuple[Traffic, ...] = traffic_table(
        abi, reads, ffn_writes(d, key.rows, size, len(POINTS["ffn"])), (read, written, _used(scratch, d, f))
    )
    plan = FfnPlan(
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
        cost=cost_of(arch, traffic, (), mfma, scratch, lds.total, longest_chain(sites)),
        mix_passes=mix,
        seam=seam_map(d),
        ffn=f,
        expert=expert_bytes(d, how),
        stagings=stagings(d, key.rows, report.width, how, arch),
        peer=peer_of(d, key.rows, report.limit.rows),
    )
    faults = plan_faults(plan, ("mark", PUSH, *ORDER))
    checked(faults + ffn_line_faults(d, scratch, arch.memory.line_bytes), key)
    return plan


def ffn_lds(d: Dims, f: FfnShape, how: Strategy, arch: ArchSpec) -> LdsMap:
    """Seam, then the FFN half's structs."""
    moe = moe_structs(d, f.rows, f.width, None, f.pick_width, f.k_block)
    return union_of((seam_struct(d, f.rows, k2=True), *moe), arch.workgroup.lds_bytes)


def _used(scratch: Scratch, d: Dims, f: FfnShape) -> int:
    """Bytes of the regions that the launch touches."""
    names = {r.name for r in ffn_regions(d, f)} | {"x8", "x8s", "lin", "pmix"}
    return sum(r.bytes for r in scratch.regions if r.name in names)
