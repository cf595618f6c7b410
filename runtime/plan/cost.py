"""What one K1 launch must move and compute, and the bound that follows.

Invariants
 - Instruction counts hold for the source: loops over passes and slices count once in `static`, waves and
   workgroups without work skip their instructions, so `executed` is live work alone.
 - Scratch stays within the Infinity Cache and does not count as HBM traffic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...specs.schema import ArchSpec
from .arith import cdiv
from .dims import SLICE_COLUMNS, Dims
from .lds import WAVES
from .passes import Passes
from .placement import GemvShape, Stage
from .scratch import Scratch
from .seam import slices_of
from .strategy import Strategy
from .traffic import Traffic

WEIGHT_VGPRS_PER_STEP = 8
"""A lane's two 16-byte loads of one 16-row x 128-K step."""
WEIGHT_VGPR_SHARE = 2
"""Weights that stay over the passes may take one VGPR in this many."""
PASS_CLOCKS = 4


@dataclass(frozen=True)
class Residency:
    """Whether a GEMV stage holds its weights in registers over all passes (each byte is then read once)."""

    stage: str
    vgprs: int
    budget: int
    kept: bool
    why: str


@dataclass(frozen=True)
class MfmaCount:
    """Matrix instructions of one stage.

    `static`: in one wave's source, every task of a workgroup, the loop over `passes` once. `executed`: by all
    waves of the launch, at most. `clocks`: matrix-pipe clocks of the busiest SIMD. `exact`: the source has
    just as many; not where a loop runs until a count that only the launch knows.
    """

    stage: str
    instruction: str
    static: int
    passes: int
    executed: int
    clocks: int
    exact: bool = True


@dataclass(frozen=True)
class Bound:
    """Lower bounds of the launch in nanoseconds; the largest is the roofline."""

    hbm_bytes: int
    hbm_ns: int
    mfma_ns: int
    handoffs: int
    handoff_ns: int
    ns: int
    by: str
    why: str


@dataclass(frozen=True)
class Cost:
    """The cost sheet."""

    traffic: tuple[Traffic, ...]
    residency: tuple[Residency, ...]
    mfma: tuple[MfmaCount, ...]
    lds_bytes: int
    scratch_bytes: int
    bound: Bound

    def __getitem__(self, argument: str) -> Traffic:
        return {t.name: t for t in self.traffic}[argument]


def residency_of(stages: Sequence[Stage], arch: ArchSpec) -> tuple[Residency, ...]:
    """The GEMV stages' weight registers against half of what a wave may use."""
    lane = arch.registers.vgprs_per_simd_lane // waves_per_simd(arch)
    budget, found = lane // WEIGHT_VGPR_SHARE, []
    for stage in stages:
        if stage.gemv is not None:
            need = WEIGHT_VGPRS_PER_STEP * stage.gemv.rounds * stage.per_workgroup
            kept = need <= budget
            verb = "stay in registers over the passes" if kept else "are read again in each pass"
            why = f"{need} VGPRs of weights, at most {budget} of {lane}: they {verb}"
            found.append(Residency(stage.name, need, budget, kept, why))
    return tuple(found)


def waves_per_simd(arch: ArchSpec) -> int:
    """Waves of the one resident workgroup that share a SIMD."""
    return cdiv(WAVES, arch.machine.simds_per_cu)


def mfma_of(
    d: Dims, how: Strategy, arch: ArchSpec, stages: Sequence[Stage], gemv: Passes, mix: Passes
) -> tuple[MfmaCount, ...]:
    """The gate projection of the slices, and the GEMVs of `stages`."""
    gate, share = how.gate_mfma, waves_per_simd(arch)
    static = cdiv(d.mix, gate.m) * (d.streams * SLICE_COLUMNS // WAVES // gate.k)
    work = static * mix.count
    clocks = work * share * gate.passes * PASS_CLOCKS
    rows = [MfmaCount("slice", gate.name, static, mix.count, work * WAVES * slices_of(d), clocks)]
    rows += [gemv_count(s, s.gemv, how, gemv, share) for s in stages if s.gemv is not None]
    return tuple(rows)


def gemv_count(stage: Stage, shape: GemvShape, how: Strategy, passes: Passes, share: int) -> MfmaCount:
    step = how.gemv_mfma
    static = shape.rounds * step.per_step * stage.per_workgroup
    """A GEMV stage that runs `passes` over its weights."""
    executed = stage.tasks * shape.task_tiles * shape.steps * step.per_step * passes.count
    clocks = static * passes.count * share * step.passes * PASS_CLOCKS
    return MfmaCount(stage.name, step.name, static, passes.count, executed, clocks)


def cost_of(
    arch: ArchSpec,
    traffic: tuple[Traffic, ...],
    kept: tuple[Residency, ...],
    mfma: tuple[MfmaCount, ...],
    scratch: Scratch,
    lds_bytes: int,
    handoffs: int,
) -> Cost:
    """The cost sheet of one build; `handoffs`: how many follow one another on the longest path."""
    return Cost(traffic, kept, mfma, lds_bytes, scratch.total, _bound(arch, traffic, mfma, handoffs))


def _bound(arch: ArchSpec, traffic: Sequence[Traffic], mfma: Sequence[MfmaCount], handoffs: int) -> Bound:
    memory = arch.memory
    clock, bandwidth = int(memory.clock_mhz.value), int(memory.hbm_bandwidth.value)
    moved = sum(t.unique_read + t.unique_write for t in traffic if t.name != "scratch")
    hbm_ns = cdiv(moved, bandwidth)  # GB/s is bytes a nanosecond
    mfma_ns = cdiv(sum(m.clocks for m in mfma) * 1000, clock)
    handoff_ns = int(memory.hbm_latency.value) + handoffs * int(memory.mall_latency.value)
    times = {"HBM traffic": hbm_ns, "matrix pipe": mfma_ns, "hand-off latency": handoff_ns}
    by = max(times, key=lambda name: times[name])
    why = (
        f"{moved} bytes at {bandwidth} GB/s; MFMA clocks of the busiest SIMD at {clock} MHz; "
        f"one HBM load, then {handoffs} hand-offs past L2 in a row"
    )
    return Bound(moved, hbm_ns, mfma_ns, handoffs, handoff_ns, times[by], by, why)
