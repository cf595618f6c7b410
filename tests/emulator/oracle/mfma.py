"""Matrix operations: where each element of A, B, C and D lives, and the exact product.

Layouts are functions (row or column, k) -> (lane, item); items are packed little-endian into consecutive
registers. The numeric model is "exact": every element is the exact dot product plus C, rounded once. EXEC is
ignored.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from asm import Inline, Ins, Literal, Reg

from . import softfloat as sf
from .convert import flavour
from .softfloat import BF16, E2M1, E2M3, E3M2, F16, F32, Format, Num
from .state import MASK32, State, signed

F8F6F4 = {2: E2M3, 3: E3M2, 4: E2M1}


@dataclass(frozen=True)
class Shape:
    """An m x n x k product in `blocks` independent blocks; `split` marks the two-run K order of 8-bit f8f6f4
    data."""

    m: int
    n: int
    k: int
    blocks: int = 1

    @property
    def per_lane(self) -> int:
        """Consecutive k of one lane for a plain operand."""
        return self.k // (64 // (self.m * self.blocks))

    def operand(self, i: int, k: int, block: int = 0, split: bool = False) -> tuple[int, int]:
        """(lane, item) of A[block, i, k]; B[block, k, j] is the same with j for i (all shapes are square)."""
        if split:
            half = self.k // 2
            run, at = divmod(k, half)
            return i + self.m * (at // 16), at % 16 + 16 * run
        group, item = divmod(k, self.per_lane)
        return i + self.m * (block + self.blocks * group), item

    def result(self, i: int, j: int, block: int = 0) -> tuple[int, int]:
        """(lane, register) of D[block, i, j], 32-bit results."""
        h = 4
        lane_blocks = -(-64 // (self.n * self.m // h))
        row_groups = 64 // lane_blocks // self.n
        groups = self.m // (h * row_groups)
        register = i % h + h * (i // (h * row_groups) + groups * (block // lane_blocks))
        return j + self.n * (i // h % row_groups + row_groups * (block % lane_blocks)), register

    def scale_lane(self, i: int, k: int) -> int:
        """The lane that holds the E8M0 scale of row (column) i for the block of 32 that k lies in."""
        return i + self.m * (k // 32)


_NAME = re.compile(r"v_mfma_(?:scale_)?(f32|i32)_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?_(\w+)$")


def shape_of(name: str) -> Shape:
    found = _NAME.match(name)
    assert found, name
    return Shape(*map(int, found.group(2, 3, 4)), int(found[5] or 1))


def formats(ins: Ins, arch: str) -> tuple[Format, Format]:
    """The element formats of A and B (i8 has none: see `_element`)."""
    kinds = ins.name.rsplit("_", 2)
    if kinds[-1] == "f8f6f4":
        return _f8f6f4(ins.cbsz), _f8f6f4(ins.blgp)
    if kinds[-1] in ("fp8", "bf8"):
        return flavour(arch, kinds[-2]), flavour(arch, kinds[-1])
    fmt = {"bf16": BF16, "f16": F16, "f32": F32, "i8": Format("i8", 7, 0, 0, "finite")}[kinds[-1]]
    return fmt, fmt


def _f8f6f4(code: int) -> Format:
    return flavour("gfx950", ("fp8", "bf8")[code]) if code < 2 else F8F6F4[code]


def _bits(state: State, operand: object, lane: int, shift: int, bits: int) -> int:
    assert isinstance(operand, Reg)
    return state.vector(operand, lane) >> shift & (1 << bits) - 1


def _element(state: State, operand: object, lane: int, item: int, fmt: Format) -> Num:
    code = _bits(state, operand, lane, item * fmt.bits, fmt.bits)
    return sf.finite(Fraction(signed(code, 8))) if fmt.name == "i8" else sf.decode(fmt, code)


def _scale_byte(state: State, operand: object, lane: int, byte: int) -> Num:
    if isinstance(operand, (Inline, Literal)):
        word = state.read(operand, kind="f32")
        exponent = word >> 23 & 0xFF
    else:
        exponent = _bits(state, operand, lane, 8 * byte, 8)
    return sf.NAN if exponent == 255 else Num("fin", 0, sf.power(exponent - 127))


def _matrix(state: State, ins: Ins, which: int, shape: Shape, fmt: Format, block: int) -> list[list[Num]]:
    """Rows of A (which 0) or columns of B (which 1), scaled when the instruction scales."""
    split = ins.name.endswith("f8f6f4") and fmt.bits == 8
    out = []
    for i in range(shape.m):
        line = []
        for k in range(shape.k):
            lane, item = shape.operand(i, k, block, split)
            element = _element(state, ins.src[which], lane, item, fmt)
            if "scale" in ins.name:
                byte = (ins.op_sel_hi >> which & 1) * 2 + (ins.op_sel >> which & 1)
                element = sf.multiply(
                    element, _scale_byte(state, ins.src[3 + which], shape.scale_lane(i, k), byte)
                )
            line.append(element)
        out.append(line)
    return out


def _dot(row: list[Num], column: list[Num], c: Num) -> Num:
    total, zero_sign = Fraction(0), c.sign
    special = c if c.kind != "fin" else None
    for a, b in zip(row, column, strict=True):
        product = sf.multiply(a, b)
        if product.kind == "fin":
            total += product.value
            zero_sign &= product.sign
        else:
            special = product if special is None else sf.add(special, product)
    if special is not None:
        return special
    return sf.finite(total + c.value, zero_sign)


def step(state: State, ins: Ins, arch: str) -> None:
    """Execute one MFMA in place with the exact model."""
    shape, (fmt_a, fmt_b) = shape_of(ins.name), formats(ins, arch)
    integer = fmt_a.name == "i8"
    results = []
    for block in range(shape.blocks):
        rows = _matrix(state, ins, 0, shape, fmt_a, block)
        columns = _matrix(state, ins, 1, shape, fmt_b, block)
        for i in range(shape.m):
            for j in range(shape.n):
                lane, register = shape.result(i, j, block)
                results.append(
                    (lane, register, _one(state, ins, rows[i], columns[j], lane, register, integer))
                )
    for lane, register, code in results:
        assert isinstance(ins.dst[0], Reg)
        state.v[ins.dst[0].index + register, lane] = code


def _one(
    state: State, ins: Ins, row: list[Num], column: list[Num], lane: int, register: int, integer: bool
) -> int:
    c = ins.src[2]
    code = _bits(state, c, lane, 32 * register, 32) if isinstance(c, Reg) else state.read(c, kind="f32")
    if integer:
        total = sum(int(a.value) * int(b.value) for a, b in zip(row, column, strict=True))
        return (total + code) & MASK32
    return sf.encode(F32, _dot(row, column, sf.f32(code)))
