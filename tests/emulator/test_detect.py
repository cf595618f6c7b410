"""The core's detectors on one wave: each rule violated by the smallest program, and kept by its neighbour.

Programs are lists of instructions; a finding must carry the PCs of both instructions (byte offsets in the
program).
"""

import numpy as np
import pytest
from asm import EXEC, VCC, Inline, Ins, Literal, encode, program, s, v
from test_vmem import buffer_bytes

from flymono.emulator.execute import execute


def waitcnt(vm: int = 63, lgkm: int = 15) -> Ins:
    return Ins("s_waitcnt", imm=(vm & 15) | (vm >> 4) << 14 | 7 << 4 | lgkm << 8)


DATA = buffer_bytes(8)
GLOBAL = Ins("global_load_dword", (v(4),), (v(0), s(4, 2)))
SECOND = GLOBAL.but(dst=(v(5),), imm=512)
SCALAR = Ins("s_load_dword", (s(8),), (s(4, 2), None))
SCALAR2 = SCALAR.but(dst=(s(9),), imm=64)
DS = Ins("ds_read_b32", (v(4),), (v(0),))
DS2 = DS.but(dst=(v(5),), imm=512)
USE4 = Ins("v_add_u32", (v(6),), (v(4), v(0)))
USE5 = USE4.but(src=(v(5), v(0)))
USE_S8 = Ins("s_add_u32", (s(12),), (s(8), s(8)))
USE_S9 = USE_S8.but(src=(s(9), s(9)))


def run(
    *instructions: Ins,
    arch: str = "gfx942",
    lds: object = None,
    vgprs: dict[int, object] | None = None,
    sgprs: dict[int, int] | None = None,
    **options: object,
) -> list[object]:
    """Findings of a program; v0 = 4 * lane, v1 = 1, s[4:5] = a registered buffer, LDS initialised."""
    rows: dict[int, object] = {0: np.arange(64, dtype=np.uint32) * 4, 1: 1} | (vgprs or {})
    scalars = {4: DATA.ctypes.data & 0xFFFFFFFF, 5: DATA.ctypes.data >> 32} | (sgprs or {})
    memory = np.zeros(4096, np.uint8) if lds is None else lds
    return execute(
        arch,
        program(*instructions),
        vgprs=rows,
        sgprs=scalars,
        buffers=[("data", DATA)],
        lds=memory,
        check=True,
        rows=64,
        **options,
    ).findings


def offset_of(instructions: tuple[Ins, ...], index: int) -> int:
    return sum(len(encode(ins)) for ins in instructions[:index])


def found(findings: list[object], instructions: tuple[Ins, ...], first: int, second: int) -> bool:
    """A finding between the load at position `first` and the use at position `second`."""
    pair = {offset_of(instructions, first), offset_of(instructions, second)}
    return any({f.pc, f.other_pc} == pair for f in findings)


