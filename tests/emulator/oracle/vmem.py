"""Scalar and vector memory on one byte array: SMEM, MUBUF (raw buffers) and GLOBAL, lane after lane.

`Memory` stands for one registered buffer at a host address; every access of a test stays inside it, except
buffer accesses that the descriptor's num_records must drop.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from asm import Ins, Reg

from .ds import combine
from .state import MASK32, MASK64, State, signed

_WIDTH = re.compile(r"_(load|store)_(dwordx?\d*|ubyte|sbyte|ushort|sshort|byte|short)$")
_ATOMIC = re.compile(
    r"(?:global|buffer)_atomic_(add|sub|smin|umin|smax|umax|and|or|xor|swap|cmpswap|inc|dec)(_x2)?$"
)


@dataclass
class Memory:
    base: int
    data: np.ndarray

    def load(self, address: int, size: int) -> int:
        at = address - self.base
        assert 0 <= at <= len(self.data) - size, "the test keeps accesses inside the buffer"
        return int.from_bytes(self.data[at : at + size].tobytes(), "little")

    def store(self, address: int, size: int, value: int) -> None:
        at = address - self.base
        assert 0 <= at <= len(self.data) - size
        self.data[at : at + size] = np.frombuffer(
            (value & (1 << 8 * size) - 1).to_bytes(size, "little"), np.uint8
        )


def access(name: str) -> tuple[bool, int, bool]:
    """(is it a load, bytes a lane, sign-extended) of a memory mnemonic."""
    found = _WIDTH.search(name)
    if not found:
        raise KeyError(name)
    kind = found[2]
    size = (
        1
        if "byte" in kind
        else 2
        if "short" in kind
        else 4 * int(kind.removeprefix("dword").lstrip("x") or 1)
    )
    return found[1] == "load", size, kind.startswith("s") and kind != "short"


def _reg(operand: object) -> Reg:
    assert isinstance(operand, Reg)
    return operand


def smem(state: State, ins: Ins, memory: Memory) -> None:
    """s_load_dword*: base + offsets with the two low bits dropped."""
    dwords = access(ins.name)[1] // 4
    offset = signed(ins.imm, 21) + (state.read(ins.src[1]) if len(ins.src) > 1 and ins.src[1] else 0)
    address = state.scalar(_reg(ins.src[0])) + offset & ~3 & MASK64
    state.set_scalar(_reg(ins.dst[0]), memory.load(address, 4 * dwords))


def _perform(
    state: State, ins: Ins, memory: Memory, lane: int, address: int, inside: list[bool]
) -> int | None:
    load, size, sign = access(ins.name)
    if not load:
        data = state.vector(_reg(ins.src[-1]), lane)
        step = min(size, 4)
        for i, ok in enumerate(inside):
            if ok:
                memory.store(address + 4 * i, step, data >> 32 * i)
        return None
    if size < 4:
        value = memory.load(address, size) if inside[0] else 0
        return signed(value, 8 * size) if sign else value
    return sum(memory.load(address + 4 * i, 4) << 32 * i for i, ok in enumerate(inside) if ok)


def _commit(state: State, ins: Ins, results: dict[int, int | None]) -> None:
    for lane, value in results.items():
        if value is not None:
            state.set_vector(_reg(ins.dst[0]), lane, value)


def buffer(state: State, ins: Ins, memory: Memory) -> None:
    """Raw buffer access: imm + voffset against num_records, a dword at a time; soffset is not checked."""
    resource = state.scalar(_reg(ins.src[1]))
    base, records = resource & (1 << 48) - 1, resource >> 64 & MASK32
    soffset = state.read(ins.src[2]) if ins.src[2] is not None else 0
    size = access(ins.name)[1]
    results = {}
    for lane in state.lanes():
        offset = ins.imm + (state.vector(_reg(ins.src[0]), lane) if ins.offen else 0)
        inside = [offset + 4 * i < records for i in range(max(size // 4, 1))]
        address = base + soffset + offset
        results[lane] = _perform(state, ins, memory, lane, address if size < 4 else address & ~3, inside)
    _commit(state, ins, results)


def _global_address(state: State, ins: Ins, lane: int) -> int:
    address, scalar = _reg(ins.src[0]), ins.src[1]
    offset = signed(ins.imm, 13)
    if scalar is None:
        return state.vector(address, lane) + offset & MASK64
    return state.scalar(_reg(scalar)) + (state.vector(address, lane) & MASK32) + offset & MASK64


def global_access(state: State, ins: Ins, memory: Memory) -> None:
    count = max(access(ins.name)[1] // 4, 1)
    _commit(
        state,
        ins,
        {
            lane: _perform(state, ins, memory, lane, _global_address(state, ins, lane), [True] * count)
            for lane in state.lanes()
        },
    )


_DS_NAMES = {"smin": ("min", "i"), "smax": ("max", "i"), "umin": ("min", "u"), "umax": ("max", "u"),
             "swap": ("wrxchg", "u")}  # fmt: skip


def _new_value(name: str, bits: int, old: int, data: int) -> int:
    """cmpswap: the low half of the data is the new value, the high half what memory must hold."""
    if name == "cmpswap":
        new, expected = data & (1 << bits) - 1, data >> bits
        return new if old == expected else old
    plain, sign = _DS_NAMES.get(name, (name, "u"))
    return combine(plain, sign, bits, old, data)


def atomic(state: State, ins: Ins, memory: Memory) -> None:
    """Global and raw buffer atomics, 32 and 64 bits; sc0 returns the old value. Out of a buffer: 0 /
    dropped."""
    found = _ATOMIC.match(ins.name)
    if not found:
        raise KeyError(ins.name)
    bits = 64 if found[2] else 32
    data_register = _reg(ins.src[-1])
    before: dict[int, int | None] = {}
    for lane in state.lanes():
        address, inside = _atomic_address(state, ins, lane)
        old = memory.load(address, bits // 8) if inside else 0
        if inside:
            memory.store(
                address, bits // 8, _new_value(found[1], bits, old, state.vector(data_register, lane))
            )
        before[lane] = old
    if ins.sc0:
        _commit(state, ins, before)


def _atomic_address(state: State, ins: Ins, lane: int) -> tuple[int, bool]:
    if ins.encoding == "global":
        return _global_address(state, ins, lane), True
    resource = state.scalar(_reg(ins.src[1]))
    offset = ins.imm + (state.vector(_reg(ins.src[0]), lane) if ins.offen else 0)
    soffset = state.read(ins.src[2]) if ins.src[2] is not None else 0
    return (resource & (1 << 48) - 1) + soffset + offset, offset < (resource >> 64 & MASK32)


def step(state: State, ins: Ins, memory: Memory) -> None:
    if ins.encoding == "smem":
        smem(state, ins, memory)
    elif "atomic" in ins.name:
        atomic(state, ins, memory)
    elif ins.encoding == "mubuf":
        buffer(state, ins, memory)
    else:
        global_access(state, ins, memory)
