"""The ELF side of code objects: header, symbols, kernel descriptors, metadata.

Whatever is wrong with the bytes comes out as ``CodeObjectError`` with the file's name; a parser's own
exceptions do not pass. Sizes and offsets in the file are claims until they are checked against its length.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgpack
from elftools.elf.elffile import ELFFile

from ..specs.findings import UserError

EM_AMDGPU = 224
# EF_AMDGPU_MACH of the ELF flags -> the arch it names
MACHS = {0x4C: "gfx942", 0x4F: "gfx950"}
_NOTE_METADATA = 32
DESCRIPTOR_BYTES = 64
_SECTION_HEADER_BYTES = 64
# kernel_code_properties: bit -> user SGPRs it puts in front of the workgroup ids, in this order
_USER_SGPRS = (
    (0, "private_segment_buffer", 4),
    (1, "dispatch_ptr", 2),
    (2, "queue_ptr", 2),
    (3, "kernarg_ptr", 2),
    (4, "dispatch_id", 2),
    (5, "flat_scratch_init", 2),
    (6, "private_segment_size", 1),
)


class CodeObjectError(UserError, ValueError):
    """The file is not a code object that the emulator can run; the message says why and what would be."""

    __str__ = UserError.__str__


@dataclass(frozen=True)
class Argument:
    """One kernel argument: bytes ``offset`` to ``offset + size`` of the kernarg segment."""

    name: str
    offset: int
    size: int
    kind: str


@dataclass(frozen=True)
class Descriptor:
    """The 64-byte kernel descriptor, as far as a launch needs it."""

    lds_bytes: int
    scratch_bytes: int
    kernarg_bytes: int
    entry_offset: int
    rsrc1: int
    rsrc2: int
    rsrc3: int
    properties: int
    preload: int

    @classmethod
    def parse(cls, raw: bytes) -> Descriptor:
        lds, scratch, kernarg, entry = struct.unpack_from("<IIIxxxxq", raw)
        rsrc3, rsrc1, rsrc2, properties, preload = struct.unpack_from("<IIIHH", raw, 44)
        return cls(lds, scratch, kernarg, entry, rsrc1, rsrc2, rsrc3, properties, preload)

    @property
    def accum_offset(self) -> int:
        """VGPR row where the accumulator registers start."""
        return 4 * ((self.rsrc3 & 0x3F) + 1)

    @property
    def vgprs_allocated(self) -> int:
        """Vector registers a lane owns, accumulators among them (granules of 8)."""
        return 8 * ((self.rsrc1 & 0x3F) + 1)

    @property
    def user_sgprs(self) -> tuple[tuple[str, int], ...]:
        """(name, dwords) in the order in which they fill s0, s1, ..."""
        named = [(name, width) for bit, name, width in _USER_SGPRS if self.properties >> bit & 1]
        return (*named, ("kernarg_preload", self.preload & 0x7F)) if self.preload & 0x7F else tuple(named)

    @property
    def preload_offset(self) -> int:
        """First preloaded dword of the kernarg segment."""
        return self.preload >> 7

    @property
    def workgroup_ids(self) -> tuple[bool, bool, bool]:
        """Which of x, y and z follow the user SGPRs."""
        return bool(self.rsrc2 >> 7 & 1), bool(self.rsrc2 >> 8 & 1), bool(self.rsrc2 >> 9 & 1)

    @property
    def workgroup_info(self) -> bool:
        return bool(self.rsrc2 >> 10 & 1)

    @property
    def dynamic_stack(self) -> bool:
        return bool(self.properties >> 11 & 1)


@dataclass(frozen=True)
class Kernel:
    """One kernel: where its code is, what it asks for, and its arguments (figures of the compiler)."""

    name: str
    entry: int
    size: int
    lds_bytes: int
    scratch_bytes: int
    kernarg_bytes: int
    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    max_workgroup_size: int
    workgroup_size: tuple[int, ...]
    wavefront_size: int
    args: tuple[Argument, ...]
    descriptor: Descriptor

    @property
    def end(self) -> int:
        return self.entry + self.size


@contextmanager
def blamed_on(origin: str) -> Iterator[None]:
    """Turns whatever a parser of foreign bytes may raise into a CodeObjectError of this file."""
    try:
        yield
    except CodeObjectError:
        raise
    except Exception as error:
        detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise CodeObjectError(f"{origin}: damaged or cut short ({detail})") from error


def open_elf(data: bytes, origin: str) -> ELFFile:
    """The ELF file, with a header and a section table that lie inside it."""
    if data[:4] != b"\x7fELF":
        raise CodeObjectError(f"{origin}: not an ELF file; a code object (.hsaco) is one")
    with blamed_on(origin):
        elf = ELFFile(io.BytesIO(data))
        if elf.elfclass != 64 or not elf.little_endian:
            raise CodeObjectError(
                f"{origin}: a code object is a 64-bit little-endian ELF file, this one is not"
            )
        header = elf.header
        table_end = header["e_shoff"] + header["e_shnum"] * _SECTION_HEADER_BYTES
        if not header["e_shnum"] or header["e_shentsize"] != _SECTION_HEADER_BYTES or table_end > len(data):
            raise CodeObjectError(
                f"{origin}: the section table is missing, damaged or cut short (file: {len(data)} bytes)"
            )
    return elf


def arch_of(elf: ELFFile, origin: str) -> str:
    machine = elf.header["e_machine"]
    if machine not in ("EM_AMDGPU", EM_AMDGPU):
        raise CodeObjectError(f"{origin}: made for {machine}, not for an AMD GPU (EM_AMDGPU)")
    mach = int(elf.header["e_flags"]) & 0xFF
    if mach not in MACHS:
        known = ", ".join(f"{name} ({number:#x})" for number, name in MACHS.items())
        raise CodeObjectError(f"{origin}: made for ELF mach {mach:#x}; the emulator runs {known}")
    return MACHS[mach]


def symbols_of(elf: ELFFile) -> Iterator[tuple[str, int, int]]:
    for section in elf.iter_sections():
        if section["sh_type"] in ("SHT_SYMTAB", "SHT_DYNSYM"):
            for symbol in section.iter_symbols():
                yield symbol.name, int(symbol["st_value"]), int(symbol["st_size"])


def file_offset(elf: ELFFile, address: int, origin: str) -> int:
    for section in elf.iter_sections():
        first = int(section["sh_addr"])
        if section["sh_type"] == "SHT_PROGBITS" and first <= address < first + int(section["sh_size"]):
            return int(section["sh_offset"]) + address - first
    raise CodeObjectError(f"{origin}: no section holds address {address:#x}")


def metadata_of(elf: ELFFile, origin: str) -> list[dict[str, Any]]:
    """``amdhsa.kernels`` of the NT_AMDGPU_METADATA note."""
    for section in elf.iter_sections():
        if section["sh_type"] != "SHT_NOTE":
            continue
        for note in section.iter_notes():
            if note["n_name"] == "AMDGPU" and note["n_type"] == _NOTE_METADATA:
                kernels = msgpack.unpackb(note["n_descdata"], strict_map_key=False)["amdhsa.kernels"]
                return list(kernels)
    raise CodeObjectError(f"{origin}: no AMDGPU metadata note; link the object before loading it")


def figures_of(meta: dict[str, Any]) -> dict[str, Any]:
    args = tuple(
        Argument(str(a.get(".name", "")), int(a[".offset"]), int(a[".size"]), str(a[".value_kind"]))
        for a in meta.get(".args", ())
    )
    return {
        "lds_bytes": int(meta[".group_segment_fixed_size"]),
        "scratch_bytes": int(meta[".private_segment_fixed_size"]),
        "kernarg_bytes": int(meta[".kernarg_segment_size"]),
        "vgprs": int(meta[".vgpr_count"]),
        "agprs": int(meta.get(".agpr_count", 0)),
        "sgprs": int(meta[".sgpr_count"]),
        "vgpr_spills": int(meta.get(".vgpr_spill_count", 0)),
        "sgpr_spills": int(meta.get(".sgpr_spill_count", 0)),
        "max_workgroup_size": int(meta[".max_flat_workgroup_size"]),
        "workgroup_size": tuple(int(n) for n in meta.get(".reqd_workgroup_size", ())),
        "wavefront_size": int(meta[".wavefront_size"]),
        "args": args,
    }
