"""Every instruction of shipped K1 builds, as FlyDSL compiled them, against the ISA text that LLVM wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from decode_corpus import canonical, instructions, size_of

from flymono.emulator.codeobject import CodeObject
from flymono.gen import api
from flymono.runtime.plan import BuildKey

BUILDS = ("dsv41_k1-gfx942-tp4-s6-r2", "dsv41_k1-gfx950-tp2-s6-r2")
SUFFIXES = ("_e32", "_e64")


def _same(ours: str, llvms: str) -> bool:
    """Inline assembly stands in LLVM's text as it was written, often without the suffix of the encoding."""
    name, _, operands = ours.partition(" ")
    bare = {f"{name.removesuffix(suffix)} {operands}" for suffix in SUFFIXES}
    return canonical(llvms) in {canonical(ours), *map(canonical, bare)}


@pytest.mark.slow
@pytest.mark.parametrize("build_id", BUILDS)
def test_every_instruction_of_k1_is_decoded_as_llvm_prints_it(build_id: str, tmp_path: Path) -> None:
    artefact = api.build(BuildKey.parse(build_id), cache=tmp_path)
    code = CodeObject(artefact.hsaco)
    (kernel,) = code.kernels.values()
    section = code.text[kernel.entry : kernel.end]
    decoded = {pc: text for pc, _, text in code.disassemble(strict=True)}
    lines = list(instructions(code.arch, artefact.isa, section, size_of))
    wrong = []
    for line in lines:
        ours = decoded[kernel.end - len(line.code)]
        if not _same(ours, line.text):
            wrong.append(f"LLVM {line.text!r}, decoder {ours!r}")
    assert not wrong, "\n".join(wrong[:40])
    assert len(lines[-1].code) == size_of(code.arch, lines[-1].code), "the text ends before the code"
    assert code.kernels[kernel.name].lds_bytes == artefact.resources.lds_bytes
