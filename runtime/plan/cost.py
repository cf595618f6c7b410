"""What one K1 launch must move and compute, and the bound that follows.

Invariants
 - `unique` counts each byte of an argument once; it is what HBM must deliver or take at least.
 - `requested` counts what the lanes ask for, by the thread maps of attention.md 5.10. For weights and outputs
   it is a promise (`promised`), which the emulator's counters are held to; for small operands that many lanes
   read alike it is the map's figure and may differ by how loads are shared.
 - Scratch is handed over past the L2 of an XCD within the Infinity Cache: it does not count as HBM traffic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...specs.schema import ArchSpec
from .abi import Abi
from .arith import cdiv
from .dims import SLICE_COLUMNS, TILE_ROWS, Dims
from .keys import BuildKey
from .lds import WAVE, WAVES
from .passes import Passes
from .placement import GemvShape, Stage, slices_of, wqkv_tasks
from .scratch import Scratch
from .strategy import Strategy

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
class Traffic:
    """Bytes of one argument."""

    name: str
    requested_read: int
    unique_read: int
    requested_write: int
    unique_write: int
    promised: bool


@dataclass(frozen=True)
class MfmaCount:
    """Matrix instructions of one stage. `per_pass` and `static` are in one wave's instruction stream."""

    stage: str
    instruction: str
    per_pass: int
    passes: int
    static: int  # unrolled over the passes and over the tasks of a workgroup
    executed: int  # all waves of all workgroups, masked ones included
    useful: int  # of these, with live weights
    clocks: int  # matrix-pipe clocks of the busiest SIMD


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


def residency_of(stages: Sequence[Stage], arch: ArchSpec, waves_per_simd: int) -> tuple[Residency, ...]:
    """The GEMV stages' weight registers against half of what a wave may use."""
    lane = arch.registers.vgprs_per_simd_lane // waves_per_simd
    budget, found = lane // WEIGHT_VGPR_SHARE, []
    for stage in stages:
        if stage.gemv is not None:
            need = WEIGHT_VGPRS_PER_STEP * stage.gemv.rounds * stage.per_workgroup
            kept = need <= budget
            verb = "stay in registers over the passes" if kept else "are read again in each pass"
            found.append(
                Residency(
                    stage.name,
                    need,
                    budget,
                    kept,
                    f"{need} VGPRs of weights, at most {budget} of {lane}: they {verb}",
                )
            )
    return tuple(found)


def cost_of(
    d: Dims,
    key: BuildKey,
    how: Strategy,
    arch: ArchSpec,
    stages: Sequence[Stage],
    gemv: Passes,
    mix: Passes,
    abi: Abi,
    scratch: Scratch,
    lds_bytes: int,
    grid: int,
    waves_per_simd: int,
    handoffs: int,
) -> Cost:
    """The cost sheet of one K1 build."""
    kept = residency_of(stages, arch, waves_per_simd)
    again = {r.stage: 1 if r.kept else gemv.count for r in kept}
    moved = _reads(d, key, how, grid, again) | _writes(d, key, grid)
    scratch_write, scratch_read = _scratch(d, key, grid)
    moved["scratch"] = (scratch_read, scratch.total, scratch_write, scratch.total, False)
    traffic = tuple(
        Traffic(a.name, *moved[a.name]) if a.used and a.name in moved else Traffic(a.name, 0, 0, 0, 0, False)
        for a in abi.arguments
        if a.type == "ptr"
    )
    mfma = _mfma(d, how, stages, gemv, mix, grid, waves_per_simd)
    return Cost(
        traffic=traffic,
        residency=kept,
        mfma=mfma,
        lds_bytes=lds_bytes,
        scratch_bytes=scratch.total,
        bound=_bound(arch, traffic, mfma, handoffs),
    )


Moved = dict[str, tuple[int, int, int, int, bool]]
"""name -> (requested read, unique read, requested write, unique write, promised)."""


def _reads(d: Dims, key: BuildKey, how: Strategy, grid: int, again: dict[str, int]) -> Moved:
    """Bytes read, by argument, as the thread maps ask for them."""
    s, h, c, waves = key.rows, d.streams, d.hidden, WAVES
    elements, pairs = s * h * c, s * c // 2
    per_stream = h if key.fold else 1
    seam: dict[str, tuple[int, int, bool]] = {
        "res_in": (elements * 2 * per_stream, elements * 2, False),
        "pend": (elements * 2, s * c * 2, False),
        "post_in": (elements * 4, s * h * 4, False),
        "comb_in": (elements * h * 4, s * h * h * 4, False),
        "pre_in": (pairs * h * 4, s * h * 4, False),
        "hc_fn": (d.mix * d.k_mix * 4, d.mix * d.k_mix * 4, True),
        "hc_scale": (s * d.mix * 4, 12, False),
        "hc_base": (s * d.mix * 4, d.mix * 4, False),
        "attn_w": (s * c * 2, c * 2, False),
        "qn_w": (s * d.q_rank * 2, d.q_rank * 2, False),
        "kvn_w": (s * d.kv_dim * 2, d.kv_dim * 2, False),
    }
    moved = seam | _weights(d, how, again) | _metadata(d, key, grid, waves)
    return {name: (asked, once, 0, 0, sure) for name, (asked, once, sure) in moved.items()}


