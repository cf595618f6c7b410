"""Reading ISA text and machine code: lengths, addresses, stages; and that a disagreement is noticed."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from toys import promise, unit

from flymono.gen import isa
from flymono.gen.api import build as build_key
from flymono.gen.build import Settings, build
from flymono.gen.compiler import Compiler
from flymono.gen.findings import CompileError
from flymono.gen.store import Artefact
from flymono.runtime.plan import BuildKey

# (first dword, bytes): one line a format, encodings as LLVM writes them for these archs.
LENGTHS = [
    (0xBF810000, 4),  # s_endpgm (SOPP)
    (0xBF8C0070, 4),  # s_waitcnt (SOPP); its immediate ends in no literal code
    (0xBF8000FF, 4),  # s_nop 0xff (SOPP): 255 in an immediate is no literal
    (0xB00400FF, 4),  # s_movk_i32 s4, 0xff (SOPK): neither is it here
    (0xBA004801, 8),  # s_setreg_imm32_b32 (SOPK with a literal)
    (0xBE8400FF, 8),  # s_mov_b32 s4, literal (SOP1)
    (0xBE840080, 4),  # s_mov_b32 s4, 0 (SOP1)
    (0x8004FF05, 8),  # s_add_u32 s4, s5, literal (SOP2)
    (0x80040605, 4),  # s_add_u32 s4, s5, s6 (SOP2)
    (0xBF06FF04, 8),  # s_cmp_eq_u32 s4, literal (SOPC)
    (0xBF060504, 4),  # s_cmp_eq_u32 s4, s5 (SOPC)
    (0xC0020002, 8),  # s_load_dword (SMEM)
    (0x7E000280, 4),  # v_mov_b32 v0, 0 (VOP1)
    (0x7E0002FF, 8),  # v_mov_b32 v0, literal
    (0x7E0002FA, 8),  # v_mov_b32_dpp
    (0x7E0002F9, 8),  # v_mov_b32_sdwa
    (0x68000101, 4),  # v_add_u32 (VOP2)
    (0x680000FF, 8),  # v_add_u32 v0, literal
    (0x7D880101, 4),  # v_cmp (VOPC)
    (0xD1FE0000, 8),  # VOP3
    (0xD3B08000, 8),  # VOP3P
    (0xD3AC0000, 16),  # v_mfma_ld_scale_b32 and the MFMA behind it
    (0xD8000000, 8),  # DS
    (0xDC508000, 8),  # GLOBAL
    (0xE0501000, 8),  # MUBUF
]


@pytest.mark.parametrize(("word", "size"), LENGTHS, ids=[f"{w:08x}" for w, _ in LENGTHS])
def test_instruction_lengths(word: int, size: int) -> None:
    assert isa.instruction_size(word) == size


@pytest.fixture(params=["gfx942", "gfx950"])
def artefact(request: pytest.FixtureRequest, settings: Settings, compiler: Compiler) -> Artefact:
    return build(unit(target=request.param), settings, compiler)[0]


def test_addresses_cover_the_code_without_gaps(artefact: Artefact) -> None:
    ((_, code),) = isa.machine_code(artefact.hsaco).values()
    located = artefact.instructions

    assert located[0].pc == 0
    assert all(a.pc + a.size == b.pc for a, b in pairwise(located))
    assert located[-1].pc + located[-1].size == len(code)
    assert str(located[-1]) == "s_endpgm"


def test_every_instruction_knows_its_text_line(artefact: Artefact) -> None:
    lines = artefact.isa.splitlines()

    for i in artefact.instructions:
        assert lines[i.text_line - 1].split()[0] == i.mnemonic
    assert {i.file for i in artefact.instructions if i.file} == {f"{artefact.id}.py"}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace("\ts_endpgm", "\ts_nop 0\n\ts_endpgm"),
        lambda text: text.replace("\tglobal_store_dwordx4", "\t;global_store_dwordx4"),
        lambda text: moved(text),
    ],
    ids=["one more", "one less", "a stage moved"],
)
def test_text_that_is_not_of_this_code_is_refused(spoil: Callable[[str], str], artefact: Artefact) -> None:
    with pytest.raises(CompileError, match="GEN_ISA_MISMATCH"):
        isa.locate(spoil(artefact.isa), artefact.hsaco)


def moved(text: str) -> str:
    """The label of stage `work` one instruction later."""
    lines = text.splitlines()
    at = next(n for n, line in enumerate(lines) if line.strip().startswith("flymono.stage.work"))
    after = next(
        n for n in range(at + 1, len(lines)) if lines[n].startswith("\t") and lines[n].strip()[0].isalpha()
    )
    lines.insert(after + 1, lines.pop(at))
    return "\n".join(lines)


def test_padding_before_an_aligned_loop_is_no_instruction() -> None:
    text = [
        isa.Instruction("k", "s_mov_b32", "s0, 0", 1),
        isa.Instruction("k", "v_nop", "", 2, align=16),
        isa.Instruction("k", "s_nop", "0", 3),
    ]
    code = struct.pack("<6I", 0xBE800080, 0xBF800000, 0xBF800000, 0xBF800000, 0x7E000000, 0xBF800000)

    assert [i.pc for i in isa._place(text, "k", 0x100, code)] == [0, 16, 20]


def test_figures_of_the_code_object_are_those_of_the_text(artefact: Artefact) -> None:
    for name, value in (
        ("vgpr_count", artefact.resources.vgprs),
        ("sgpr_count", artefact.resources.sgprs),
        ("kernarg_segment_size", artefact.resources.kernarg_bytes),
    ):
        assert f".{name}: {value}" in " ".join(artefact.isa.split())


def test_an_object_without_metadata_is_refused(artefact: Artefact, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="no AMDGPU metadata"):
        isa.resources(artefact.hsaco.replace(b"AMDGPU\0\0", b"NOBODY\0\0"))


@pytest.mark.parametrize("name", ["good", "mfma", "barriers", "lds_overflow"])
def test_addresses_are_those_of_the_emulator_s_decoder(
    name: str, settings: Settings, compiler: Compiler
) -> None:
    """Two readings of the encoding, written apart: every address, length and mnemonic agrees."""
    codeobject = pytest.importorskip("flymono.emulator.codeobject")
    toy = promise(unit(f"{name}.py.j2", "gfx950", kind="none", lds_words=4096), lds_bytes=None, stages=())
    artefact, _ = build(toy, settings, compiler)

    agree(artefact, codeobject.CodeObject(artefact.hsaco).disassemble())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dsv41_k1-gfx942-tp4-s6-r2", "dsv41_k1-gfx950-tp2-s6-r2"])
def test_addresses_of_k1_are_those_of_the_emulator_s_decoder(name: str, k1_store: Path) -> None:
    codeobject = pytest.importorskip("flymono.emulator.codeobject")
    artefact = build_key(BuildKey.parse(name), cache=k1_store)

    agree(artefact, codeobject.CodeObject(artefact.hsaco).disassemble())


def agree(artefact: Artefact, rows: list[tuple[int, int, str]]) -> None:
    mine = {i.pc: i for i in artefact.instructions}
    padding = [text for pc, _, text in rows if pc not in mine]
    theirs = {pc: (size, _bare(text.split()[0])) for pc, size, text in rows if pc in mine}

    assert set(padding) <= {"s_nop 0"}
    assert {pc: (i.size, _bare(i.mnemonic)) for pc, i in mine.items()} == theirs


def _bare(mnemonic: str) -> str:
    """Without the encoding's suffix, which inline assembly may leave out; the size says the encoding."""
    return mnemonic.removesuffix("_e32").removesuffix("_e64")
