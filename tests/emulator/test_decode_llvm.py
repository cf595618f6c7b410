"""The whole IR corpus, compiled live: every instruction's text and size against LLVM's own."""

from __future__ import annotations

import importlib.util

import pytest
from decode_corpus import (
    ARCHS,
    canonical,
    compile_ir,
    instruction_lines,
    instructions,
    modules,
    size_of,
    text_section,
)

from flymono.emulator import _core

pytestmark = [
    pytest.mark.slow,  # LLVM compiles some thousand small functions; test_decode_golden.py is the quick form
    pytest.mark.skipif(
        importlib.util.find_spec("llvmlite") is None,
        reason="llvmlite (dev group, LLVM as oracle) is not installed",
    ),
]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", list(modules(ARCHS[-1])))
def test_every_instruction_is_decoded_as_llvm_prints_it(arch: str, name: str) -> None:
    assembly, data = compile_ir(arch, [modules(arch)[name].source])[0]
    section = text_section(data)
    lines = list(instructions(arch, assembly, section, size_of))
    decoded = _core.decode_listing(arch, section)
    starts = {row[0]: row for row in decoded}
    wrong = []
    for line in lines:
        row = starts[len(section) - len(line.code)]
        if row[4] is not None or canonical(row[3]) != canonical(line.text):
            wrong.append(f"pc {row[0]:#x}: LLVM {line.text!r}, decoder {row[3]!r} {row[4] or ''}")
    assert not wrong, "\n".join(wrong[:40])
    assert len(lines) > 40, "the corpus shrank"


@pytest.mark.parametrize("arch", ARCHS)
def test_branches_lead_to_the_labels(arch: str) -> None:
    """Targets are compared with the positions of LLVM's labels, which its object file does not name."""
    source = modules(arch)["control"].source
    assembly, data = compile_ir(arch, [source])[0]
    section = text_section(data)
    decoded = {row[0]: row[3] for row in _core.decode_listing(arch, section)}
    lines = iter(instructions(arch, assembly, section, size_of))
    labels: dict[str, int] = {}
    wanted: dict[int, str] = {}
    pending: list[str] = []
    for raw in assembly.splitlines():
        text = raw.split(";")[0].strip()
        if text.startswith(".LBB") and text.endswith(":"):
            pending.append(text[:-1])
        elif any(isinstance(line, str) for line in instruction_lines(raw)):
            line = next(lines)
            at = len(section) - len(line.code)
            labels.update(dict.fromkeys(pending, at))
            pending.clear()
            if line.text.startswith(("s_cbranch", "s_branch")):
                wanted[at] = line.text.split()[1]
    assert wanted, "no branch in the corpus"
    for at, label in wanted.items():
        assert int(decoded[at].split()[1], 16) == labels[label], (
            f"{decoded[at]} at {at:#x} should reach {label}"
        )
