"""`flymono emulate`: what a code object contains and what the emulator implements."""

from __future__ import annotations

from pathlib import Path

import pytest

from flymono.cli import main as cli

pytest.importorskip("flymono.emulator._core", reason="the emulator core is not built here")


def run(*args: str | Path) -> int:
    """The exit code of `flymono emulate args`."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["emulate", *map(str, args)])
    return int(ended.value.code or 0)


def test_opcodes_of_a_code_object(repo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(repo / "tests/emulator/sample_gfx942.hsaco", "--opcodes") == 0
    said = capsys.readouterr().out
    assert "reverse: gfx942, 3 VGPR, 256 B LDS, 20 B arguments" in said
    assert "s_waitcnt" in said
    assert "not implemented" not in said


def test_an_opcode_that_is_not_implemented_fails(
    repo: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from flymono.runtime.run import inspect_code

    all_but_one = [name for name in inspect_code.implemented_ops() if name != "ds_read_b32"]
    monkeypatch.setattr(inspect_code, "implemented_ops", lambda: all_but_one)
    assert run(repo / "tests/emulator/sample_gfx942.hsaco") == 1
    assert "not implemented: ds_read_b32" in capsys.readouterr().out


def test_what_is_no_code_object_is_exit_2(
    repo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "none.hsaco") == 2
    assert "none.hsaco: cannot be read (No such file or directory)" in capsys.readouterr().err
    assert run(repo / "README.md") == 2
    said = capsys.readouterr().err
    assert "not an ELF file" in said
    assert "Traceback" not in said


def test_the_list_of_opcodes_is_sorted(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--list-opcodes") == 0
    names = capsys.readouterr().out.split()
    assert names == sorted(names)
    assert {"s_waitcnt", "v_mfma_f32_16x16x4_f32"} <= set(names)
