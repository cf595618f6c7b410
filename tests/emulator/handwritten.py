"""Hand-assembled multi-workgroup programs: machine code from `asm`, placed over the body of the `blank`
kernel.

At the start s[0:1] is the kernarg pointer, s2 the workgroup, v0 the thread. `PROLOGUE` leaves a, b, c in
s[4:5], s[6:7], s[8:9], n in s10, and 4 * thread in v1. Up to v63 and s60 are there, and 4 KB of LDS.
"""

from __future__ import annotations

from asm import Inline, Ins, encode, program, s, v
from programs import code_objects

from flymono.emulator import CodeObject

A, B, C = s(4, 2), s(6, 2), s(8, 2)
END = Ins("s_endpgm")


def wait(vm: int = 0, lgkm: int = 0) -> Ins:
    return Ins("s_waitcnt", imm=(vm & 15) | (vm >> 4) << 14 | 7 << 4 | lgkm << 8)


PROLOGUE = (
    Ins("s_load_dwordx4", (s(4, 4),), (s(0, 2), None)),
    Ins("s_load_dwordx2", (s(8, 2),), (s(0, 2), None), imm=16),
    Ins("s_load_dword", (s(10),), (s(0, 2), None), imm=24),
    Ins("v_lshlrev_b32", (v(1),), (Inline(2), v(0))),
    wait(),
)


def role(workgroup: int, *body: Ins) -> tuple[Ins, ...]:
    """`body` for one workgroup, jumped over by the others."""
    code = (*body, END)
    words = sum(len(encode(ins)) for ins in code) // 4
    return (Ins("s_cmp_eq_u32", (), (s(2), Inline(workgroup))), Ins("s_cbranch_scc0", imm=words), *code)


def load(register: int, base: object, sc1: bool = True, imm: int = 0) -> Ins:
    return Ins("global_load_dword", (v(register),), (v(1), base), sc1=sc1, imm=imm)


def store(base: object, register: int, sc1: bool = True, imm: int = 0) -> Ins:
    return Ins("global_store_dword", (), (v(1), base, v(register)), sc1=sc1, imm=imm)


def constant(register: int, value: int) -> Ins:
    return Ins("v_mov_b32", (v(register),), (Inline(value),))


def loop_until_one(register: int, base: object, sc1: bool = True) -> tuple[Ins, ...]:
    """Poll base[thread] until every lane of the wave reads 1."""
    body = (load(register, base, sc1), wait(), Ins("v_cmp_ne_u32", (s(106, 2),), (Inline(1), v(register))))
    words = sum(len(encode(ins)) for ins in body) // 4
    return (*body, Ins("s_cbranch_vccnz", imm=-(words + 1) & 0xFFFF))


def assemble(arch: str, *instructions: Ins) -> CodeObject:
    """The `blank` kernel with its code replaced from PC 0."""
    code = program(*instructions)
    assert len(code) <= 1024, "the blank kernel has room for 1 KB"
    return code_objects(arch)["blank"].patched(0, code)