def _weights(d: Dims, how: Strategy, again: dict[str, int]) -> dict[str, tuple[int, int, bool]]:
    """GEMV weights and their codes; a code is asked for by every lane of a wave that uses it."""
    per_step = WAVE * (1 if how.gemv == "scaled_mfma" else 4)
    found = {}
    for name, stage, rows, k in (("wqkv", "wqkv", d.qkv_rows, d.hidden), ("wqb", "wq_b", d.q_rows, d.q_rank)):
        size, block = rows * k, d.weight_block
        steps = cdiv(rows, TILE_ROWS) * (k // 128)
        found[name] = (size * again[stage], size, True)
        found[f"{name}_s"] = (steps * per_step * again[stage], size // block // block, False)
    return found


def _metadata(d: Dims, key: BuildKey, grid: int, waves: int) -> dict[str, tuple[int, int, bool]]:
    """Positions, slots, RoPE and key-table inputs; at most as much as full rows need."""
    s, entries, lanes = key.rows, key.rows * d.topk, waves * WAVE
    rotated = d.q_rows * d.rope // d.head_dim // 2
    return {
        "cos_sin": (s * d.rope * 4 + rotated * s * 8, s * d.rope * 4, False),
        "pos": ((s * d.half + rotated * s) * 4, s * 4, False),
        "slot": (s * 256 * 4, s * 4, False),
        "swa_idx": (s * key.window * 4, s * key.window * 4, False),
        "swa_lens": (s * lanes * 4, s * 4, False),
        "comp_bt": (entries * 4, entries * 4, False),
        "topk": (entries * 4, entries * 4, False),
        "t2r": (s * lanes * 4, s * 4, False),
        "epoch": (grid * lanes * 4, 4, False),
    }


def _writes(d: Dims, key: BuildKey, grid: int) -> Moved:
    """Bytes written; every output byte is stored once."""
    s, h = key.rows, d.streams
    sizes = {
        "res_out": s * h * d.hidden * 2,
        "post_out": s * h * 4,
        "comb_out": s * h * h * 4,
        "pre_out": s * h * 4,
        "swa": s * d.record_bytes,
        "q": s * d.q_rows * 2,
        "kt": s * d.keys * 4,
        "klen": 2 * s * 4,
        "normed_out": s * d.hidden * 2,
        "qr_out": s * d.q_rank * 2,
        "tl": grid * 5 * 8,
    }
    return {name: (0, 0, size, size, True) for name, size in sizes.items()}


def _scratch(d: Dims, key: BuildKey, grid: int) -> tuple[int, int]:
    """Bytes written to and read from scratch, each pair polled once (polls that miss come on top)."""
    s, group = key.rows, d.mx_group
    lin, pmix = s * d.hidden * 4, s * slices_of(d) * (d.mix + 1) * 8
    qkvp, row = 2 * s * d.qkv_rows * 8, d.hidden + d.hidden // group * 4
    q_row = d.q_rank + d.q_rank // group * 4
    written = lin + pmix + qkvp + s * (row + q_row + 3 * 8)
    parts = wqkv_tasks(d)
    read = lin + pmix + qkvp + s * (parts * (row // 2 + 8) + grid * (q_row + 8))
    return written, read


def _mfma(
    d: Dims, how: Strategy, stages: Sequence[Stage], gemv: Passes, mix: Passes, grid: int, waves_per_simd: int
) -> tuple[MfmaCount, ...]:
    """Gate projection and the two GEMVs; GEMV stages run on every workgroup, masked where it has no task."""
    gate, step = how.gate_mfma, how.gemv_mfma
    k_wave = d.streams * SLICE_COLUMNS // WAVES
    per_pass = cdiv(d.mix, gate.m) * (k_wave // gate.k)
    slices = slices_of(d)
    static = per_pass * mix.count
    rows = [
        MfmaCount(
            "slice",
            gate.name,
            per_pass,
            mix.count,
            static,
            static * WAVES * slices,
            static * WAVES * slices,
            static * waves_per_simd * gate.passes * PASS_CLOCKS,
        )
    ]
    for stage in stages:
        if stage.gemv is not None:
            rows.append(_gemv_mfma(stage, stage.gemv, how, gemv, grid, waves_per_simd))
    assert step.per_step * step.k == 128
    return tuple(rows)


def _gemv_mfma(
    stage: Stage, shape: GemvShape, how: Strategy, passes: Passes, grid: int, waves_per_simd: int
) -> MfmaCount:
    step = how.gemv_mfma
    per_pass = shape.rounds * step.per_step * stage.per_workgroup
    static = per_pass * passes.count
    useful = stage.tasks * shape.steps * step.per_step * passes.count
    return MfmaCount(
        stage.name,
        step.name,
        per_pass,
        passes.count,
        static,
        static * WAVES * grid,
        useful,
        static * waves_per_simd * step.passes * PASS_CLOCKS,
    )


def _bound(arch: ArchSpec, traffic: Sequence[Traffic], mfma: Sequence[MfmaCount], handoffs: int) -> Bound:
    memory = arch.memory
    moved = sum(t.unique_read + t.unique_write for t in traffic if t.name != "scratch")
    hbm_ns = cdiv(moved, int(memory.hbm_bandwidth.value))  # GB/s is bytes a nanosecond
    mfma_ns = cdiv(sum(m.clocks for m in mfma) * 1000, int(memory.clock_mhz.value))
    handoff_ns = int(memory.hbm_latency.value) + handoffs * int(memory.mall_latency.value)
    times = {"HBM traffic": hbm_ns, "matrix pipe": mfma_ns, "hand-off latency": handoff_ns}
    by = max(times, key=lambda name: times[name])
    why = (
        f"{moved} bytes at {int(memory.hbm_bandwidth.value)} GB/s; MFMA clocks of the busiest SIMD at "
        f"{int(memory.clock_mhz.value)} MHz; one HBM load and {handoffs} hand-offs in a row past L2"
    )
    return Bound(moved, hbm_ns, mfma_ns, handoffs, handoff_ns, times[by], by, why)
