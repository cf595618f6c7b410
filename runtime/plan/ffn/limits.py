"""What the FFN half's kernels are built for beyond what every layer's tiles need.

Invariant: a spec past these limits is refused with the number and its cure; no kernel computes something else
in silence.
"""

from __future__ import annotations

from ....specs.schema import ArchSpec, ModelSpec
from ..dims import STEP_K, dims_of
from ..lds import WAVES
from ..placement import BLOCK
from ..strategy import strategy_of
from ..unsupported import Code, Reason
from .shape import k_slices_of

WIDE_STEP = 2 * STEP_K
"""Columns of a round of the routed gate/up: what a K slice has of a K block at least."""
PART_STEP = STEP_K // 2
"""Columns of a rank's experts: whole steps of down, and at most a half one behind them."""
WAVE_COLUMNS = 1024
"""Columns that a wave quantises (16 a lane), and that the router's waves share a step of each K part of."""
WAVE_FACTORS = 1024
"""Columns whose scale factors a wave of down has LDS for, where they are no operands: 32 blocks, 16 rows."""


def block_reasons(model: ModelSpec, arch: ArchSpec) -> list[Reason]:
    """Why x cannot be held in the K blocks that the arch spec states, for target and draft experts."""
    block, tp = arch.gemv.expert_k_block, arch.tp[0]
    if block == "whole":
        return []
    if strategy_of(arch).gemv == "scaled_mfma":
        text = f"expert_k_block {block}: with a block-scaled MFMA the routed gate/up holds whole rows of x"
        return [Reason(Code.K_BLOCK_UNFIT, text, "state whole")]
    slices = max(k_slices_of(dims_of(model, tp, draft=draft)) for draft in (False, True))
    unit = slices * WIDE_STEP
    if model.hidden % block == 0 and block % unit == 0:
        return []
    fitting = [str(b) for b in range(unit, model.hidden, unit) if model.hidden % b == 0]
    text = (
        f"expert_k_block {block}: the {model.hidden} columns of {model.name} are cut into whole blocks, and "
        f"a block into {slices} K slices of whole {WIDE_STEP}-column rounds"
    )
    return [Reason(Code.K_BLOCK_UNFIT, text, "state " + " or ".join([*fitting, "whole"]))]


def expert_reasons(model: ModelSpec, arch: ArchSpec, tp: int) -> list[Reason]:
    """Which sizes of its input and experts the FFN half is not built for; `tp` is one that divides."""
    most, w = max(model.moe.experts, model.draft.experts), model.moe.intermediate // tp
    tiled = strategy_of(arch).weight_layout == "tile_major"
    found = [
        (
            model.hidden % WAVE_COLUMNS != 0 or model.hidden > WAVES * WAVE_COLUMNS,
            f"hidden = {model.hidden} columns are no 1 to {WAVES} times {WAVE_COLUMNS}, a wave's share each",
        ),
        (most > BLOCK, f"{most} experts: the route table has a thread of {BLOCK} an expert"),
        (w % PART_STEP != 0, f"{w} expert columns at TP{tp} are no multiple of {PART_STEP}"),
        (
            tiled and w > WAVE_FACTORS,
            f"{w} expert columns at TP{tp}: {arch.name} keeps scale factors of {WAVE_FACTORS} a wave in LDS",
        ),
    ]
    fix = "take another TP size, or a model whose experts fit"
    return [Reason(Code.MODEL_SHAPE, text, fix) for wrong, text in found if wrong]
