"""Read the ISA text and the code object: instructions with source lines, resource figures, machine PCs.

Invariants
 - ISA text and code object are two runs of the same backend over the same module: instruction i of the text
   is instruction i of the machine code. `locate` proves it by counts and stage symbols, or refuses: LLVM's
   AMDGPU backend walks containers that are ordered by address, so two runs can differ.
 - Instruction lengths come from the encoding's own length rule (CDNA3 and CDNA4 ISA guides, chapter
   "instruction formats"): the format field in the upper bits, plus 4 bytes for a literal or an SDWA/DPP word.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgpack
from elftools.elf.elffile import ELFFile

from .findings import CompileError, Finding

# A stage mark (mono.context.stage): a label `flymono.stage.<name>.<n>:`, kept as a local symbol.
MARKER = re.compile(r"^\s*flymono\.stage\.(\w+)\.")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+(?:"([^"]*)"\s+)?"([^"]*)"')
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")
_ALIGN = re.compile(r"^\s*\.p2align\s+(\d+)")
_LABEL = re.compile(r"^([A-Za-z_.$][\w.$\-]*|\"[^\"]+\"):")
_S_NOP = 0xBF800000
_INSTRUCTION = re.compile(r"^\s+([a-z]\w*)\b\s*(.*)$")


@dataclass(frozen=True)
class Instruction:
    """One line of machine code in the ISA text. `text_line` is its line in the text, from 1.

    `file`, `line`: innermost source line, 0 where the compiler made it up. `stage`: name of the last stage
    marker above it, empty before the first. `pc`: bytes from the kernel's entry, -1 until located.
    `align`: bytes to which the assembler aligned it, 0 for not at all.
    """

    kernel: str
    mnemonic: str
    operands: str
    text_line: int
    file: str = ""
    line: int = 0
    stage: str = ""
    pc: int = -1
    size: int = 0
    align: int = 0

    def __str__(self) -> str:
        return f"{self.mnemonic} {self.operands}".strip()


def instructions(isa: str) -> list[Instruction]:
    """All instructions of the text section, in order, of every function."""
    out: list[Instruction] = []
    files: dict[str, str] = {}
    kernel, file, line, stage, in_text, align = "", "", 0, "", True, 0
    functions = set(re.findall(r"^\s*\.type\s+(\S+),@function", isa, re.M))
    for number, raw in enumerate(isa.splitlines(), 1):
        if marker := MARKER.match(raw):
            stage = marker[1]
        elif named := _FILE.match(raw):
            files[named[1]] = f"{named[2]}/{named[3]}" if named[2] and named[2] != "." else named[3]
        elif place := _LOC.match(raw):
            file, line = files.get(place[1], ""), int(place[2])
        elif aligned := _ALIGN.match(raw):
            align = 1 << int(aligned[1]) if kernel and in_text else 0
        elif label := _LABEL.match(raw):
            if label[1] in functions:
                kernel, stage, file, line = label[1].strip('"'), "", "", 0
        elif raw.strip().startswith((".section", ".text")):
            in_text = ".text" in raw
        elif in_text and (found := _INSTRUCTION.match(raw)):
            operands = re.sub(r"\s*(;|//).*", "", found[2])
            out.append(Instruction(kernel, found[1], operands, number, file, line, stage, align=align))
            align = 0
    return out


@dataclass(frozen=True)
class Resources:
    """Figures of one kernel, from the code object's metadata note; bytes, registers, counts.

    `vgprs` is the combined count of VGPRs and AGPRs that the metadata states; `instructions` is static.
    """

    name: str
    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    scratch_bytes: int
    lds_bytes: int
    kernarg_bytes: int
    max_threads: int
    dynamic_stack: bool
    instructions: int = 0


def resources(hsaco: bytes) -> list[Resources]:
    """Figures of every kernel in a code object, in its own order. Raises CompileError if it has no note."""
    return [_figures(kernel) for kernel in _metadata(hsaco)]


def argument_layout(hsaco: bytes) -> dict[str, tuple[tuple[int, int], ...]]:
    """Kernel -> (offset, size) of each argument in the kernarg segment, hidden ones included."""
    kernels = _metadata(hsaco)
    return {k[".name"]: tuple((a[".offset"], a[".size"]) for a in k.get(".args", ())) for k in kernels}


def _metadata(hsaco: bytes) -> list[dict[str, Any]]:
    for section in ELFFile(io.BytesIO(hsaco)).iter_sections():
        if section["sh_type"] != "SHT_NOTE":
            continue
        for note in section.iter_notes():
            if note["n_name"] == "AMDGPU" and note["n_type"] in (32, "NT_AMDGPU_METADATA"):
                data = note["n_descdata"] if "n_descdata" in note else note["n_desc"]
                desc = data if isinstance(data, bytes) else data.encode("latin-1")
                return list(msgpack.unpackb(desc)["amdhsa.kernels"])
    raise CompileError(
        [
            Finding(
                "GEN_NO_METADATA",
                "code object",
                "it has no AMDGPU metadata note",
                "the linker dropped it: run flymono doctor",
            )
        ]
    )


def _figures(kernel: dict[str, Any]) -> Resources:
    return Resources(
        name=kernel[".name"],
        vgprs=kernel[".vgpr_count"],
        agprs=kernel.get(".agpr_count", 0),
        sgprs=kernel[".sgpr_count"],
        vgpr_spills=kernel.get(".vgpr_spill_count", 0),
        sgpr_spills=kernel.get(".sgpr_spill_count", 0),
        scratch_bytes=kernel[".private_segment_fixed_size"],
        lds_bytes=kernel[".group_segment_fixed_size"],
        kernarg_bytes=kernel[".kernarg_segment_size"],
        max_threads=kernel[".max_flat_workgroup_size"],
        dynamic_stack=bool(kernel.get(".uses_dynamic_stack", False)),
    )


def machine_code(hsaco: bytes) -> dict[str, tuple[int, bytes]]:
    """Kernel symbol -> (virtual address, code bytes) of every function of the code object."""
    elf, out = ELFFile(io.BytesIO(hsaco)), {}
    for symbol in _symbols(hsaco):
        if symbol["st_info"]["type"] == "STT_FUNC":
            section = elf.get_section(symbol["st_shndx"])
            start = symbol["st_value"] - section["sh_addr"]
            out[symbol.name] = (symbol["st_value"], section.data()[start : start + symbol["st_size"]])
    return out


def _symbols(hsaco: bytes) -> list[Any]:
    elf = ELFFile(io.BytesIO(hsaco))
    table = elf.get_section_by_name(".symtab") or elf.get_section_by_name(".dynsym")
    return list(table.iter_symbols()) if table else []


def instruction_size(word: int) -> int:
    """Bytes of the instruction whose first dword is `word`."""
    if word >> 31 == 0:  # VOP2, VOPC, VOP1: source 0 in 9 bits; 249 is SDWA, 250 DPP, 255 a literal
        madmk = (word >> 25) & 0x3F in (0x17, 0x18, 0x24, 0x25)  # v_madmk/v_madak f32, f16: literal always
        return 8 if word & 0x1FF in (249, 250, 255) or madmk else 4
    if word >> 30 == 0b10:  # SOP2, SOPK, SOP1, SOPC, SOPP
        return _scalar_size(word)
    # 0b11: VOP3, VOP3P, SMEM, DS, FLAT, MUBUF, MTBUF. A scaled MFMA is two dword pairs, of which the first
    # (v_mfma_ld_scale_b32) never stands alone.
    return 16 if word >> 16 == 0xD3AC else 8


def _scalar_size(word: int) -> int:
    top = word >> 23
    if top == 0b101111111:  # SOPP
        return 4
    if top in (0b101111101, 0b101111110):  # SOP1 (one source), SOPC (two)
        sources = (word & 0xFF,) if top == 0b101111101 else (word & 0xFF, (word >> 8) & 0xFF)
        return 8 if 255 in sources else 4
    if word >> 28 == 0b1011:  # SOPK; s_setreg_imm32_b32 (20) carries a literal
        return 8 if (word >> 23) & 0x1F == 20 else 4
    return 8 if 255 in (word & 0xFF, (word >> 8) & 0xFF) else 4  # SOP2


def locate(isa: str, hsaco: bytes) -> list[Instruction]:
    """Instructions of the text with their place and size in the code object.

    Raises Mismatch if text and machine code disagree on the instructions of a kernel.
    """
    text, out = instructions(isa), list[Instruction]()
    for kernel, (address, code) in machine_code(hsaco).items():
        placed = list(_place([i for i in text if i.kernel == kernel], kernel, address, code))
        _prove(placed, _marks(hsaco, address, address + len(code)))
        out += placed
    return out


def _marks(hsaco: bytes, low: int, high: int) -> set[tuple[int, str]]:
    """(offset in the kernel, stage) of the stage symbols between two addresses."""
    named = [(s["st_value"], MARKER.match(s.name)) for s in _symbols(hsaco)]
    return {(value - low, found[1]) for value, found in named if found and low <= value <= high}


def _prove(placed: list[Instruction], marks: set[tuple[int, str]]) -> None:
    """Every stage must begin, by the text, where a symbol of it lies in the code object."""
    before = ""
    for i in placed:
        if i.stage != before and marks and (i.pc, i.stage) not in marks:
            text = f"the stage begins at 0x{i.pc:x} by the text, and no symbol of it lies there"
            raise _mismatch(i.stage, text)
        before = i.stage


def _place(text: list[Instruction], kernel: str, base: int, code: bytes) -> Iterator[Instruction]:
    """`text` with addresses; the assembler fills the room before an aligned loop head with s_nop."""
    words, at = struct.unpack(f"<{len(code) // 4}I", code), 0
    for number, instruction in enumerate(text):
        while (
            instruction.align
            and (base + at) % instruction.align
            and words[at // 4 : at // 4 + 1] == (_S_NOP,)
        ):
            at += 4
        if at >= len(code):
            raise _mismatch(
                kernel, f"the code ends before instruction {number} of {len(text)}: {instruction}"
            )
        size = instruction_size(words[at // 4])
        yield replace(instruction, pc=at, size=size)
        at += size
    if at != len(code):
        raise _mismatch(
            kernel, f"{len(code) - at} bytes of code lie behind the last of {len(text)} instructions"
        )


class Mismatch(CompileError):
    """Two runs of the backend over one module gave different code."""


def _mismatch(kernel: str, text: str) -> Mismatch:
    return Mismatch(
        [
            Finding(
                "GEN_ISA_MISMATCH",
                kernel,
                f"ISA text and code object differ: {text}",
                "report it: both come from the same module and must agree",
            )
        ]
    )


def stage_ranges(located: list[Instruction]) -> tuple[tuple[str, int, int], ...]:
    """(stage, first PC, PC behind) of each run of instructions between two stage markers, by address."""
    out: list[tuple[str, int, int]] = []
    for i in sorted(located, key=lambda i: i.pc):
        if not i.stage:
            continue
        if out and out[-1][0] == i.stage and out[-1][2] == i.pc:
            out[-1] = (i.stage, out[-1][1], i.pc + i.size)
        else:
            out.append((i.stage, i.pc, i.pc + i.size))
    return tuple(out)
