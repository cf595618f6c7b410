"""Code objects: what is read from good ones, and that nothing but CodeObjectError comes out of bad ones."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given
from hypothesis import strategies as st

from flymono.emulator.codeobject import CodeObject, CodeObjectError

HERE = Path(__file__).parent
ARCHS = ("gfx942", "gfx950")
SAMPLE = {arch: (HERE / f"sample_{arch}.hsaco").read_bytes() for arch in ARCHS}
MACHINE, FLAGS = 18, 48  # byte offsets in the ELF header
SECTION_TABLE, SECTION_COUNT = 40, 60
S_NOP = 0xBF800000
SECTIONS = struct.unpack_from("<H", SAMPLE["gfx950"], SECTION_COUNT)[0]


def _sample(arch: str = "gfx950") -> CodeObject:
    return CodeObject(SAMPLE[arch])


@pytest.mark.parametrize("arch", ARCHS)
def test_a_path_and_its_bytes_give_the_same(arch: str) -> None:
    path = HERE / f"sample_{arch}.hsaco"
    assert CodeObject(path).kernels == CodeObject(str(path)).kernels == CodeObject(path.read_bytes()).kernels
    assert CodeObject(path).arch == arch


@pytest.mark.parametrize("arch", ARCHS)
def test_figures_of_the_kernels(arch: str) -> None:
    """Against the IR (decode_ir.py): reverse(out, in, n) has 256 bytes of LDS and 64 work-items."""
    kernels = _sample(arch).kernels
    assert list(kernels) == ["reverse", "scale"]
    reverse, scale = kernels["reverse"], kernels["scale"]
    assert [(a.name, a.offset, a.size, a.kind) for a in reverse.args] == [
        ("out", 0, 8, "global_buffer"),
        ("in", 8, 8, "global_buffer"),
        ("n", 16, 4, "by_value"),
    ]
    assert (reverse.lds_bytes, reverse.kernarg_bytes, reverse.scratch_bytes) == (256, 20, 0)
    assert (scale.lds_bytes, scale.kernarg_bytes, scale.scratch_bytes) == (0, 12, 0)
    assert reverse.workgroup_size == (64, 1, 1) and scale.workgroup_size == ()
    assert reverse.wavefront_size == 64 and reverse.vgpr_spills == reverse.sgpr_spills == 0
    assert reverse.entry % 256 == scale.entry % 256 == 0 and reverse.end <= scale.entry
    for kernel in kernels.values():
        descriptor = kernel.descriptor
        assert descriptor.lds_bytes == kernel.lds_bytes and descriptor.kernarg_bytes == kernel.kernarg_bytes
        assert descriptor.user_sgprs == (("kernarg_ptr", 2),)
        assert kernel.vgprs <= descriptor.vgprs_allocated and kernel.vgprs <= descriptor.accum_offset
        assert descriptor.workgroup_ids[0] and not descriptor.dynamic_stack


@pytest.mark.parametrize("arch", ARCHS)
def test_disassembly_is_the_kernels_code_and_no_padding(arch: str) -> None:
    code = _sample(arch)
    reverse = code.disassemble("reverse", strict=True)
    assert reverse[0][:2] == (code.kernels["reverse"].entry, 8)
    assert [text.split()[0] for _, _, text in reverse].count("s_barrier") == 1
    assert reverse[-1][2] == "s_endpgm"
    assert sum(size for _, size, _ in reverse) == code.kernels["reverse"].size
    assert len(code.disassemble()) == len(reverse) + len(code.disassemble("scale"))
    assert sum(row.size for row in code.instructions) == len(code.text)


def test_opcodes_are_counted_without_their_encoding_or_with_it() -> None:
    code = _sample()
    assert code.opcodes("scale")["v_mul_f32"] == 1
    assert code.opcodes("scale", forms=True)["v_mul_f32_e32"] == 1
    assert sum(code.opcodes().values()) == len(code.disassemble())


def test_a_patch_replaces_code_and_leaves_the_original_alone() -> None:
    code = _sample()
    pc = next(pc for pc, _, text in code.disassemble() if text.startswith("s_waitcnt vmcnt"))
    patched = code.patched(pc, [S_NOP])
    assert {p: t for p, _, t in patched.disassemble()}[pc] == "s_nop 0"
    assert patched.text[:pc] == code.text[:pc] and patched.text[pc + 4 :] == code.text[pc + 4 :]
    assert code.text == _sample().text
    assert patched.patched(pc, code.text[pc : pc + 4]).data == code.data
    assert len(code.data) == len(patched.data)


@pytest.mark.parametrize("pc", [-4, 1 << 20])
def test_a_patch_outside_the_code_is_refused(pc: int) -> None:
    with pytest.raises(CodeObjectError, match=r"out of \.text"):
        _sample().patched(pc, [S_NOP])


def test_a_patch_at_the_very_end_fits_and_one_word_more_does_not() -> None:
    code = _sample()
    code.patched(len(code.text) - 4, [S_NOP])
    with pytest.raises(CodeObjectError, match=r"out of \.text"):
        code.patched(len(code.text) - 4, [S_NOP, S_NOP])


def test_unknown_instructions_are_listed_or_refused_when_asked_strictly() -> None:
    code = _sample("gfx942")
    pc = code.kernels["scale"].entry
    # v_permlane32_swap_b32 and a word that is no encoding: two findings, both named with their pc
    patched = code.patched(pc, [0x7E00B500 | 1 << 8, 0xFFFFFFFF])
    assert patched.opcodes("scale")["unknown"] == 2
    assert patched.disassemble("scale")[0][2].startswith("unknown 0x")
    with pytest.raises(CodeObjectError) as caught:
        patched.disassemble("scale", strict=True)
    message = str(caught.value)
    assert f"pc {pc:#x}: v_permlane32_swap_b32 does not exist on gfx942" in message
    assert f"pc {pc + 4:#x}:" in message and "0xffffffff" in message


def test_an_unknown_kernel_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CodeObjectError, match=r"no kernel 'revers'.*reverse, scale"):
        _sample().disassemble("revers")


def _edited(offset: int, layout: str, value: int) -> bytes:
    data = bytearray(SAMPLE["gfx950"])
    struct.pack_into(layout, data, offset, value)
    return bytes(data)


def _without_note() -> bytes:
    elf = ELFFile(io.BytesIO(SAMPLE["gfx950"]))
    index = next(i for i, section in enumerate(elf.iter_sections()) if section["sh_type"] == "SHT_NOTE")
    return _edited(elf.header["e_shoff"] + 64 * index + 4, "<I", 1)  # sh_type: PROGBITS


BAD = {
    "empty": (b"", "not an ELF file"),
    "text": (b"s_endpgm\n" * 20, "not an ELF file"),
    "magic alone": (b"\x7fELF", "cut short"),
    "half a header": (SAMPLE["gfx950"][:40], "cut short"),
    "x86-64": (_edited(MACHINE, "<H", 62), "not for an AMD GPU"),
    "gfx90a": (_edited(FLAGS, "<I", 0x53F), "mach 0x3f; the emulator runs gfx942"),
    "section table past the end": (_edited(SECTION_TABLE, "<Q", 1 << 40), "section table"),
    "no sections": (_edited(SECTION_COUNT, "<H", 0), "section table"),
    "cut in the middle": (SAMPLE["gfx950"][:3000], "section table"),
    "32-bit": (_edited(4, "<B", 1), "64-bit little-endian"),
    "no metadata": (_without_note(), "no AMDGPU metadata note"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_with_its_reason(name: str, tmp_path: Path) -> None:
    data, reason = BAD[name]
    path = tmp_path / "bad.hsaco"
    path.write_bytes(data)
    with pytest.raises(CodeObjectError) as caught:
        CodeObject(path)
    assert reason in str(caught.value) and str(path) in str(caught.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.hsaco", tmp_path):
        with pytest.raises(CodeObjectError, match="cannot be read"):
            CodeObject(path)


def _load_and_list(data: bytes) -> None:
    """Loads, and uses what loaded: the only exception allowed is CodeObjectError."""
    try:
        code = CodeObject(data)
    except CodeObjectError as error:
        assert str(error)
        return
    assert sum(row.size for row in code.instructions) == len(code.text)
    for kernel in code.kernels.values():
        assert 0 <= kernel.entry <= kernel.end <= len(code.text)


@given(
    st.lists(
        st.tuples(st.integers(0, len(SAMPLE["gfx950"]) - 1), st.integers(0, 255)), min_size=1, max_size=6
    )
)
def test_changed_bytes_never_crash(changes: list[tuple[int, int]]) -> None:
    data = bytearray(SAMPLE["gfx950"])
    for at, value in changes:
        data[at] = value
    _load_and_list(bytes(data))


@given(st.integers(0, SECTIONS), st.integers(0, 63), st.binary(min_size=1, max_size=8))
def test_changed_headers_never_crash(header: int, at: int, value: bytes) -> None:
    """``header`` 0 is the ELF header, the others are the section headers: where sizes and offsets are."""
    data = bytearray(SAMPLE["gfx950"])
    table = struct.unpack_from("<Q", data, SECTION_TABLE)[0]
    start = table + 64 * (header - 1) if header else 0
    data[start + at : start + at + len(value)] = value
    _load_and_list(bytes(data[: len(SAMPLE["gfx950"])]))


@given(st.integers(0, len(SAMPLE["gfx942"])))
def test_a_file_cut_anywhere_never_crashes(length: int) -> None:
    _load_and_list(SAMPLE["gfx942"][:length])


@given(st.binary(max_size=2000))
def test_random_bytes_behind_an_elf_header_never_crash(tail: bytes) -> None:
    _load_and_list(SAMPLE["gfx950"][:64] + tail)
