"""How any vector ALU instruction runs: lanes, masks, modifiers, DPP, SDWA, carries. The operations are
elsewhere.

Invariants
 - Only lanes whose EXEC bit is set are written; a compare or carry-out writes its whole mask, inactive lanes
   0.
 - All lanes are computed from the old state before any lane is written (a DPP source may be the destination).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from asm import VCC, Ins, Operand, Reg

from . import lanes
from .state import State


@dataclass(frozen=True)
class Lane:
    """What an operation may see besides its sources: the old destination, the mask or carry bit, the
    instruction."""

    ins: Ins
    arch: str
    lane: int
    old: int
    bit: int


@dataclass(frozen=True)
class Vop:
    fn: Callable[..., int | tuple[int, int]]
    dst: str  # b32, b64, z16 (low half, high half zero), mask (compare), carry (b32 + mask), carry64
    src: tuple[str, ...]  # b32, f32, b16, f16, b64, i64, f64 for each source
    bit: bool = False  # reads a mask bit: VCC (short forms) or the third source


OPS: dict[str, Vop] = {}
SIGN_BIT = {"f16": 15, "f32": 31, "f64": 63}  # kinds whose sources take neg and abs


def op(names: str, src: str, dst: str = "b32", bit: bool = False) -> Callable[..., Callable[..., int]]:
    """Register fn(lane, *sources) under every name; `src` is a space separated list of kinds."""

    def register(fn: Callable[..., int]) -> Callable[..., int]:
        for name in names.split():
            OPS[name] = Vop(fn, dst, tuple(src.split()), bit)
        return fn

    return register


def plain(
    name: str, src: str, fn: Callable[..., int | tuple[int, int]], dst: str = "b32", bit: bool = False
) -> None:
    OPS[name] = Vop(lambda _lane, *sources: fn(*sources), dst, tuple(src.split()), bit)


def destination_width(vop: Vop) -> int:
    return 2 if vop.dst in ("b64", "carry64") else 1


def _source(state: State, ins: Ins, i: int, lane: int | None, kind: str) -> int:
    """Source i as the operation sees it; a DPP source lane of None reads 0, and modifiers act on that 0
    too."""
    operand: Operand = ins.src[i]
    value = 0 if lane is None else state.read(operand, lane, kind)
    if ins.sdwa and i < 2:
        value = lanes.sdwa_select(value, ins.sdwa.sel[i], ins.sdwa.sext[i])
    if kind == "b16":
        value &= 0xFFFF
    if kind in SIGN_BIT:
        sign = 1 << SIGN_BIT[kind]
        value = (value & sign * 2 - 1) & (~sign if ins.abs >> i & 1 else -1)
        value ^= sign if ins.neg >> i & 1 else 0
    return value


def _mask_operand(ins: Ins, vop: Vop) -> Reg:
    if ins.encoding in ("vop3", "vop3sd") and ins.name != "v_div_fmas_f32":
        operand = ins.src[len(vop.src)]
        assert isinstance(operand, Reg)
        return operand
    return VCC


def step(state: State, ins: Ins, arch: str) -> None:
    """Execute one per-lane instruction in place; KeyError when no family registered its name."""
    base = ins.name.replace("v_cmpx_", "v_cmp_")
    vop = OPS[base]
    mask = state.scalar(_mask_operand(ins, vop)) if vop.bit else 0
    results: dict[int, int | tuple[int, int]] = {}
    for lane in state.lanes():
        from_lane, written = lanes.dpp_source(ins.dpp, lane, state.exec) if ins.dpp else (lane, True)
        if not written:
            continue
        sources = []
        for i, kind in enumerate(vop.src):
            at = from_lane if i == 0 else lane
            sources.append(_source(state, ins, i, at, kind))
        dst = ins.dst[0] if ins.dst else None
        old = state.read(dst, lane) if isinstance(dst, Reg) and dst.kind == "v" else 0
        results[lane] = vop.fn(Lane(ins, arch, lane, old, mask >> lane & 1), *sources)
    _write(state, ins, vop, results)


def _write(state: State, ins: Ins, vop: Vop, results: dict[int, int | tuple[int, int]]) -> None:
    if vop.dst == "mask":
        bits = sum(1 << lane for lane, true in results.items() if true)
        target = ins.dst[0] if ins.dst else VCC
        assert isinstance(target, Reg)
        state.set_scalar(target, bits)
        if ins.name.startswith("v_cmpx_"):
            state.set_scalar(Reg("s", 126, 2), bits)
        return
    target = ins.dst[0]
    assert isinstance(target, Reg)
    carry_mask = 0
    for lane, result in results.items():
        if isinstance(result, tuple):
            result, carry = result
            carry_mask |= (carry & 1) << lane
        if vop.dst == "z16":
            result &= 0xFFFF
        if ins.sdwa:
            result = lanes.sdwa_merge(result, state.vector(target, lane), ins.sdwa)
        state.set_vector(target, lane, result)
    if vop.dst.startswith("carry"):
        out = ins.dst[1] if len(ins.dst) > 1 else VCC
        assert isinstance(out, Reg)
        state.set_scalar(out, carry_mask)