MISSING = {  # name -> (program, position of the load, position of the use)
    "vector load": ((GLOBAL, USE4), 0, 1),
    "younger of two": ((GLOBAL, SECOND, waitcnt(vm=1), USE5), 1, 3),
    "wait for the other counter": ((GLOBAL, waitcnt(lgkm=0), USE4), 0, 2),
    "count too high": ((GLOBAL, waitcnt(vm=1), USE4), 0, 2),
    "lds": ((DS, USE4), 0, 1),
    "younger lds": ((DS, DS2, waitcnt(lgkm=1), USE5), 1, 3),
    "scalar": ((SCALAR, USE_S8), 0, 1),
    "scalars return out of order": ((SCALAR, SCALAR2, waitcnt(lgkm=1), USE_S8), 0, 3),
    "lds under a scalar load": ((DS, SCALAR, waitcnt(lgkm=1), USE4), 0, 3),
    "overwritten before it returns": ((GLOBAL, Ins("v_mov_b32", (v(4),), (v(0),))), 0, 1),
    "overwritten scalar": ((SCALAR, Ins("s_mov_b32", (s(8),), (Inline(0),))), 0, 1),
    "as a store's data": ((GLOBAL, Ins("global_store_dword", (), (v(0), s(4, 2), v(4)), imm=1024)), 0, 1),
    "as an address": ((DS, Ins("ds_read_b32", (v(7),), (v(4),))), 0, 1),
    "as a scalar base": ((Ins("s_load_dwordx2", (s(4, 2),), (s(4, 2), None)), GLOBAL), 0, 1),
    "a barrier is no wait": ((GLOBAL, Ins("s_barrier"), USE4), 0, 2),
    "one register of four": (
        (GLOBAL.but(name="global_load_dwordx4", dst=(v(4, 4),)), Ins("v_mov_b32", (v(9),), (v(7),))),
        0,
        1,
    ),
    "mfma overwrites": ((GLOBAL, Ins("v_mfma_f32_16x16x4_f32", (v(4, 4),), (v(0), v(1), Inline(0)))), 0, 1),
    "swizzle counts as lds": ((Ins("ds_swizzle_b32", (v(4),), (v(0),), imm=0x401F), USE4), 0, 1),
    "bpermute counts as lds": ((Ins("ds_bpermute_b32", (v(4),), (v(0), v(1))), USE4), 0, 1),
    "atomic with return": ((Ins("global_atomic_add", (v(4),), (v(0), s(4, 2), v(1)), sc0=True), USE4), 0, 1),
    "readlane of a pending register": (
        (GLOBAL, Ins("v_readlane_b32", (s(8),), (v(4), Inline(3)), enc="vop3")),
        0,
        1,
    ),
    "an inactive lane's load still owns the register in active lanes": (
        (Ins("s_mov_b64", (EXEC,), (Inline(1),)), GLOBAL, USE4),
        1,
        2,
    ),
}
ENOUGH = {
    "vector load": (GLOBAL, waitcnt(vm=0), USE4),
    "older of two": (GLOBAL, SECOND, waitcnt(vm=1), USE4),
    "stores count too": (
        GLOBAL,
        Ins("global_store_dword", (), (v(0), s(4, 2), v(1)), imm=1024),
        waitcnt(vm=1),
        USE4,
    ),
    "lds older of two": (DS, DS2, waitcnt(lgkm=1), USE4),
    "scalar": (SCALAR, SCALAR2, waitcnt(lgkm=0), USE_S8, USE_S9),
    "lds and scalar": (DS, SCALAR, waitcnt(lgkm=0), USE4, USE_S8),
    "end with loads in flight": (GLOBAL, SCALAR, DS2, Ins("s_endpgm")),
    "store data may change behind a store": (
        Ins("global_store_dword", (), (v(0), s(4, 2), v(1))),
        Ins("v_mov_b32", (v(1),), (v(0),)),
    ),
    "an untouched register": (GLOBAL, Ins("v_mov_b32", (v(9),), (v(0),))),
    "the counter is full: the oldest has returned": (
        *(Ins("ds_read_b32", (v(10 + i),), (v(0),)) for i in range(16)),
        Ins("v_mov_b32", (v(40),), (v(10),)),
    ),
}


@pytest.mark.parametrize("name", MISSING)
def test_missing_wait_is_found_with_both_pcs(name: str) -> None:
    instructions, first, second = MISSING[name]
    findings = run(*instructions)
    assert found(findings, instructions, first, second), findings


@pytest.mark.parametrize("name", MISSING)
def test_the_same_program_with_a_full_wait_is_clean(name: str) -> None:
    instructions, _, second = MISSING[name]
    fixed = (*instructions[:second], waitcnt(0, 0), *instructions[second:])
    vgprs: dict[int, object] = {}
    if name == "as a scalar base":
        DATA[:8] = np.frombuffer(int(DATA.ctypes.data).to_bytes(8, "little"), np.uint8)
    assert not run(*fixed, vgprs=vgprs)


@pytest.mark.parametrize("name", ENOUGH)
def test_enough_waiting_is_clean(name: str) -> None:
    assert not run(*ENOUGH[name])


STORE = Ins("global_store_dword", (), (v(0), s(4, 2), v(30)))
UNDEFINED = {  # v30, v31 and s30.. are never written
    "stored data": (STORE,),
    "address": (GLOBAL.but(src=(v(30), s(4, 2))),),
    "scalar base": (GLOBAL.but(src=(v(0), s(30, 2))),),
    "lds address": (DS.but(src=(v(30),)),),
    "branch": (Ins("s_cmp_eq_u32", (), (s(30), Inline(0))), Ins("s_cbranch_scc1", imm=0), Ins("s_endpgm")),
    "exec": (Ins("v_cmp_eq_u32", (VCC,), (v(30), v(0))), Ins("s_and_saveexec_b64", (s(10, 2),), (VCC,))),
    "through arithmetic": (Ins("v_add_u32", (v(31),), (v(30), v(0))), STORE.but(src=(v(0), s(4, 2), v(31)))),
    "through a lane": (
        Ins("v_readlane_b32", (s(8),), (v(30), Inline(0)), enc="vop3"),
        Ins("v_mov_b32", (v(31),), (s(8),)),
        STORE.but(src=(v(0), s(4, 2), v(31))),
    ),
    "lanes that were off": (
        Ins("s_mov_b64", (EXEC,), (Inline(1),)),
        Ins("v_mov_b32", (v(31),), (v(0),)),
        Ins("s_mov_b64", (EXEC,), (Inline(-1),)),
        STORE.but(src=(v(0), s(4, 2), v(31))),
    ),
}
HARMLESS = {
    "copying": (Ins("v_mov_b32", (v(31),), (v(30),)),),
    "masked away": (Ins("v_and_b32", (v(31),), (Inline(0), v(30))), STORE.but(src=(v(0), s(4, 2), v(31)))),
    "in lanes that are off": (Ins("v_mov_b32", (v(31),), (v(0),)), STORE.but(src=(v(0), s(4, 2), v(31)))),
    "never used arithmetic": (Ins("v_add_u32", (v(31),), (v(30), v(0))),),
}


