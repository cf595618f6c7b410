"""A small assembler for single GFX9 / CDNA instructions: one `Ins` to its bytes.

The same `Ins` drives the scalar oracle, so a test states an instruction once and asks two implementations.
Invariants
 - Scalar registers, VCC (106), M0 (124) and EXEC (126) share one index space, the source codes of the manual.
 - Nothing is inferred: a literal, a DPP or SDWA dword stands in the bytes only because the `Ins` says so.
 - An operand that its encoding cannot hold raises AsmError; no operand is silently cut.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace

import opcodes as oc


class AsmError(ValueError):
    """The instruction cannot be encoded as asked."""


@dataclass(frozen=True)
class Reg:
    """`count` consecutive registers of a file: s (scalar and special), v (vector), a (accumulation)."""

    kind: str
    index: int
    count: int = 1

    @property
    def code(self) -> int:
        return self.index if self.kind == "s" else 256 + self.index


@dataclass(frozen=True)
class Inline:
    """An inline constant: an int of -16..64 or one of the nine floats."""

    value: int | float

    @property
    def code(self) -> int:
        if isinstance(self.value, float):
            return INLINE_FLOATS[self.value]
        if 0 <= self.value <= 64:
            return 128 + self.value
        if -16 <= self.value < 0:
            return 192 - self.value
        raise AsmError(f"{self.value} is no inline constant")


@dataclass(frozen=True)
class Literal:
    """A 32-bit pattern in the dword that follows the instruction."""

    bits: int
    code: int = 255


INV_2PI = 0.15915494309189535
INLINE_FLOATS = {
    0.5: 240,
    -0.5: 241,
    1.0: 242,
    -1.0: 243,
    2.0: 244,
    -2.0: 245,
    4.0: 246,
    -4.0: 247,
    INV_2PI: 248,
}
VCC, EXEC, M0, OFF = Reg("s", 106, 2), Reg("s", 126, 2), Reg("s", 124), None
Operand = Reg | Inline | Literal | None


def s(index: int, count: int = 1) -> Reg:
    return Reg("s", index, count)


def v(index: int, count: int = 1) -> Reg:
    return Reg("v", index, count)


@dataclass(frozen=True)
class Dpp:
    ctrl: int
    row_mask: int = 15
    bank_mask: int = 15
    bound_ctrl: bool = False


@dataclass(frozen=True)
class Sdwa:
    dst_sel: int = 6
    dst_unused: int = 0
    sel: tuple[int, int] = (6, 6)
    sext: tuple[bool, bool] = (False, False)


@dataclass(frozen=True)
class Ins:
    """One instruction. `dst` and `src` in assembly order; modifiers are bit masks over the sources.

    Memory operands: DS src = (address, data0[, data1]); MUBUF src = (vaddr, V#, soffset, data);
    GLOBAL src = (vaddr, saddr or None, data); SMEM src = (base, soffset or None). MAI src = A, B, C[, scale
    A, scale B].
    """

    name: str
    dst: tuple[Operand, ...] = ()
    src: tuple[Operand, ...] = ()
    enc: str = ""
    neg: int = 0
    abs: int = 0
    neg_hi: int = 0
    op_sel: int = 0
    op_sel_hi: int = 7
    clamp: bool = False
    imm: int = 0
    offset0: int = 0
    offset1: int = 0
    bitop3: int = 0
    cbsz: int = 0
    abid: int = 0
    blgp: int = 0
    sc0: bool = False
    sc1: bool = False
    nt: bool = False
    offen: bool = False
    idxen: bool = False
    dpp: Dpp | None = None
    sdwa: Sdwa | None = None
    tags: tuple[str, ...] = field(default=(), compare=False)

    @property
    def encoding(self) -> str:
        return self.enc or oc.native_encoding(self.name)

    def but(self, **changes: object) -> Ins:
        return replace(self, **changes)


def _words(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}I", *(w & 0xFFFFFFFF for w in words))


def _field(value: int, bits: int, shift: int, what: str = "field") -> int:
    if not 0 <= value < 1 << bits:
        raise AsmError(f"{what} {value} does not fit {bits} bits")
    return value << shift


def _code(operand: Operand) -> int:
    if operand is None:
        raise AsmError("an operand is missing")
    return operand.code


def _vgpr(operand: Operand) -> int:
    if not isinstance(operand, Reg) or operand.kind not in "va":
        raise AsmError(f"{operand} stands where only a vector register can")
    return operand.index


def _tail(ins: Ins) -> bytes:
    found = [o.bits for o in ins.src if isinstance(o, Literal)]
    if len(set(found)) > 1:
        raise AsmError("two different literals")
    return _words(found[0]) if found else b""


def _sop(ins: Ins) -> bytes:
    enc, op = ins.encoding, oc.TABLES[ins.encoding][ins.name]
    sdst = _code(ins.dst[0]) if ins.dst else 0
    src = [_code(o) for o in ins.src]
    if enc == "sop1":
        word = 0xBE800000 | sdst << 16 | op << 8 | (src[0] if src else 0)
    elif enc == "sop2":
        word = 0x80000000 | op << 23 | sdst << 16 | src[1] << 8 | src[0]
    elif enc == "sopc":
        word = 0xBF000000 | op << 16 | src[1] << 8 | src[0]
    elif enc == "sopp":
        word = 0xBF800000 | op << 16 | ins.imm & 0xFFFF
    else:  # sopk: its one register is destination, source, or both
        word = 0xB0000000 | op << 23 | (sdst if ins.dst else src[0]) << 16 | ins.imm & 0xFFFF
    return _words(word) + (_tail(ins) if enc in ("sop1", "sop2", "sopc") else b"")


def _smem(ins: Ins) -> bytes:
    op = oc.SMEM[ins.name]
    base = _code(ins.src[0]) >> 1 if ins.src else 0
    soffset = ins.src[1] if len(ins.src) > 1 else None
    low = 0xC0000000 | op << 18 | _code(ins.dst[0]) << 6 | base | (ins.sc0 << 16)
    if soffset is None:
        return _words(low | 1 << 17, ins.imm & 0x1FFFFF)
    return _words(low | 1 << 17 | 1 << 14, ins.imm & 0x1FFFFF | _code(soffset) << 25)


def _dpp_word(ins: Ins, src0: int) -> int:
    d = ins.dpp
    assert d is not None
    return (
        src0 & 0xFF
        | _field(d.ctrl, 9, 8)
        | d.bound_ctrl << 19
        | (ins.neg & 1) << 20
        | (ins.abs & 1) << 21
        | (ins.neg >> 1 & 1) << 22
        | (ins.abs >> 1 & 1) << 23
        | _field(d.bank_mask, 4, 24)
        | _field(d.row_mask, 4, 28)
    )


def _sdwa_word(ins: Ins, compare: bool) -> int:
    d = ins.sdwa
    assert d is not None
    codes = [_code(o) for o in ins.src[:2]] + [256]
    word = codes[0] & 0xFF | (codes[0] < 256) << 23 | (codes[1] < 256) << 31
    if compare:
        word |= 0 if ins.dst[0] == VCC else 1 << 15 | _code(ins.dst[0]) << 8
    else:
        word |= d.dst_sel << 8 | d.dst_unused << 11 | ins.clamp << 13
    for i, shift in ((0, 16), (1, 24)):
        word |= d.sel[i] << shift | d.sext[i] << shift + 3 | (ins.neg >> i & 1) << shift + 4
        word |= (ins.abs >> i & 1) << shift + 5
    return word


def _vop12c(ins: Ins) -> bytes:
    enc, op = ins.encoding, oc.TABLES[ins.encoding][ins.name]
    src0 = _code(ins.src[0]) if ins.src else 0
    tail = _tail(ins)
    if ins.dpp:
        tail, src0 = _words(_dpp_word(ins, _vgpr(ins.src[0]))), 250
    elif ins.sdwa:
        tail, src0 = _words(_sdwa_word(ins, enc == "vopc")), 249
    elif ins.neg or ins.abs or ins.clamp:
        raise AsmError(f"{ins.name}: {enc} has no modifiers")
    if enc == "vop1":
        scalar = ins.name.startswith("v_readfirstlane")
        dst = 0 if not ins.dst else _code(ins.dst[0]) if scalar else _vgpr(ins.dst[0])
        return _words(0x7E000000 | dst << 17 | op << 9 | src0) + tail
    if ins.name == "v_fmamk_f32":
        second, tail = _vgpr(ins.src[2]), _tail(ins)
    elif ins.sdwa and isinstance(ins.src[1], Reg) and ins.src[1].kind == "s":
        second = ins.src[1].index
    else:
        second = _vgpr(ins.src[1])
    if enc == "vop2":
        return _words(op << 25 | _vgpr(ins.dst[0]) << 17 | second << 9 | src0) + tail
    return _words(0x7C000000 | op << 17 | second << 9 | src0) + tail


def vop3_opcode(name: str) -> int:
    """The ten-bit number of `name` in VOP3, native or promoted from VOP1, VOP2 or VOPC."""
    for table, base in ((oc.VOP3, 0), (oc.VOP3SD, 0), (oc.VOP2, 0x100), (oc.VOP1, 0x140), (oc.VOPC, 0)):
        if name in table:
            return base + table[name]
    raise AsmError(f"{name} has no VOP3 form")


def _vop3(ins: Ins) -> bytes:
    src = [0 if o is None else o.code for o in ins.src] + [0, 0, 0]
    if any(isinstance(o, Literal) for o in ins.src):
        raise AsmError("VOP3 holds no literal on GFX9")
    scalar = isinstance(ins.dst[0], Reg) and ins.dst[0].kind == "s"
    low = 0xD0000000 | vop3_opcode(ins.name) << 16 | (_code(ins.dst[0]) if scalar else _vgpr(ins.dst[0]))
    high = src[0] | src[1] << 9 | src[2] << 18
    if ins.name == "v_bitop3_b32":
        return _words(
            low | (ins.bitop3 >> 3 & 7) << 8, high | (ins.bitop3 >> 6 & 3) << 27 | (ins.bitop3 & 7) << 29
        )
    low |= ins.clamp << 15
    if len(ins.dst) > 1:
        return _words(low | _code(ins.dst[1]) << 8, high | ins.neg << 29)
    return _words(low | _field(ins.abs, 3, 8) | _field(ins.op_sel, 4, 11), high | _field(ins.neg, 3, 29))


def _vop3p(ins: Ins) -> bytes:
    src = [_code(o) for o in ins.src] + [0]
    low = 0xD3800000 | oc.VOP3P[ins.name] << 16 | _vgpr(ins.dst[0]) | _field(ins.neg_hi, 3, 8)
    low |= _field(ins.op_sel, 3, 11) | (ins.op_sel_hi >> 2 & 1) << 14
    high = src[0] | src[1] << 9 | src[2] << 18 | (ins.op_sel_hi & 3) << 27 | ins.neg << 29
    return _words(low, high)


def _mai(ins: Ins) -> bytes:
    table = oc.MAI if ins.encoding == "mai" else oc.MAI_SCALE
    a, b, c = (_code(o) for o in ins.src[:3])
    low = 0xD3800000 | table[ins.name] << 16 | _vgpr(ins.dst[0]) | ins.cbsz << 8
    high = a | b << 9 | c << 18 | ins.blgp << 29
    if ins.encoding == "mai":
        return _words(low | ins.abid << 11, high)
    scale_a, scale_b = (_code(o) for o in ins.src[3:5])
    first = 0xD3AC0000 | (ins.op_sel & 3) << 11
    second = scale_a | scale_b << 9 | (ins.op_sel_hi & 3) << 27
    return _words(first, second, low | 1 << 11, high)


def _ds(ins: Ins) -> bytes:
    offset = ins.offset0 | ins.offset1 << 8 if (ins.offset0 or ins.offset1) else ins.imm
    low = 0xD8000000 | oc.DS[ins.name] << 17 | _field(offset, 16, 0)
    regs = [_vgpr(o) for o in ins.src] + [0, 0, 0]
    return _words(low, regs[0] | regs[1] << 8 | regs[2] << 16 | (_vgpr(ins.dst[0]) if ins.dst else 0) << 24)


def _mubuf(ins: Ins) -> bytes:
    vaddr, resource, soffset = ([*ins.src[:3], None, None, None])[:3]
    data = ins.src[3] if len(ins.src) > 3 else ins.dst[0] if ins.dst else None
    low = 0xE0000000 | oc.MUBUF[ins.name] << 18 | _field(ins.imm, 12, 0) | ins.offen << 12 | ins.idxen << 13
    low |= ins.sc0 << 14 | ins.sc1 << 15 | ins.nt << 17
    high = (0 if vaddr is None else _vgpr(vaddr)) | (0 if data is None else _vgpr(data)) << 8
    high |= (0 if resource is None else _code(resource) >> 2) << 16
    return _words(low, high | (128 if soffset is None else _code(soffset)) << 24)


def _global(ins: Ins) -> bytes:
    vaddr, saddr = ins.src[0], ins.src[1]
    data = ins.src[2] if len(ins.src) > 2 else None
    low = (
        0xDC008000
        | oc.GLOBAL[ins.name] << 18
        | ins.imm & 0x1FFF
        | ins.sc0 << 16
        | ins.nt << 17
        | ins.sc1 << 25
    )
    high = (
        _vgpr(vaddr)
        | (0 if data is None else _vgpr(data)) << 8
        | (127 if saddr is None else _code(saddr)) << 16
    )
    return _words(low, high | (_vgpr(ins.dst[0]) if ins.dst else 0) << 24)


_ENCODERS = {
    "sop1": _sop,
    "sop2": _sop,
    "sopk": _sop,
    "sopc": _sop,
    "sopp": _sop,
    "smem": _smem,
    "vop1": _vop12c,
    "vop2": _vop12c,
    "vopc": _vop12c,
    "vop3": _vop3,
    "vop3sd": _vop3,
    "vop3p": _vop3p,
    "mai": _mai,
    "mai_scale": _mai,
    "ds": _ds,
    "mubuf": _mubuf,
    "global": _global,
}


def encode(ins: Ins) -> bytes:
    """The bytes of one instruction (4, 8 or 16, literal or modifier dword included)."""
    return _ENCODERS[ins.encoding](ins)


def program(*instructions: Ins) -> bytes:
    return b"".join(map(encode, instructions))
