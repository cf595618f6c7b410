"""Choices that follow from what an arch can do; generated kernels carry the choice, never the question.

Invariant: only capabilities and the MFMA table of the spec are read. An arch that needs no new
strategy needs no new line here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...specs.schema import ArchSpec, Mfma
from .dims import STEP_K, TILE_ROWS
from .unsupported import Code, Reason

Gemv = Literal["scaled_mfma", "fp8_mfma_fma"]


@dataclass(frozen=True)
class MfmaUse:
    """One matrix instruction of the plan: how many make a GEMV step, and its cost in passes of 4 clocks."""

    name: str
    m: int
    n: int
    k: int
    passes: int
    per_step: int


@dataclass(frozen=True)
class Strategy:
    """How each capability-dependent operation is done; `why` gives one sentence a choice."""

    gemv: Gemv
    gemv_mfma: MfmaUse
    gate_mfma: MfmaUse
    bf16_mfma: MfmaUse  # QK and the router: the widest K of bf16; per_step: instructions of 32 columns
    pv_mfma: MfmaUse  # PV: 16 keys an instruction
    fp8: Literal["ocp", "fnuz"]
    fp8_max: int
    weight_layout: Literal["row_major", "tile_major"]
    lane_swap: Literal["permlane_swap", "bpermute"]
    bf16_cvt: Literal["cvt_pk", "integer_rne"]
    bf16_k: int
    fp8_cvt: Literal["scaled", "plain"]
    max3: bool
    bitop3: bool
    why: tuple[tuple[str, str], ...]


def strategy_of(arch: ArchSpec) -> Strategy:
    """The strategy of an arch; the caller has checked `strategy_reasons`."""
    gemv, gate = _gemv_mfma(arch), _gate_mfma(arch)
    pv = _find(arch, "bf16", 16, scaled=False)
    bf16 = _bf16_mfma(arch)
    assert gemv is not None and gate is not None and pv is not None and bf16 is not None
    scaled = gemv.scaled
    return Strategy(
        gemv="scaled_mfma" if scaled else "fp8_mfma_fma",
        gemv_mfma=_use(gemv, STEP_K // gemv.k),
        gate_mfma=_use(gate, 1),
        bf16_mfma=_use(bf16, 32 // bf16.k),
        pv_mfma=_use(pv, 1),
        fp8=arch.fp8.flavour,
        fp8_max=int(arch.fp8.max),
        weight_layout="row_major" if scaled else "tile_major",
        lane_swap="permlane_swap" if arch.has("permlane_swap") else "bpermute",
        bf16_cvt="cvt_pk" if arch.has("cvt_pk_bf16_f32") else "integer_rne",
        bf16_k=bf16.k,
        fp8_cvt="scaled" if arch.has("cvt_scalef32") else "plain",
        max3=arch.has("maximum3_f32"),
        bitop3=arch.has("bitop3"),
        why=_why(arch, scaled),
    )


def strategy_reasons(arch: ArchSpec) -> list[Reason]:
    """Which matrix instructions the arch lacks for the stages of a layer."""
    reasons = []
    if _gemv_mfma(arch) is None:
        reasons.append(
            Reason(
                Code.MFMA_MISSING,
                f"{arch.name} has neither a scaled 16x16x128 f8f6f4 MFMA nor a 16x16x32 FP8 MFMA",
                "if it has one, state the instruction and mfma_scale_f8f6f4 or mfma_fp8 in the arch spec",
            )
        )
    if _gate_mfma(arch) is None:
        reasons.append(
            Reason(
                Code.MFMA_MISSING,
                f"{arch.name} lists no 16x16x4 f32 MFMA, which the gate projection needs",
                "add the instruction to the arch spec's mfma table, if the arch has it",
            )
        )
    if _find(arch, "bf16", 16, scaled=False) is None:
        reasons.append(
            Reason(
                Code.MFMA_MISSING,
                f"{arch.name} lists no 16x16x16 bf16 MFMA, which the attention's PV product needs",
                "add the instruction to the arch spec's mfma table, if the arch has it",
            )
        )
    return reasons


def _bf16_mfma(arch: ArchSpec) -> Mfma | None:
    """The bf16 instruction with 32 columns if the arch has it, else the one with 16."""
    wide = _find(arch, "bf16", 32, scaled=False) if arch.has("mfma_bf16_k32") else None
    return wide or _find(arch, "bf16", 16, scaled=False)


def _gemv_mfma(arch: ArchSpec) -> Mfma | None:
    """The block-scaled instruction if there is one, else the plain FP8 one."""
    if arch.has("mfma_scale_f8f6f4"):
        found = _find(arch, "f8f6f4", STEP_K, scaled=True)
        if found is not None:
            return found
    return _find(arch, "fp8", 32, scaled=False) if arch.has("mfma_fp8") else None


def _gate_mfma(arch: ArchSpec) -> Mfma | None:
    return _find(arch, "f32", 4, scaled=False)


def _find(arch: ArchSpec, operand: str, k: int, *, scaled: bool) -> Mfma | None:
    for one in arch.mfma:
        shape = (one.m, one.n, one.k) == (TILE_ROWS, TILE_ROWS, k)
        if shape and one.a == one.b == operand and one.scaled == scaled:
            return one
    return None


def _use(mfma: Mfma, per_step: int) -> MfmaUse:
    return MfmaUse(mfma.name, mfma.m, mfma.n, mfma.k, mfma.passes, per_step)


def _why(arch: ArchSpec, scaled: bool) -> tuple[tuple[str, str], ...]:
    swap, pack = arch.has("permlane_swap"), arch.has("cvt_pk_bf16_f32")
    scaled_cvt = arch.has("cvt_scalef32")
    return (
        (
            "gemv",
            "the arch has a block-scaled MFMA, which accumulates scaled products itself"
            if scaled
            else "no block-scaled MFMA: FP8 MFMAs into zero accumulators, scaled by an exponent and fma",
        ),
        ("fp8", f"the MFMAs and conversions of the arch read {arch.fp8.flavour.upper()} bytes"),
        (
            "weight_layout",
            "the scaled MFMA's operand is 2 x 16 contiguous bytes of a row: the checkpoint's order serves"
            if scaled
            else "own copies, laid out for coalesced 16-byte loads of a wave",
        ),
        ("lane_swap", "v_permlane16/32_swap" if swap else "no permlane swap: ds_bpermute"),
        ("bf16_cvt", "packed conversion" if pack else "no packed conversion: integer round to nearest even"),
        ("fp8_cvt", "e4m3 times a scale to bf16" if scaled_cvt else "no scaled conversion: by way of f32"),
    )
