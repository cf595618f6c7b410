"""One instruction on one wave: the dispatcher of the oracle."""

from __future__ import annotations

from asm import Ins

from . import convert, ds, lanes, mfma, salu, valu, valu_float, valu_int, valu_narrow
from .state import State

_REGISTERED = (convert, valu_float, valu_int, valu_narrow)  # importing them fills valu.OPS


def step(state: State, ins: Ins, arch: str) -> None:
    """Execute `ins` on `state` in place. KeyError: the oracle does not know the operation."""
    if ins.name.startswith("s_"):
        salu.step(state, ins)
    elif ins.name in lanes.OPS:
        lanes.OPS[ins.name](state, ins)
    elif ins.name in valu_float.PACKED:
        valu_float.PACKED[ins.name](state, ins)
    elif ins.name in valu_narrow.PACKED16:
        valu_narrow.PACKED16[ins.name](state, ins)
    elif ins.name.startswith("v_mfma_"):
        mfma.step(state, ins, arch)
    elif ins.name.startswith("ds_"):
        ds.step(state, ins)
    else:
        valu.step(state, ins, arch)


def knows(name: str) -> bool:
    """Whether a per-lane, scalar or lane operation of this name has an oracle (memory and MFMA go by
    pattern)."""
    families = (
        valu.OPS,
        salu.OPS,
        salu.SAVEEXEC,
        salu.WREXEC,
        lanes.OPS,
        valu_float.PACKED,
        valu_narrow.PACKED16,
    )
    return any(name in family for family in families)
