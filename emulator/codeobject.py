"""AMDGPU code objects: what is in the ELF that a GPU, or the emulator, loads.

A ``CodeObject`` is immutable: ``patched`` returns another one. Program counters are byte offsets from the
start of ``.text``. Everything is read when the object is made, so bytes that are cut short, foreign or damaged
raise ``CodeObjectError`` there and nowhere later; instructions that do not decode are no error before they are
asked for strictly or executed. Format: LLVM's AMDGPUUsage (ELF code object, kernel descriptor, metadata v5/v6).
"""

from __future__ import annotations

import io
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from . import _core

EM_AMDGPU = 224
# EF_AMDGPU_MACH of the ELF flags -> the arch it names
MACHS = {0x4C: "gfx942", 0x4F: "gfx950"}
_NOTE_METADATA = 32
_DESCRIPTOR_BYTES = 64
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


class CodeObjectError(ValueError):
    """The file is not a code object that the emulator can run; the message says why and what would be."""


class Instruction(NamedTuple):
    """One instruction: byte offset in ``.text``, bytes, mnemonic as LLVM prints it, text, error or None."""

    pc: int
    size: int
    mnemonic: str
    text: str
    error: str | None


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


class CodeObject:
    """A linked AMDGPU code object.

    ``source`` is a path or the bytes. ``.arch`` names the arch, ``.kernels`` maps names to ``Kernel``, ``.text`` is
    the code section. Raises ``CodeObjectError``.
    """

    def __init__(self, source: str | Path | bytes) -> None:
        self.data, self.origin = _read(source)
        elf = _elf(self.data, self.origin)
        self.arch = _arch(elf, self.origin)
        with _blamed_on(self.origin):
            sections = [s for s in elf.iter_sections() if s.name == ".text"]
            if not sections:
                raise CodeObjectError(f"{self.origin}: no .text section, so there is no code to run")
            self._text_at = int(sections[0]["sh_offset"])
            self.text_address = int(sections[0]["sh_addr"])
            self.text = self._slice(self._text_at, int(sections[0]["sh_size"]), ".text")
            self.kernels = self._kernels(elf)

    def __repr__(self) -> str:
        return f"CodeObject({self.origin!r}, arch={self.arch!r}, kernels={list(self.kernels)})"

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """The whole code section, alignment padding and all, in address order without gaps."""
        return tuple(Instruction(*row) for row in _core.decode_listing(self.arch, self.text))

    def disassemble(self, kernel: str | None = None, *, strict: bool = False) -> list[tuple[int, int, str]]:
        """[(pc, size, text)] of one kernel, or of all kernels; ``strict`` refuses unknown instructions."""
        rows = list(self._code(kernel))
        unknown = [row for row in rows if row.error is not None]
        if strict and unknown:
            listed = "\n".join(f"  pc {row.pc:#x}: {row.error}" for row in unknown[:10])
            more = f"\n  and {len(unknown) - 10} more" if len(unknown) > 10 else ""
            raise CodeObjectError(f"{self.origin}: instructions that {self.arch} does not have:\n{listed}{more}")
        return [(row.pc, row.size, row.text) for row in rows]

    def opcodes(self, kernel: str | None = None, *, forms: bool = False) -> Counter[str]:
        """Instructions per operation; with ``forms`` the encodings (_e32, _e64, _sdwa, _dpp) are counted apart."""
        names = (row.mnemonic for row in self._code(kernel))
        return Counter(names if forms else (name if name == "unknown" else _operation(name) for name in names))

    def patched(self, pc: int, words: bytes | Iterable[int]) -> CodeObject:
        """A copy whose code at byte ``pc`` is replaced by ``words`` (bytes, or 32-bit words); for fault injection."""
        raw = words if isinstance(words, bytes) else b"".join(struct.pack("<I", word) for word in words)
        if not 0 <= pc <= pc + len(raw) <= len(self.text):
            raise CodeObjectError(f"{self.origin}: {len(raw)} bytes at pc {pc:#x} reach out of .text ({len(self.text)} bytes)")
        at = self._text_at + pc
        return CodeObject(self.data[:at] + raw + self.data[at + len(raw) :])

    def _code(self, kernel: str | None) -> Iterator[Instruction]:
        if kernel is not None and kernel not in self.kernels:
            known = ", ".join(self.kernels) or "none"
            raise CodeObjectError(f"{self.origin}: no kernel {kernel!r}; it has {known}")
        chosen = list(self.kernels.values()) if kernel is None else [self.kernels[kernel]]
        for row in self.instructions:
            if any(k.entry <= row.pc < k.end for k in chosen):
                yield row

    def _slice(self, offset: int, size: int, what: str) -> bytes:
        if offset + size > len(self.data):
            have = len(self.data)
            raise CodeObjectError(f"{self.origin}: {what} needs bytes up to {offset + size}, the file ends at {have}")
        return self.data[offset : offset + size]

    def _kernels(self, elf: ELFFile) -> dict[str, Kernel]:
        symbols = {name: (address, size) for name, address, size in _symbols(elf)}
        kernels = [self._kernel(elf, symbols, entry) for entry in _metadata(elf, self.origin)]
        if not kernels:
            raise CodeObjectError(f"{self.origin}: the metadata lists no kernel")
        return {kernel.name: kernel for kernel in kernels}

    def _kernel(self, elf: ELFFile, symbols: dict[str, tuple[int, int]], meta: dict[str, Any]) -> Kernel:
        name = str(meta[".name"])
        symbol = str(meta.get(".symbol", name + ".kd"))
        if symbol not in symbols:
            raise CodeObjectError(f"{self.origin}: kernel {name} has no descriptor symbol {symbol}")
        address = symbols[symbol][0]
        descriptor = Descriptor.parse(self._slice(_file_offset(elf, address), _DESCRIPTOR_BYTES, f"{symbol}"))
        entry = address + descriptor.entry_offset - self.text_address
        if not 0 <= entry < len(self.text) or entry % 4:
            raise CodeObjectError(f"{self.origin}: the entry of kernel {name} ({entry:#x}) is not in .text")
        size = symbols.get(symbol.removesuffix(".kd"), (0, 0))[1] or len(self.text) - entry
        return Kernel(name, entry, min(size, len(self.text) - entry), **_figures(meta), descriptor=descriptor)


