"""`flymono spec`: check, show, copy, schema."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from flymono.cli import main as cli
from flymono.specs import ArchSpec, load
from flymono.specs.tree import plain, read_text


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cli.SPECS_VARIABLE, "x")
    monkeypatch.delenv(cli.SPECS_VARIABLE)


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["spec", *args])
    return int(exit_.value.code or 0)


@pytest.fixture
def copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A folder made by `flymono spec copy`."""
    assert run("copy", str(tmp_path / "mine")) == 0
    capsys.readouterr()
    return tmp_path / "mine"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_check_of_the_shipped_specs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check") == 0
    assert "without a finding: arch/gfx942, arch/gfx950" in capsys.readouterr().out


def test_check_reports_place_and_fix(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(copied / "arch/gfx942.yaml", "lds_bytes: 65536", "lds_bytes: no")
    assert run("check", "--specs", str(copied)) == 2
    err = capsys.readouterr().err
    assert f"{copied}/arch/gfx942.yaml:9:14: AMBIGUOUS `no`" in err
    assert err.endswith("error: 1 finding in the specs\n")
    assert run("check", "--json", "--specs", str(copied)) == 2
    (finding,) = json.loads(capsys.readouterr().out)
    assert (finding["line"], finding["col"], finding["code"]) == (9, 14, "AMBIGUOUS")


def test_an_lds_budget_that_no_pass_fits_is_refused_with_its_stage(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(copied / "arch/gfx942.yaml", "lds_bytes: 65536", "lds_bytes: 30000")
    assert run("check", "--specs", str(copied)) == 2
    err = capsys.readouterr().err
    assert "arch/gfx942.yaml:9:14: PLAN_REFUSES" in err
    assert "seam" in err
    assert "30000" in err


@pytest.mark.parametrize(("name", "width", "rows"), [("gfx942", 6, 42), ("gfx950", 16, 48)])
def test_show_derives_width_and_rows(
    name: str, width: int, rows: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("show", name) == 0
    out = capsys.readouterr().out
    assert out.startswith("# yaml-language-server")
    assert f"# pass width {width} (auto): " in out
    assert f"# row limit  {rows}: " in out


def test_show_with_an_edited_budget(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """131072 bytes still hold 16 rows a pass; 98304 do not, and the stage that keeps 13 out is named."""
    edit(copied / "arch/gfx950.yaml", "lds_bytes: 163840", "lds_bytes: 131072")
    assert run("show", "gfx950", "--specs", str(copied)) == 0
    assert "# pass width 16 (auto): the MFMA has 16 columns" in capsys.readouterr().out
    edit(copied / "arch/gfx950.yaml", "lds_bytes: 131072", "lds_bytes: 98304")
    assert run("show", "gfx950", "--specs", str(copied)) == 0
    assert "# pass width 12 (auto): at 13 rows a pass FFN moe" in capsys.readouterr().out


def test_a_k_block_that_does_not_fit_is_refused_at_its_key(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(copied / "arch/gfx942.yaml", "expert_k_block: 1024", "expert_k_block: 512")
    assert run("check", "--specs", str(copied)) == 2
    err = capsys.readouterr().err
    assert "arch/gfx942.yaml:50:" in err and "PLAN_REFUSES" in err and "state 1024 or whole" in err


def test_show_resolved_reads_back(capsys: pytest.CaptureFixture[str]) -> None:
    for name in load().names():
        assert run("show", name, "--resolved") == 0
        document = read_text(capsys.readouterr().out, "f")
        assert document.findings == []
        assert document.tree is not None
        assert load().spec(name).model_validate(plain(document.tree)) == load().spec(name)


def test_show_origin(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copied / "arch/gfx951.yaml").write_text(
        "schema_version: 1\nkind: arch\nname: gfx951\ninherits: gfx950\noverride:\n  tp: [2]\n"
    )
    assert run("show", "gfx951", "--origin", "--specs", str(copied)) == 0
    lines = {line.split(":")[0].strip(): line for line in capsys.readouterr().out.splitlines() if ":" in line}
    assert lines["tp"].endswith("gfx951.yaml:6:7 (override)")
    assert lines["wave_size"].endswith("gfx950.yaml:10:14 (inherited from gfx950)")


def test_show_json_and_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "gfx942", "--json") == 0
    assert json.loads(capsys.readouterr().out)["elf"] == {"mach": 0x4C}
    assert run("show") == 0
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} == set(load().names())


def test_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "gfx943") == 2
    assert capsys.readouterr().err == "error: no spec is named `gfx943`\n    fix: did you mean `gfx942`?\n"


def test_copy_does_not_overwrite(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("copy", str(copied)) == 2
    assert "exists" in capsys.readouterr().err
    assert load(copied).digest("gfx950") == load().digest("gfx950")


def test_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("schema", "--check") == 0
    assert run("schema", "--check", "-o", str(tmp_path)) == 2
    assert run("schema", "-o", str(tmp_path)) == 0
    assert run("schema", "--check", "-o", str(tmp_path)) == 0
    capsys.readouterr()


def test_probe_verdicts_are_placed_in_the_spec(
    copied: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler's verdicts (tested in tests/gen) become findings at the key that makes the claim."""
    from flymono.gen import probes

    def verdicts(arch: ArchSpec) -> tuple[probes.Verdict, ...]:
        lds, bitop = ("workgroup", "lds_bytes"), ("capabilities", "bitop3")
        return (
            probes.Verdict(
                "LDS of a workgroup", lds, True, arch.workgroup.lds_bytes <= 65536, "it admits 65536"
            ),
            probes.Verdict("capability bitop3", bitop, arch.has("bitop3"), True, ""),
        )

    monkeypatch.setattr(probes, "probe", verdicts)
    assert run("check", "--probe", "--json", "--specs", str(copied)) == 2
    found = [
        (Path(f["file"]).name, f["line"], f["col"], f["code"]) for f in json.loads(capsys.readouterr().out)
    ]
    assert found == [("gfx942.yaml", 36, 11, "PROBE_ADMITS"), ("gfx950.yaml", 9, 14, "PROBE_REFUSES")]
    assert run("check", "--specs", str(copied)) == 0


def test_copy_to_a_place_that_takes_nothing_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
    try:
        code = run("copy", str(tmp_path / "mine"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert code == 2
    assert "cannot write" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
