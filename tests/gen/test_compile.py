"""Compilation in children: products, and every way to fail, at generated and template lines."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from toys import TEMPLATES, promise, unit

from flymono.gen import isa
from flymono.gen.build import AGREE_TRIES, Settings, build
from flymono.gen.compiler import Compiler
from flymono.gen.findings import CheckError, CompileError, GenError
from flymono.gen.linker import Linker
from flymono.gen.unit import Unit


def fails(toy: Unit, settings: Settings, compiler: Compiler, kind: type[GenError]) -> list[str]:
    with pytest.raises(kind) as caught:
        build(toy, settings, compiler)
    assert not list(settings.store.root.glob("toy*")), "a failed build left something behind"
    assert not list(settings.store.root.glob(".tmp*"))
    return [str(f) for f in caught.value.findings]


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_a_good_unit_becomes_an_artefact(target: str, settings: Settings, compiler: Compiler) -> None:
    artefact, cached = build(unit(target=target), settings, compiler)

    assert not cached
    assert artefact.hsaco[:4] == b"\x7fELF"
    assert artefact.resources.kernarg_bytes == 20
    assert artefact.resources.instructions == len(artefact.instructions) > 10
    assert artefact.kernel == "toy"
    assert build(unit(target=target), settings, compiler)[1]


def test_the_artefact_does_not_depend_on_where_it_was_built(tmp_path: Path, compiler: Compiler) -> None:

    from flymono.gen.store import Store

    made = [
        build(unit(), Settings(Store(tmp_path / name), templates=TEMPLATES), compiler)[0]
        for name in ("a", "b/c")
    ]

    assert made[0].manifest == made[1].manifest
    assert str(tmp_path) not in made[0].isa
    assert str(tmp_path).encode() not in made[0].hsaco


def spoiled(times: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let text and code of the first compilations disagree, as the backend's do once in a while. Gives the
    process of the compile server of each try."""
    from flymono.gen import build as module

    servers, good = list[int](), module.compile_unit

    def compile_unit(server: Compiler, *rest: object) -> object:
        products = good(server, *rest)  # type: ignore[arg-type]
        assert server.process is not None
        servers.append(server.process.pid)
        if len(servers) <= times:
            text = products.folder / "kernel.s"
            text.write_text(text.read_text().replace("\ts_endpgm", "\ts_branch .L0\n\ts_endpgm"))
        return products

    monkeypatch.setattr(module, "compile_unit", compile_unit)
    return servers


