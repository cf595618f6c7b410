"""AMDGPU code objects: what is in the ELF that a GPU, or the emulator, loads.

A ``CodeObject`` is immutable: ``patched`` returns another one. Program counters are byte offsets from the
start of ``.text``. Everything is read when the object is made, so bytes that are cut short, foreign or
damaged raise ``CodeObjectError`` there and nowhere later; instructions that do not decode are no error
before they are asked for strictly or executed. Format: LLVM's AMDGPUUsage.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from elftools.elf.elffile import ELFFile

from . import _core
from .codeobject_elf import (
    DESCRIPTOR_BYTES,
    Argument,
    CodeObjectError,
    Descriptor,
    Kernel,
    arch_of,
    blamed_on,
    figures_of,
    file_offset,
    metadata_of,
    open_elf,
    symbols_of,
)

__all__ = ["Argument", "CodeObject", "CodeObjectError", "Descriptor", "Instruction", "Kernel"]


class Instruction(NamedTuple):
    """One instruction: byte offset in ``.text``, bytes, mnemonic as LLVM prints it, text, error or None."""

    pc: int
    size: int
    mnemonic: str
    text: str
    error: str | None


class CodeObject:
    """A linked AMDGPU code object.

    ``source`` is a path or the bytes. ``.arch`` names the arch, ``.kernels`` maps names to ``Kernel``,
    ``.text`` is the code section. Raises ``CodeObjectError``.
    """

    def __init__(self, source: str | Path | bytes) -> None:
        self.data, self.origin = _read(source)
        elf = open_elf(self.data, self.origin)
        self.arch = arch_of(elf, self.origin)
        with blamed_on(self.origin):
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
            raise CodeObjectError(
                f"{self.origin}: instructions that {self.arch} does not have:\n{listed}{more}"
            )
        return [(row.pc, row.size, row.text) for row in rows]

    def opcodes(self, kernel: str | None = None, *, forms: bool = False) -> Counter[str]:
        """Instructions per operation; ``forms`` counts the encodings (_e32, _e64, _sdwa, _dpp) apart."""
        names = (row.mnemonic for row in self._code(kernel))
        return Counter(
            names if forms else (name if name == "unknown" else _operation(name) for name in names)
        )

    def patched(self, pc: int, words: bytes | Iterable[int]) -> CodeObject:
        """A copy with other code at byte ``pc``: ``words`` are bytes or 32-bit words. For fault injection."""
        raw = words if isinstance(words, bytes) else b"".join(struct.pack("<I", word) for word in words)
        if not 0 <= pc <= pc + len(raw) <= len(self.text):
            raise CodeObjectError(
                f"{self.origin}: {len(raw)} bytes at pc {pc:#x} reach out of .text ({len(self.text)} bytes)"
            )
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
            raise CodeObjectError(
                f"{self.origin}: {what} needs bytes up to {offset + size}, the file ends at {have}"
            )
        return self.data[offset : offset + size]

    def _kernels(self, elf: ELFFile) -> dict[str, Kernel]:
        symbols = {name: (address, size) for name, address, size in symbols_of(elf)}
        kernels = [self._kernel(elf, symbols, entry) for entry in metadata_of(elf, self.origin)]
        if not kernels:
            raise CodeObjectError(f"{self.origin}: the metadata lists no kernel")
        return {kernel.name: kernel for kernel in kernels}

    def _kernel(self, elf: ELFFile, symbols: dict[str, tuple[int, int]], meta: dict[str, Any]) -> Kernel:
        name = str(meta[".name"])
        symbol = str(meta.get(".symbol", name + ".kd"))
        if symbol not in symbols:
            raise CodeObjectError(f"{self.origin}: kernel {name} has no descriptor symbol {symbol}")
        address = symbols[symbol][0]
        descriptor = Descriptor.parse(
            self._slice(file_offset(elf, address, self.origin), DESCRIPTOR_BYTES, f"{symbol}")
        )
        entry = address + descriptor.entry_offset - self.text_address
        if not 0 <= entry < len(self.text) or entry % 4:
            raise CodeObjectError(f"{self.origin}: the entry of kernel {name} ({entry:#x}) is not in .text")
        size = symbols.get(symbol.removesuffix(".kd"), (0, 0))[1] or len(self.text) - entry
        return Kernel(
            name, entry, min(size, len(self.text) - entry), **figures_of(meta), descriptor=descriptor
        )


def _read(source: str | Path | bytes) -> tuple[bytes, str]:
    if isinstance(source, bytes):
        return source, "code object"
    try:
        return Path(source).read_bytes(), str(source)
    except OSError as error:
        raise CodeObjectError(f"{source}: cannot be read ({error.strerror or error})") from error


def _operation(mnemonic: str) -> str:
    """``v_add_f32`` of ``v_add_f32_e64``."""
    for suffix in ("_e32", "_e64", "_sdwa", "_dpp"):
        if mnemonic.endswith(suffix):
            return mnemonic.removesuffix(suffix)
    return mnemonic