@pytest.mark.parametrize("name", UNDEFINED)
def test_undefined_values_that_reach_something(name: str) -> None:
    program_ = UNDEFINED[name]
    findings = run(*program_)
    assert findings
    last = len([ins for ins in program_ if ins.name != "s_endpgm"]) - 1
    assert any(f.pc == offset_of(program_, last) for f in findings), findings


@pytest.mark.parametrize("name", HARMLESS)
def test_undefined_values_that_do_not(name: str) -> None:
    assert not run(*HARMLESS[name])


def test_undefined_lds_byte() -> None:
    """LDS that nobody wrote, stored to memory; a write of the same bytes before cures it."""
    read = (DS, waitcnt(lgkm=0), STORE.but(src=(v(0), s(4, 2), v(4))))
    written = (Ins("ds_write_b32", (), (v(0), v(1))), *read)
    assert run(*read, lds=4096) or pytest.fail("unwritten LDS reached memory unseen")
    assert not run(*written, lds=4096)


@pytest.mark.parametrize(
    ("ins", "lane"),
    [
        (GLOBAL, 63),
        (Ins("global_store_dword", (), (v(0), s(4, 2), v(1))), 7),
        (DS, 20),
        (Ins("ds_write_b32", (), (v(0), v(1))), 1),
    ],
)
def test_outside_memory_names_the_lane(ins: Ins, lane: int) -> None:
    address = np.arange(64, dtype=np.uint32) * 4
    address[lane] = 0x40000000
    findings = run(ins, waitcnt(0, 0), vgprs={0: address})
    assert any(f.lane == lane and f.pc == 0 for f in findings), findings


def test_lanes_that_write_different_data_to_one_lds_word() -> None:
    """The winner is unspecified: a finding; equal data is none."""
    same = Ins("ds_write_b32", (), (v(2), v(1)))
    race = Ins("ds_write_b32", (), (v(2), v(0)))
    assert not run(same, vgprs={2: 64})
    assert run(race, vgprs={2: 64})


def test_mfma_wide_result_over_its_own_operand() -> None:
    """D of 512 bits may not overlap A or B; D of 128 bits may."""
    narrow = Ins("v_mfma_f32_16x16x4_f32", (v(4, 4),), (v(4), v(5), Inline(0)))
    rows: dict[int, object] = dict.fromkeys(range(4, 24), 0)
    assert not run(narrow, vgprs=rows)
    wide = Ins("v_mfma_f32_32x32x2_f32", (v(4, 16),), (v(4), v(20), Inline(0)))
    try:
        assert run(wide, vgprs=rows)
    except ValueError as refused:
        assert "overlap" in str(refused) or "implement" in str(refused)


def test_findings_say_where() -> None:
    """A message names both instructions by their text and both PCs."""
    finding = run(*MISSING["vector load"][0])[0]
    text = str(finding)
    for part in ("global_load_dword", "v_add_u32", "0x0", f"{offset_of(MISSING['vector load'][0], 1):#x}"):
        assert part in text, text


def test_early_returns_do_not_hide_a_missing_wait() -> None:
    """Whatever the emulator decides about when a load returns, the finding comes."""
    for seed in range(4):
        assert found(run(*MISSING["vector load"][0], seed=seed), MISSING["vector load"][0], 0, 1)


def test_literal_is_not_a_register() -> None:
    assert not run(Ins("v_mov_b32", (v(31),), (Literal(0x12345),)), STORE.but(src=(v(0), s(4, 2), v(31))))


WIDE = Ins("global_store_dwordx4", (), (v(0), s(4, 2), v(20, 4)))
OVERWRITE = Ins("v_mov_b32", (v(22),), (v(0),))


def test_wide_store_still_reads_its_data() -> None:
    """A VALU write right behind a store of more than 64 bits may change what is stored; s_nop 1 cures it."""
    rows: dict[int, object] = dict.fromkeys(range(20, 24), 5) | {0: np.arange(64, dtype=np.uint32) * 16}
    assert run(WIDE, OVERWRITE, vgprs=rows)
    assert not run(WIDE, Ins("s_nop", imm=1), OVERWRITE, vgprs=rows)
    assert not run(WIDE, OVERWRITE.but(dst=(v(24),)), vgprs=rows)
