"""LDS: reads, writes and atomics on a byte array, lane after lane. Addresses are bytes from the group's
base."""

from __future__ import annotations

import re

from asm import Ins, Reg

from .state import MASK32, State, signed

_SINGLE = re.compile(r"ds_(read|write)_(b8|b16|b32|b64|b96|b128|u8|i8|u16|i16)$")
_DOUBLE = re.compile(r"ds_(read|write)2(st64)?_b(32|64)$")
_ATOMIC = re.compile(
    r"ds_(add|sub|rsub|inc|dec|min|max|and|or|xor|mskor|wrxchg|cmpst)_(rtn_)?([iub])(32|64)$"
)
_HIGH = re.compile(r"ds_write_b(8|16)_d16_hi$")
BYTES = {"b8": 1, "u8": 1, "i8": 1, "b16": 2, "u16": 2, "i16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16}


def _load(state: State, address: int, size: int) -> int:
    assert address + size <= len(state.lds), "the test generator keeps addresses inside the LDS"
    return int.from_bytes(state.lds[address : address + size].tobytes(), "little")


def _store(state: State, address: int, size: int, value: int) -> None:
    assert address + size <= len(state.lds)
    for i in range(size):
        state.lds[address + i] = value >> 8 * i & 0xFF


def _reg(operand: object) -> Reg:
    assert isinstance(operand, Reg)
    return operand


def _single(state: State, ins: Ins, kind: str, what: str) -> None:
    size = BYTES[what]
    loaded = {}
    for lane in state.lanes():
        address = (state.vector(_reg(ins.src[0]), lane) + ins.imm) & MASK32
        if kind == "write":
            _store(state, address, size, state.vector(_reg(ins.src[1]), lane))
        else:
            value = _load(state, address, size)
            loaded[lane] = signed(value, 8 * size) if what[0] == "i" else value
    for lane, value in loaded.items():
        state.set_vector(_reg(ins.dst[0]), lane, value)


def _double(state: State, ins: Ins, kind: str, size: int, stride: int) -> None:
    loaded = {}
    for lane in state.lanes():
        base = state.vector(_reg(ins.src[0]), lane)
        first, second = (base + stride * n & MASK32 for n in (ins.offset0, ins.offset1))
        if kind == "write":
            _store(state, first, size, state.vector(_reg(ins.src[1]), lane))
            _store(state, second, size, state.vector(_reg(ins.src[2]), lane))
        else:
            loaded[lane] = _load(state, first, size) | _load(state, second, size) << 8 * size
    for lane, value in loaded.items():
        state.set_vector(_reg(ins.dst[0]), lane, value)


def combine(name: str, sign: str, bits: int, old: int, data: int, second: int = 0) -> int:
    """The new memory value of an integer atomic (DS names; `second` is the other datum of mskor and
    cmpst)."""
    if name in ("min", "max"):
        pick = min if name == "min" else max
        return pick(signed(old, bits), signed(data, bits)) if sign == "i" else pick(old, data)
    if name == "inc":
        return 0 if old >= data else old + 1
    if name == "dec":
        return data if old == 0 or old > data else old - 1
    if name == "mskor":
        return old & ~data | second
    if name == "cmpst":
        return second if old == data else old
    results = {"add": old + data, "sub": old - data, "rsub": data - old, "and": old & data, "or": old | data}
    return results[name] if name in results else {"xor": old ^ data, "wrxchg": data}[name]


def _atomic(state: State, ins: Ins, name: str, returns: bool, sign: str, bits: int) -> None:
    before = {}
    for lane in state.lanes():
        address = (state.vector(_reg(ins.src[0]), lane) + ins.imm) & MASK32
        before[lane] = _load(state, address, bits // 8)
        data = [state.vector(_reg(operand), lane) for operand in ins.src[1:]]
        _store(state, address, bits // 8, combine(name, sign, bits, before[lane], *data))
    if returns:
        for lane, value in before.items():
            state.set_vector(_reg(ins.dst[0]), lane, value)


def step(state: State, ins: Ins) -> None:
    """Execute one DS memory instruction in place; KeyError if it is none."""
    if found := _SINGLE.match(ins.name):
        return _single(state, ins, found[1], found[2])
    if found := _DOUBLE.match(ins.name):
        size = int(found[3]) // 8
        return _double(state, ins, found[1], size, size * (64 if found[2] else 1))
    if found := _ATOMIC.match(ins.name):
        return _atomic(state, ins, found[1], bool(found[2]), found[3], int(found[4]))
    if found := _HIGH.match(ins.name):
        for lane in state.lanes():
            address = (state.vector(_reg(ins.src[0]), lane) + ins.imm) & MASK32
            _store(state, address, int(found[1]) // 8, state.vector(_reg(ins.src[1]), lane) >> 16)
        return None
    raise KeyError(ins.name)
