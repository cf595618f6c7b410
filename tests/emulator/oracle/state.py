"""The architectural state of one wave, and how operands are read and written.

`s` holds every scalar by source code (0..101 SGPRs, 106 VCC, 124 M0, 126 EXEC); `v` is registers x 64 lanes.
All values are Python ints inside an operation; widths are masked here and nowhere else.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
from asm import INV_2PI, Inline, Literal, Operand, Reg

LANES = 64
MASK32, MASK64 = (1 << 32) - 1, (1 << 64) - 1


def _scalars() -> np.ndarray:
    return np.zeros(128, np.uint32)


def _vectors() -> np.ndarray:
    return np.zeros((256, LANES), np.uint32)


@dataclass
class State:
    s: np.ndarray = field(default_factory=_scalars)
    v: np.ndarray = field(default_factory=_vectors)
    scc: int = 0
    lds: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint8))

    def copy(self) -> State:
        return State(self.s.copy(), self.v.copy(), self.scc, self.lds.copy())

    @property
    def exec(self) -> int:
        return self.scalar(Reg("s", 126, 2))

    def lanes(self) -> list[int]:
        """The active lanes, lowest first."""
        mask = self.exec
        return [lane for lane in range(LANES) if mask >> lane & 1]

    def scalar(self, reg: Reg) -> int:
        return sum(int(self.s[reg.index + i]) << 32 * i for i in range(reg.count))

    def set_scalar(self, reg: Reg, value: int) -> None:
        for i in range(reg.count):
            self.s[reg.index + i] = value >> 32 * i & MASK32

    def vector(self, reg: Reg, lane: int) -> int:
        return sum(int(self.v[reg.index + i, lane]) << 32 * i for i in range(reg.count))

    def set_vector(self, reg: Reg, lane: int, value: int) -> None:
        for i in range(reg.count):
            self.v[reg.index + i, lane] = value >> 32 * i & MASK32

    def read(self, operand: Operand, lane: int = 0, kind: str = "b32") -> int:
        """The bits of a source as `kind` (see `valu.Vop`) in one lane."""
        if isinstance(operand, Reg):
            return self.scalar(operand) if operand.kind == "s" else self.vector(operand, lane)
        if isinstance(operand, Literal):
            signed = kind == "i64" and operand.bits >> 31
            return operand.bits | (MASK32 << 32 if signed else 0)
        assert isinstance(operand, Inline), operand
        return constant(operand.value, {"b64": 64, "i64": 64, "f64": 64, "f16": 16}.get(kind, 32))


def constant(value: int | float, bits: int) -> int:
    """The pattern of an inline constant: ints sign-extend, floats are written in the operand's own
    precision."""
    if isinstance(value, int):
        return value & (1 << bits) - 1
    if value == INV_2PI:
        return {16: 0x3118, 32: 0x3E22F983, 64: 0x3FC45F306DC9C882}[bits]
    return int.from_bytes(struct.pack({16: "<e", 32: "<f", 64: "<d"}[bits], value), "little")


def signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value
