"""Compiles the IR of decode_ir.py with LLVM and sets its text beside its bytes.

LLVM's text is the oracle: of the emulator only the sizes of instructions are asked, and a wrong size would
set all later text beside wrong bytes. Compilation runs in a child process, since an intrinsic that an arch
lacks aborts it. ``python decode_corpus.py FOLDER`` writes decode_golden.tsv (one line for each shape of
instruction) and the linked objects that test_codeobject.py loads.
"""

from __future__ import annotations

import base64
import io
import json
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from decode_ir import SAMPLE, modules

ARCHS = ("gfx942", "gfx950")


class Line(NamedTuple):
    """One instruction as LLVM encodes it (``code`` runs on to the end of the section) and prints it."""

    arch: str
    code: bytes
    text: str


_CHILD = r"""
import base64, json, sys
import llvmlite.binding as llvm
llvm.initialize_all_targets(); llvm.initialize_all_asmprinters()
cpu, sources = json.load(sys.stdin)
machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu=cpu, opt=2)
out = []
for source in sources:
    module = llvm.parse_assembly(source)
    out.append([machine.emit_assembly(module), base64.b64encode(machine.emit_object(module)).decode()])
json.dump(out, sys.stdout)
"""


def compile_ir(arch: str, sources: list[str]) -> list[tuple[str, bytes]]:
    """(assembly text, object file) of each IR module."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD],
        input=json.dumps([arch, sources]),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"LLVM refused a module for {arch}:\n{done.stderr[-2000:]}")
    return [(text, base64.b64decode(raw)) for text, raw in json.loads(done.stdout)]


def instruction_lines(assembly: str) -> Iterator[str | int]:
    """LLVM's instructions in order; an int is an alignment (bytes) that comes before the next one."""
    for line in assembly.splitlines():
        line = line.split(";")[0].strip()
        if match := re.match(r"\.p2align\s+(\d+)", line):
            yield 1 << int(match[1])
        elif re.match(r"(s|v|ds|buffer|global|flat|scratch)_\w+(\s|$)", line):
            yield re.sub(r"\s+", " ", line)


def text_section(data: bytes) -> bytes:
    from elftools.elf.elffile import ELFFile

    return bytes(ELFFile(io.BytesIO(data)).get_section_by_name(".text").data())


# LLVM prints some offsets of ds_swizzle_b32 as what they do.
_SWIZZLES = {"swizzle(SWAP,16)": "16415", "swizzle(SWAP,1)": "1055", "swizzle(QUAD_PERM,1,0,3,2)": "32945"}


_INLINE = {struct.unpack("<I", struct.pack("<f", v))[0]: str(v) for v in (-0.5, -1.0, -2.0, -4.0)}
_HIGH = 0xFFFFFFFF << 32


def _number(match: re.Match[str]) -> str:
    """A hex number as decimal; one that is the sign-extended bits of an inline float, which LLVM's printer
    writes for a 32-bit operand, as that float."""
    value = int(match[0], 16)
    if value & _HIGH == _HIGH:
        value &= 0xFFFFFFFF
        return _INLINE.get(value, str(value))
    return str(value)


def canonical(text: str) -> str:
    """Text without differences of spelling: number bases, labels, an offset of 0 that is printed."""
    name, _, rest = text.partition(" ")
    if name.startswith(("s_cbranch", "s_branch")):
        return name
    for spelled, number in _SWIZZLES.items():
        rest = rest.replace(spelled, number)
    rest = re.sub(r" offset:(0x0|0)(?![0-9a-fx])", "", rest)
    return f"{name} " + re.sub(r"0x[0-9a-f]+", _number, rest)


def instructions(
    arch: str, assembly: str, section: bytes, sizes: Callable[[str, bytes], int]
) -> Iterator[Line]:
    """LLVM's text beside its bytes. ``sizes`` says how long the instruction at the start of some bytes is."""
    at = 0
    for line in instruction_lines(assembly):
        if isinstance(line, int):
            while (
                at % line and section[at : at + 4] == b"\x00\x00\x80\xbf"
            ):  # s_nop 0 fills up to the alignment
                at += 4
            continue
        yield Line(arch, section[at:], line)
        at += sizes(arch, section[at : at + 16])


def _shape(text: str) -> str:
    """What makes two instructions the same kind: operand kinds and modifiers, not the numbers."""
    return re.sub(r"-?(0x[0-9a-f]+|\d+\.?\d*)", "#", text.partition(" ")[2])


def size_of(arch: str, code: bytes) -> int:
    """Bytes of the first instruction, as the decoder says."""
    from flymono.emulator import _core

    return int(_core.decode_listing(arch, code)[0][1])


def golden() -> Iterator[str]:
    """One line for each shape: archs, hex bytes, text."""
    seen: dict[tuple[str, str], tuple[bytes, str, set[str]]] = {}
    for arch in ARCHS:
        for module in modules(arch).values():
            assembly, data = compile_ir(arch, [module.source])[0]
            for line in instructions(arch, assembly, text_section(data), size_of):
                name = line.text.partition(" ")[0]
                if not name.startswith(("s_cbranch", "s_branch")):
                    code = line.code[: size_of(arch, line.code[:16])]
                    seen.setdefault((name, _shape(line.text)), (code, line.text, set()))[2].add(arch)
    for (_, _), (code, text, archs) in sorted(seen.items()):
        yield f"{'both' if len(archs) == len(ARCHS) else archs.pop()}\t{code.hex()}\t{text}"


def linked(arch: str) -> bytes:
    """The sample kernels of decode_ir.py as a code object that a GPU could load."""
    with tempfile.TemporaryDirectory() as folder:
        relocatable, out = Path(folder, "sample.o"), Path(folder, "sample.hsaco")
        relocatable.write_bytes(compile_ir(arch, [SAMPLE])[0][1])
        command = [sys.executable, "-m", "ziglang", "ld.lld", "-shared", str(relocatable), "-o", str(out)]
        subprocess.run(command, check=True)
        return out.read_bytes()


def write(folder: Path) -> None:
    (folder / "decode_golden.tsv").write_text("\n".join(golden()) + "\n")
    for arch in ARCHS:
        (folder / f"sample_{arch}.hsaco").write_bytes(linked(arch))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