def test_text_and_code_that_disagree_are_compiled_anew_on_another_server(
    settings: Settings, linker: Linker, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = spoiled(1, monkeypatch)
    with Compiler(linker) as own:
        artefact = build(unit(), settings, own)[0]

    assert len(set(tried)) == len(tried) == 2
    assert "s_branch .L0" not in artefact.isa
    assert artefact.resources.instructions == len(artefact.instructions)


def test_text_and_code_that_never_agree_are_refused(
    settings: Settings, linker: Linker, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = spoiled(99, monkeypatch)
    with Compiler(linker) as own:
        (finding,) = fails(unit(), settings, own, CompileError)

    assert "GEN_ISA_MISMATCH" in finding
    assert len(tried) == AGREE_TRIES


def test_a_fresh_server_and_a_used_one_give_the_same_bytes(
    settings: Settings, compiler: Compiler, linker: Linker
) -> None:
    other = unit("lds_overflow.py.j2", "gfx950", lds_words=4096)
    build(promise(other, lds_bytes=16384, stages=()), settings, compiler)
    used = build(unit(), settings, compiler)[0].hsaco
    settings.force = True
    with Compiler(linker) as fresh:
        assert build(unit(), settings, fresh)[0].hsaco == used


def test_stage_ranges_follow_the_marks_and_agree_with_the_symbols(
    settings: Settings, compiler: Compiler
) -> None:
    artefact, _ = build(unit(), settings, compiler)
    names = [name for name, _, _ in artefact.stage_ranges]
    symbols = [s for s in isa._symbols(artefact.hsaco) if s.name.startswith("flymono.stage.")]

    assert names == ["load", "work", "end"]
    assert len(symbols) == 3
    ((entry, _),) = isa.machine_code(artefact.hsaco).values()
    assert {s["st_value"] - entry for s in symbols} == {low for _, low, _ in artefact.stage_ranges}
    assert all(low < high for _, low, high in artefact.stage_ranges)


def test_an_operation_that_the_arch_lacks(settings: Settings, compiler: Compiler) -> None:
    (text,) = fails(unit("lacks_op.py.j2"), settings, compiler, CompileError)

    assert "(templates/lacks_op.py.j2:12)" in text
    assert "LLVM aborted: Cannot select" in text
    assert "choose by a capability" in text
    assert build(unit("lacks_op.py.j2", "gfx950"), settings, compiler)[0].resources.name == "toy"


def test_lds_overflow_that_flydsl_reports_on_stderr_only(settings: Settings, compiler: Compiler) -> None:
    (text,) = fails(unit("lds_overflow.py.j2", lds_words=20000), settings, compiler, CompileError)

    assert "(templates/lds_overflow.py.j2:9)" in text
    assert "local memory (80000) exceeds limit (65536)" in text


def test_a_crash_names_the_line_that_was_traced(settings: Settings, compiler: Compiler) -> None:
    (text,) = fails(unit("crash.py.j2"), settings, compiler, CompileError)

    assert "(templates/crash.py.j2:9)" in text
    assert "GEN_CRASH the compiler crashed (segmentation fault)" in text
    assert build(unit(), settings, compiler)[0], "the server survives"


def test_a_compilation_past_its_deadline_is_ended(settings: Settings, linker: Linker) -> None:
    with Compiler(linker, seconds=1) as impatient:
        (text,) = fails(unit("hang.py.j2"), settings, impatient, CompileError)

        assert "(templates/hang.py.j2:9)" in text
        assert "GEN_TIMEOUT the compiler did not finish within 1 s" in text


def test_a_dead_server_is_an_error_and_the_next_job_gets_a_new_one(
    settings: Settings, linker: Linker
) -> None:
    with Compiler(linker) as server:
        server.start()
        assert server.process is not None
        server.process.kill()
        server.process.wait()
        assert build(unit(), settings, server)[0].kernel == "toy"


def test_an_exception_of_flydsl_names_the_template_line(settings: Settings, compiler: Compiler) -> None:
    (text,) = fails(unit("wrong_type.py.j2"), settings, compiler, CompileError)

    assert text.startswith("toy-wrong_type-gfx942.py:") and "(templates/wrong_type.py.j2:8)" in text
    assert "carried variable 'v'" in text
    assert "fix: the type of the variable changes" in text


def test_no_linker_at_all_says_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flymono.gen import linker as module

    monkeypatch.setattr(module, "candidates", lambda rocm: iter([("system", (str(tmp_path / "ld.lld"),))]))
    with pytest.raises(CompileError, match=r"GEN_NO_LINKER no usable ld.lld; tried .*ld.lld: does not run"):
        module.find_linker(tmp_path)


def test_roc_m_s_own_linker_is_used_in_place(tmp_path: Path, linker: Linker) -> None:
    from flymono.gen.linker import find_linker, wrapper

    rocm = wrapper(tmp_path, linker.command)
    found = find_linker(tmp_path / "cache", str(rocm))

    assert (found.kind, found.rocm_path) == ("rocm", rocm)
    assert not (tmp_path / "cache").exists()


def test_checks_report_everything_at_once(settings: Settings, compiler: Compiler) -> None:
    found = fails(unit("spill.py.j2", block=1024), settings, compiler, CheckError)

    assert {"ISA_SPILL", "ISA_SCRATCH", "ISA_BLOCK"} <= {
        c for f in found for c in re.findall(r"ISA_[A-Z]+", f)
    }
    assert any("scratch access" in f and "(templates/spill.py.j2:7)" in f for f in found)


@pytest.mark.parametrize(
    ("toy", "text"),
    [
        (promise(unit(), kernarg_bytes=24), "ISA_KERNARG kernarg segment of 20 bytes, the ABI has 24"),
        (promise(unit(), max_vgprs=4), "ISA_VGPRS"),
        (
            promise(unit(), stages=("load", "work", "store")),
            "ISA_STAGE stage store of the plan has no instruction",
        ),
        (promise(unit(), stages=("load",)), "ISA_STAGE stage marker work is not in the plan"),
        (
            promise(unit("mfma.py.j2"), mfma={"load": 1, "work": 3}, stages=()),
            "stage work: MLIR_MFMA_COUNT 2 matrix",
        ),
        (
            promise(unit("mfma.py.j2"), mfma={"load": 1}, stages=()),
            "2 matrix instructions in the source, 0 in the plan",
        ),
        (unit("lds_overflow.py.j2", "gfx950", lds_words=4096), "ISA_LDS 16384 bytes of LDS, planned 0"),
        (
            promise(
                unit("lds_overflow.py.j2", "gfx950", lds_words=4096),
                lds_bytes=16384,
                lds_limit=8192,
                stages=(),
            ),
            "ISA_LDS_LIMIT 16384 bytes of LDS, a workgroup may have 8192",
        ),
        (unit("barrier.py.j2"), "(templates/barrier.py.j2:11)"),
        (unit("store_type.py.j2"), "MLIR_STORE_TYPE a i64 is stored through a pointer to f32"),
        (unit("atomic.py.j2"), "MLIR_ATOMIC_SCOPE llvm.atomicrmw on global memory has scope 'workgroup'"),
        (
            promise(unit("erratum.py.j2", "gfx950"), errata=("pk_fma_f32_op_sel_010",), stages=()),
            "(templates/erratum.py.j2:10) (kernel.s:",
        ),
        (promise(unit(), errata=("unheard_of",)), "no check for erratum 'unheard_of'"),
    ],
    ids=lambda v: v.id if isinstance(v, Unit) else re.sub(r"\W+", "-", v)[:30],
)
def test_each_check_finds_what_it_is_for(
    toy: Unit, text: str, settings: Settings, compiler: Compiler
) -> None:
    found = fails(toy, settings, compiler, CheckError)

    assert [f for f in found if text in f], found
    assert len([f for f in found if "MLIR_BARRIER" in f or "MLIR_ATOMIC" in f]) <= 1, (
        "the uniform twin is no finding"
    )


def test_the_erratum_is_no_finding_where_the_spec_does_not_list_it(
    settings: Settings, compiler: Compiler
) -> None:
    toy = promise(unit("erratum.py.j2", "gfx950"), stages=())

    assert build(toy, settings, compiler)[0].manifest["unchecked"] == ["lds_limit", "max_vgprs", "mfma"]


@pytest.mark.parametrize("kind", ["none", "wave", "for", "while", "carried", "branch", "load"])
def test_barriers_are_judged_by_what_decides_their_region(
    kind: str, settings: Settings, compiler: Compiler
) -> None:
    toy = promise(unit("barriers.py.j2", kind=kind), lds_bytes=None, stages=())
    source = (TEMPLATES / "barriers.py.j2").read_text().splitlines()
    after = next((n for n, line in enumerate(source) if f'"{kind}"' in line), 0)
    line = next((n + 1 for n, text in enumerate(source) if n > after and text.endswith("# divergent")), 0)
    if kind == "none":
        assert build(toy, settings, compiler)[0].kernel == "toy"
        return

    (found,) = fails(toy, settings, compiler, CheckError)
    assert "MLIR_BARRIER" in found
    assert f"(templates/barriers.py.j2:{line})" in found


def test_matrix_instructions_are_counted_through_loops_of_constant_bounds(
    settings: Settings, compiler: Compiler
) -> None:
    toy = promise(unit("mfma_loop.py.j2", chain=5), mfma={"load": 10, "work": 1})

    assert build(toy, settings, compiler)[0].manifest["mfma_by_stage"] == {"load": 10, "work": 1}


def test_switching_packed_f32_off_avoids_the_erratum(settings: Settings, compiler: Compiler) -> None:
    toy = promise(unit("erratum.py.j2", "gfx950"), errata=("pk_fma_f32_op_sel_010",), stages=())
    without = replace(toy, features="-packed-fp32-ops")
    artefact, _ = build(without, settings, compiler)

    assert not [i for i in artefact.instructions if i.mnemonic.startswith("v_pk_fma")]
    assert len([i for i in artefact.instructions if i.mnemonic.startswith(("v_fma", "v_fmac"))]) == 2


def test_an_operation_of_a_raw_builder_in_a_helper_names_helper_and_template(
    settings: Settings, compiler: Compiler
) -> None:
    """The place is the statement of the helper (the branch, for one inside it), then the kernel's line."""
    (text,) = fails(unit("lacks_op_in_helper.py.j2"), settings, compiler, CompileError)

    source = (TEMPLATES / "lacks_op_in_helper.py.j2").read_text().splitlines()
    helper, kernel = (
        1 + next(n for n, x in enumerate(source) if part in x) for part in ("if bits", "= swap(")
    )
    assert f"(templates/lacks_op_in_helper.py.j2:{helper}), from " in text
    assert f"(templates/lacks_op_in_helper.py.j2:{kernel})" in text
