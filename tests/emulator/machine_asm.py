"""A few instructions of gfx942 / gfx950 as code words, and a way to launch them, for the machine's tests.

No assembler is at hand where the tests run, so each function writes one encoding (CDNA3 ISA, chapter 12). The
decoder is tested elsewhere against LLVM; a wrong word here shows as a wrong disassembly in a failing test.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flymono.emulator import EmulationError, Finding, _core

M0, EXEC, VCC, LITERAL = 124, 126, 106, 255


def v(n: int) -> int:
    """Source code of a vector register."""
    return 256 + n


def const(n: int) -> int:
    """Source code of a small integer."""
    return 128 + n if n >= 0 else 192 - n


# ---- scalar
def sopp(op: int, imm: int = 0) -> list[int]:
    return [0xBF800000 | op << 16 | imm & 0xFFFF]


def s_endpgm() -> list[int]:
    return sopp(1)


def s_barrier() -> list[int]:
    return sopp(10)


def s_sleep(n: int = 1) -> list[int]:
    return sopp(14, n)


def s_nop() -> list[int]:
    return sopp(0)


def s_trap(n: int) -> list[int]:
    return sopp(18, n)


def s_waitcnt(vm: int = 63, lgkm: int = 15) -> list[int]:
    return sopp(12, vm & 15 | 7 << 4 | lgkm << 8 | vm >> 4 << 14)


def branch(op: str, dwords: int) -> list[int]:
    """Jump ``dwords`` code words from the next instruction."""
    return sopp({"always": 2, "scc0": 4, "scc1": 5, "vccz": 6, "vccnz": 7, "execz": 8}[op], dwords)


def sop1(op: int, dst: int, src: int, literal: int | None = None) -> list[int]:
    return [0xBE800000 | dst << 16 | op << 8 | src] + ([] if literal is None else [literal & 0xFFFFFFFF])


def s_mov(dst: int, value: int) -> list[int]:
    return sop1(0, dst, LITERAL, value)


def s_mov_b64(dst: int, src: int) -> list[int]:
    return sop1(1, dst, src)


def s_not_b64(dst: int, src: int) -> list[int]:
    """SCC: some bit of the result is set."""
    return sop1(5, dst, src)


def sop2(op: int, dst: int, a: int, b: int) -> list[int]:
    return [0x80000000 | op << 23 | dst << 16 | b << 8 | a]


def s_cmp_eq_u32(a: int, b: int) -> list[int]:
    return [0xBF000000 | 6 << 16 | b << 8 | a]


def s_load(dst: int, base: int, offset: int, dwords: int = 1) -> list[int]:
    op = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4}[dwords]
    return [0xC0000000 | op << 18 | 1 << 17 | dst << 6 | base >> 1, offset]


def s_getreg(dst: int, register: int, size: int = 32) -> list[int]:
    return [0xB0000000 | 17 << 23 | dst << 16 | (size - 1) << 11 | register]


def s_memtime(dst: int) -> list[int]:
    return [0xC0000000 | 0x24 << 18 | dst << 6, 0]


def s_memrealtime(dst: int) -> list[int]:
    return [0xC0000000 | 0x25 << 18 | dst << 6, 0]


# ---- vector
def vop1(op: int, dst: int, src: int) -> list[int]:
    return [0x7E000000 | dst << 17 | op << 9 | src]


def v_mov(dst: int, src: int) -> list[int]:
    return vop1(1, dst, src)


def v_readfirstlane(dst: int, src: int) -> list[int]:
    return vop1(2, dst, src)


def vop2(op: int, dst: int, a: int, b: int) -> list[int]:
    return [op << 25 | dst << 17 | b << 9 | a]


def v_add_u32(dst: int, a: int, b: int) -> list[int]:
    return vop2(0x34, dst, a, b)


def v_and(dst: int, a: int, b: int) -> list[int]:
    return vop2(0x13, dst, a, b)


def v_lshlrev(dst: int, a: int, b: int) -> list[int]:
    return vop2(0x12, dst, a, b)


def v_xor(dst: int, a: int, b: int) -> list[int]:
    return vop2(0x15, dst, a, b)


def v_or(dst: int, a: int, b: int) -> list[int]:
    return vop2(0x14, dst, a, b)


def v_cmp_eq_u32(a: int, b: int) -> list[int]:
    return [0x7C000000 | 0xCA << 17 | b << 9 | a]


# ---- memory
def flat(
    op: int, addr: int, data: int, saddr: int, dst: int, offset: int = 0, sc0: int = 0, sc1: int = 0
) -> list[int]:
    return [
        0xDC000000 | op << 18 | sc1 << 25 | sc0 << 16 | 2 << 14 | offset & 0x1FFF,
        addr | data << 8 | saddr << 16 | dst << 24,
    ]


def global_load(dst: int, addr: int, saddr: int, offset: int = 0, dwords: int = 1, **scope: int) -> list[int]:
    return flat({1: 0x14, 2: 0x15, 3: 0x16, 4: 0x17}[dwords], addr, 0, saddr, dst, offset, **scope)


def global_store(
    addr: int, data: int, saddr: int, offset: int = 0, dwords: int = 1, **scope: int
) -> list[int]:
    return flat({1: 0x1C, 2: 0x1D, 3: 0x1E, 4: 0x1F}[dwords], addr, data, saddr, 0, offset, **scope)


def global_atomic_add(dst: int, addr: int, data: int, saddr: int) -> list[int]:
    return flat(0x42, addr, data, saddr, dst, sc0=1)


def ds(op: int, addr: int, data: int = 0, dst: int = 0, offset: int = 0) -> list[int]:
    return [0xD8000000 | op << 17 | offset, addr | data << 8 | dst << 24]


def ds_write(addr: int, data: int, offset: int = 0) -> list[int]:
    return ds(0x0D, addr, data, offset=offset)


def ds_read(dst: int, addr: int, offset: int = 0) -> list[int]:
    return ds(0x36, addr, dst=dst, offset=offset)


# ---- launching
def code_of(*instructions: Sequence[int]) -> bytes:
    return b"".join(word.to_bytes(4, "little") for instruction in instructions for word in instruction)


class Launch:
    """Raw result of a launch of bare code, as the core returns it, with the findings typed."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw
        self.findings = [Finding(**f) for f in raw["findings"]]
        self.kinds = [f.kind for f in self.findings]
        self.counts = {pc: n for pc, _, n, _ in raw["grids"][0]["counts"]}


def run(
    code: bytes,
    buffers: Sequence[tuple[str, Any]] = (),
    *,
    arch: str = "gfx942",
    grid: int = 1,
    waves: int = 1,
    lds: int = 0,
    kernarg: int = 0,
    vgprs: int = 32,
    read_only: Sequence[str] = (),
    external: Sequence[str] = (),
    regions: Sequence[tuple[str, int, int]] = (),
    stages: Sequence[tuple[str, int, int]] = (),
    **options: Any,
) -> Launch:
    """Start ``code`` at its first word. s[0:1] is ``kernarg``, s2 the workgroup, v0 the work-item."""
    from flymono.emulator.device import span_of

    spans = [(n, *span_of(m), n not in read_only, list(regions), n in external) for n, m in buffers]
    spec = {
        "kernel": "test",
        "text": code,
        "entry": 0,
        "workgroups": grid,
        "workitems": 64 * waves,
        "lds_bytes": lds,
        "vgprs": vgprs,
        "accum_offset": vgprs,
        "kernarg": kernarg,
        "stages": list(stages),
    }
    return Launch(_core.run(arch, options, spans, [spec], None))


def must_pass(launch: Launch) -> Launch:
    if launch.findings:
        raise EmulationError(launch.findings)
    return launch
