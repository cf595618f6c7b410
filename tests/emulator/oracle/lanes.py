"""Lane traffic: DPP, SDWA selects, readlane and its kin, permlane swaps, ds_bpermute, ds_permute,
ds_swizzle."""

from __future__ import annotations

from asm import Dpp, Ins, Reg, Sdwa

from .state import LANES, MASK32, State

QUAD_PERM, ROW_SHL, ROW_SHR, ROW_ROR = 0x000, 0x100, 0x110, 0x120
WAVE_SHL, WAVE_ROL, WAVE_SHR, WAVE_ROR = 0x130, 0x134, 0x138, 0x13C
ROW_MIRROR, ROW_HALF_MIRROR, ROW_BCAST15, ROW_BCAST31, ROW_NEWBCAST = 0x140, 0x141, 0x142, 0x143, 0x150


def dpp_lane(ctrl: int, lane: int) -> int | None:
    """The lane that a DPP control reads for `lane`; None where that is outside the row (or the wave)."""
    row, at = lane & ~15, lane & 15
    amount = ctrl & 15
    if ctrl < 0x100:
        return lane & ~3 | ctrl >> 2 * (lane & 3) & 3
    if ROW_SHL < ctrl <= 0x10F:
        return row + at + amount if at + amount < 16 else None
    if ROW_SHR < ctrl <= 0x11F:
        return row + at - amount if at >= amount else None
    if ROW_ROR < ctrl <= 0x12F:
        return row + (at - amount) % 16
    if ctrl == WAVE_SHL:
        return lane + 1 if lane < 63 else None
    if ctrl == WAVE_ROL:
        return (lane + 1) % 64
    if ctrl == WAVE_SHR:
        return lane - 1 if lane else None
    if ctrl == WAVE_ROR:
        return (lane - 1) % 64
    if ctrl == ROW_MIRROR:
        return row + 15 - at
    if ctrl == ROW_HALF_MIRROR:
        return row + (at & 8) + 7 - (at & 7)
    if ctrl == ROW_BCAST15:
        return row - 1 if row else None
    if ctrl == ROW_BCAST31:
        return 31 if lane >= 32 else None
    if ROW_NEWBCAST <= ctrl <= 0x15F:
        return row + amount
    raise KeyError(f"DPP control {ctrl:#x}")


