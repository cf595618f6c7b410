"""Arch specs are held to what the compiler does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flymono.gen import probes
from flymono.gen.compiler import Compiler
from flymono.gen.probes import findings, probe
from flymono.specs import load
from flymono.specs.schema import ArchSpec

ARCHS = load().arch


def edited(arch: str, /, **changes: Any) -> ArchSpec:
    """A shipped spec with some values replaced, unchecked (a check would refuse some of them)."""
    return ARCHS[arch].model_copy(update=changes)


@pytest.mark.parametrize("name", sorted(ARCHS))
def test_the_shipped_specs_say_what_the_compiler_confirms(
    name: str, tmp_path: Path, compiler: Compiler
) -> None:
    verdicts = probe(ARCHS[name], tmp_path, compiler)

    assert [v for v in verdicts if not v.holds] == []
    assert len(verdicts) == 2 + len(ARCHS[name].capabilities) + len(ARCHS[name].mfma)
    assert all(v.reason for v in verdicts if not v.admitted)


def test_what_is_claimed_of_both_archs_differs_between_them(tmp_path: Path, compiler: Compiler) -> None:
    old, new = (ARCHS[n] for n in sorted(ARCHS))
    swapped = old.model_copy(update={"capabilities": new.capabilities, "mfma": new.mfma})
    lies = {n for n, v in new.capabilities.items() if v != old.capabilities[n]}
    found = findings(swapped, tmp_path, compiler)

    assert {f.where.rsplit(".", 1)[-1] for f in found if "capabilities" in f.where} == lies
    assert len(lies) == 9
    assert any(
        "matrix instruction scale_f32_16x16x128_f8f6f4" in f.message and "Cannot select" in f.message
        for f in found
    )


def test_a_capability_that_is_denied_but_compiles_is_found(tmp_path: Path, compiler: Compiler) -> None:
    name = max(ARCHS)
    modest = edited(name, capabilities={**ARCHS[name].capabilities, "permlane_swap": False})

    assert [(f.code, f.where) for f in findings(modest, tmp_path, compiler)] == [
        ("PROBE_ADMITS", f"{name}.yaml: capabilities.permlane_swap")
    ]


def test_an_lds_budget_above_the_compiler_s_is_refused(tmp_path: Path, compiler: Compiler) -> None:
    name = min(ARCHS)
    greedy = edited(name, workgroup=ARCHS[name].workgroup.model_copy(update={"lds_bytes": 163840}))
    (found,) = findings(greedy, tmp_path, compiler)

    assert (found.code, found.where) == ("PROBE_REFUSES", f"{name}.yaml: workgroup.lds_bytes")
    assert found.message == "a workgroup may allocate 163840 bytes of LDS: the compiler admits 65536 bytes"


def test_a_smaller_lds_budget_is_no_lie(tmp_path: Path, compiler: Compiler) -> None:
    name = max(ARCHS)
    modest = edited(name, workgroup=ARCHS[name].workgroup.model_copy(update={"lds_bytes": 131072}))

    assert findings(modest, tmp_path, compiler) == []


def test_a_wrong_machine_number_is_refused(tmp_path: Path, compiler: Compiler) -> None:
    name = min(ARCHS)
    wrong = edited(name, elf=ARCHS[name].elf.model_copy(update={"mach": 0x3F}))

    assert [f.where for f in findings(wrong, tmp_path, compiler)] == [f"{name}.yaml: elf.mach"]


def test_a_matrix_instruction_without_a_probe_says_so(tmp_path: Path, compiler: Compiler) -> None:
    name = min(ARCHS)
    strange = ARCHS[name].mfma[0].model_copy(update={"k": 3})
    (found,) = findings(edited(name, mfma=(strange,)), tmp_path, compiler)

    assert "there is no probe for this claim" in found.message


def test_an_arch_that_the_compiler_does_not_know_is_refused_in_every_point(
    tmp_path: Path, compiler: Compiler
) -> None:
    verdicts = probe(edited(min(ARCHS), name="gfx999"), tmp_path, compiler)

    assert not any(v.admitted for v in verdicts)


def test_verdicts_are_cached_by_what_decides_them(
    tmp_path: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    arch = ARCHS[min(ARCHS)]
    first = probe(arch, tmp_path, compiler)
    monkeypatch.setattr(probes, "_ask", lambda *a: pytest.fail("asked again"))

    assert probe(arch, tmp_path) == first
    other = edited(arch.name, title="another title")
    assert probes.cache_file(other, tmp_path) != probes.cache_file(arch, tmp_path)


def test_a_damaged_cache_is_asked_again(tmp_path: Path, compiler: Compiler) -> None:
    arch = ARCHS[min(ARCHS)]
    first = probe(arch, tmp_path, compiler)
    probes.cache_file(arch, tmp_path).write_text("[{")

    assert probe(arch, tmp_path, compiler) == first