def _read(source: str | Path | bytes) -> tuple[bytes, str]:
    if isinstance(source, bytes):
        return source, "code object"
    try:
        return Path(source).read_bytes(), str(source)
    except OSError as error:
        raise CodeObjectError(f"{source}: cannot be read ({error.strerror or error})") from error


class _blamed_on:
    """Turns whatever a parser of foreign bytes may raise into a CodeObjectError of this file."""

    def __init__(self, origin: str) -> None:
        self.origin = origin

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, CodeObjectError):
            detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise CodeObjectError(f"{self.origin}: damaged or cut short ({detail})") from error


def _elf(data: bytes, origin: str) -> ELFFile:
    if data[:4] != b"\x7fELF":
        raise CodeObjectError(f"{origin}: not an ELF file; a code object (.hsaco) is one")
    try:
        elf = ELFFile(io.BytesIO(data))
    except (ELFError, Exception) as error:
        raise CodeObjectError(f"{origin}: the ELF header is damaged or cut short ({error})") from error
    if elf.elfclass != 64 or not elf.little_endian:
        raise CodeObjectError(f"{origin}: a code object is a 64-bit little-endian ELF file, this one is not")
    return elf


def _arch(elf: ELFFile, origin: str) -> str:
    machine = elf.header["e_machine"]
    if machine not in ("EM_AMDGPU", EM_AMDGPU):
        raise CodeObjectError(f"{origin}: made for {machine}, not for an AMD GPU (EM_AMDGPU)")
    mach = int(elf.header["e_flags"]) & 0xFF
    if mach not in MACHS:
        known = ", ".join(f"{name} ({number:#x})" for number, name in MACHS.items())
        raise CodeObjectError(f"{origin}: made for ELF mach {mach:#x}; the emulator runs {known}")
    return MACHS[mach]


def _symbols(elf: ELFFile) -> Iterator[tuple[str, int, int]]:
    for section in elf.iter_sections():
        if section["sh_type"] in ("SHT_SYMTAB", "SHT_DYNSYM"):
            for symbol in section.iter_symbols():
                yield symbol.name, int(symbol["st_value"]), int(symbol["st_size"])


def _file_offset(elf: ELFFile, address: int) -> int:
    for section in elf.iter_sections():
        first = int(section["sh_addr"])
        if section["sh_type"] == "SHT_PROGBITS" and first <= address < first + int(section["sh_size"]):
            return int(section["sh_offset"]) + address - first
    raise CodeObjectError(f"no section holds address {address:#x}")


def _metadata(elf: ELFFile, origin: str) -> list[dict[str, Any]]:
    """``amdhsa.kernels`` of the NT_AMDGPU_METADATA note."""
    for section in elf.iter_sections():
        if section["sh_type"] != "SHT_NOTE":
            continue
        for note in section.iter_notes():
            if note["n_name"] == "AMDGPU" and note["n_type"] == _NOTE_METADATA:
                kernels = msgpack.unpackb(note["n_descdata"], strict_map_key=False)["amdhsa.kernels"]
                return list(kernels)
    raise CodeObjectError(f"{origin}: no AMDGPU metadata note; link the object before loading it")


def _figures(meta: dict[str, Any]) -> dict[str, Any]:
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


def _operation(mnemonic: str) -> str:
    """``v_add_f32`` of ``v_add_f32_e64``."""
    for suffix in ("_e32", "_e64", "_sdwa", "_dpp"):
        if mnemonic.endswith(suffix):
            return mnemonic.removesuffix(suffix)
    return mnemonic