def dpp_source(dpp: Dpp, lane: int, exec_mask: int) -> tuple[int | None, bool]:
    """(source lane or None for the value 0, is the lane written). Masks stop the write and not the fetch."""
    if not (dpp.row_mask >> lane // 16 & 1 and dpp.bank_mask >> (lane & 15) // 4 & 1):
        return None, False
    source = dpp_lane(dpp.ctrl, lane)
    if source is not None and exec_mask >> source & 1:
        return source, True
    return None, dpp.bound_ctrl


def sdwa_select(value: int, sel: int, sext: bool) -> int:
    if sel == 6:
        return value & MASK32
    width = 8 if sel < 4 else 16
    value = value >> (8 * sel if sel < 4 else 16 * (sel - 4)) & (1 << width) - 1
    if sext and value >> width - 1:
        value |= MASK32 & ~((1 << width) - 1)
    return value


def sdwa_merge(result: int, old: int, sdwa: Sdwa) -> int:
    """Place a result into the selected part of the destination; 0 pads, 1 sign-extends, 2 preserves the
    rest."""
    if sdwa.dst_sel == 6:
        return result
    width = 8 if sdwa.dst_sel < 4 else 16
    shift = 8 * sdwa.dst_sel if sdwa.dst_sel < 4 else 16 * (sdwa.dst_sel - 4)
    field = ((1 << width) - 1) << shift
    placed = result << shift & field
    if sdwa.dst_unused == 2:
        return placed | old & MASK32 & ~field
    if sdwa.dst_unused == 1 and result >> width - 1 & 1:
        placed |= MASK32 << shift + width & MASK32
    return placed


def swizzle_lane(offset: int, lane: int) -> int:
    """The source lane of ds_swizzle: quad mode with bit 15, else and/or/xor masks within 32 lanes."""
    if offset & 0x8000:
        return lane & ~3 | offset >> 2 * (lane & 3) & 3
    and_mask, or_mask, xor_mask = offset & 31, offset >> 5 & 31, offset >> 10 & 31
    return lane & 32 | ((lane & 31 & and_mask) | or_mask) ^ xor_mask


def _vreg(operand: object) -> Reg:
    assert isinstance(operand, Reg) and operand.kind == "v"
    return operand


def readlane(state: State, ins: Ins) -> None:
    source = _vreg(ins.src[0])
    if ins.name == "v_readlane_b32":
        lane = state.read(ins.src[1]) & 63
    else:
        lane = (state.lanes() or [0])[0]
    dst = ins.dst[0]
    assert isinstance(dst, Reg)
    state.set_scalar(dst, state.vector(source, lane))


def writelane(state: State, ins: Ins) -> None:
    state.set_vector(_vreg(ins.dst[0]), state.read(ins.src[1]) & 63, state.read(ins.src[0]))


def permlane_swap(state: State, ins: Ins) -> None:
    """Rows of 16: swap16 exchanges D.1<->S.0 and D.3<->S.2; swap32 exchanges D.2<->S.0 and D.3<->S.1."""
    d, s = state.v[_vreg(ins.dst[0]).index], state.v[_vreg(ins.src[0]).index]
    pairs = ((1, 0), (3, 2)) if "16" in ins.name else ((2, 0), (3, 1))
    for in_d, in_s in pairs:
        a, b = slice(16 * in_d, 16 * in_d + 16), slice(16 * in_s, 16 * in_s + 16)
        keep = d[a].copy()
        d[a] = s[b]
        s[b] = keep


def swap(state: State, ins: Ins) -> None:
    d, s = _vreg(ins.dst[0]), _vreg(ins.src[0])
    for lane in state.lanes():
        a, b = state.vector(d, lane), state.vector(s, lane)
        state.set_vector(d, lane, b)
        state.set_vector(s, lane, a)


def bpermute(state: State, ins: Ins) -> None:
    address, data = _vreg(ins.src[0]), _vreg(ins.src[1])
    got = {}
    for lane in state.lanes():
        source = (state.vector(address, lane) + ins.imm) // 4 % LANES
        got[lane] = state.vector(data, source) if state.exec >> source & 1 else 0
    for lane, value in got.items():
        state.set_vector(_vreg(ins.dst[0]), lane, value)


def permute(state: State, ins: Ins) -> None:
    """Push: each active lane sends its datum to lane address/4; the highest sender wins, nobody sent gives
    0."""
    address, data = _vreg(ins.src[0]), _vreg(ins.src[1])
    got = dict.fromkeys(range(LANES), 0)
    for lane in state.lanes():
        got[(state.vector(address, lane) + ins.imm) // 4 % LANES] = state.vector(data, lane)
    for lane in state.lanes():
        state.set_vector(_vreg(ins.dst[0]), lane, got[lane])


def swizzle(state: State, ins: Ins) -> None:
    data = _vreg(ins.src[0])
    got = {}
    for lane in state.lanes():
        source = swizzle_lane(ins.imm, lane)
        got[lane] = state.vector(data, source) if state.exec >> source & 1 else 0
    for lane, value in got.items():
        state.set_vector(_vreg(ins.dst[0]), lane, value)


OPS = {
    "v_readlane_b32": readlane,
    "v_readfirstlane_b32": readlane,
    "v_writelane_b32": writelane,
    "v_permlane16_swap_b32": permlane_swap,
    "v_permlane32_swap_b32": permlane_swap,
    "v_swap_b32": swap,
    "ds_bpermute_b32": bpermute,
    "ds_permute_b32": permute,
    "ds_swizzle_b32": swizzle,
}
