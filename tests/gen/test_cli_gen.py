"""Commands gen, build, doctor and diff: what they print, what they write, how they fail."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flymono.cli import doctor as doctor_module
from flymono.cli import main as cli
from flymono.cli.diff import report
from flymono.gen.diff import Side, compare, path_of, read_builds
from flymono.gen.findings import CheckError, Finding
from flymono.gen.store import Artefact
from flymono.gen.unit import Unit

ID942, ID950 = "dsv41_k1-gfx942-tp4-s6-r2", "dsv41_k1-gfx950-tp2-s6-r2"
Output = pytest.CaptureFixture[str]


def run(*args: str | Path) -> int:
    """The exit code of `flymono args`."""
    with pytest.raises(SystemExit) as ended:
        cli.main([str(a) for a in args])
    return int(ended.value.code or 0)


# ---------------------------------------------------------------- gen


def test_gen_prints_one_module(capsys: Output) -> None:
    assert run("gen", "k1", "--arch", "gfx950", "--tp", "2") == 0
    printed = capsys.readouterr().out
    ast.parse(printed)

    assert printed.startswith(f"# {ID950}: generated from templates/k1.py.j2")
    assert f"# Again: flymono gen --build {ID950}\n" in printed


def test_the_regenerate_command_of_the_header_regenerates(capsys: Output) -> None:
    assert run("gen", "k1", "--arch", "gfx942", "--rows", "7", "--ratio", "0", "--no-fold") == 0
    first = capsys.readouterr().out
    command = re.search(r"^# Again: flymono (.*)$", first, re.M)
    assert command
    assert run(*command[1].split()) == 0

    assert capsys.readouterr().out == first


def test_gen_writes_files_and_check_compares(tmp_path: Path, capsys: Output) -> None:
    assert run("gen", "--build", ID942, "--build", ID950, "-o", tmp_path) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"{ID942}.py", f"{ID950}.py"]
    assert run("gen", "--build", ID942, "-o", tmp_path, "--check") == 0
    path = tmp_path / f"{ID942}.py"
    path.write_text(path.read_text().replace("rows=6", "rows=5"))
    (tmp_path / f"{ID950}.py").unlink()
    capsys.readouterr()

    assert run("gen", "--build", ID942, "--build", ID950, "-o", tmp_path, "--check") == 2
    said = capsys.readouterr().err
    assert "-        rows=5" in said
    assert f"{ID950}.py: missing" in said
    assert "2 of 2 files" in said
    assert "rows=5" in path.read_text(), "--check writes nothing"


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["gen"], "which build?"),
        (["gen", "k1"], "which build?"),
        (["gen", "--arch", "gfx942"], "fix: flymono gen k1 --arch gfx942"),
        (["gen", "k1", "--arch", "gfx94"], "no arch spec is named `gfx94`"),
        (["gen", "--build", "nothing-like-it"], "no shipped build matches 'nothing-like-it'"),
        (["gen", "--build", ID942, "--arch", "gfx942"], "exclude each other"),
        (["gen", "--build", ID942, "--check"], "--check compares with files"),
        (["gen", "k1", "--arch", "gfx942", "--rows", "43"], "rows"),
        (["gen", "k1", "--arch", "gfx942", "--tp", "3"], "nearest supported build"),
        (["build", "nothing-like-it"], "no shipped build matches"),
        (["diff", "no-such-revision", ID942], "GEN_REVISION"),
    ],
    ids=" ".join,
)
def test_wrong_calls_are_messages(args: list[str], text: str, capsys: Output) -> None:
    assert run(*args) == 2
    said = capsys.readouterr().err
    assert text in said
    assert "Traceback" not in said


# ---------------------------------------------------------------- build


def test_build_lists_shipped_builds_and_takes_filters(capsys: Output) -> None:
    assert run("build", "--list") == 0
    every = capsys.readouterr().out.split()
    assert run("build", "--list", "*gfx942*s6-r2", "gfx950-tp2-s6-r2") == 0
    some = capsys.readouterr().out.split()

    assert len(every) == len(set(every)) > 100
    assert some[0] == ID942
    assert ID950 in some
    assert set(some) <= set(every)


def test_a_whole_id_is_one_build(capsys: Output) -> None:
    """Shipped or not, and although it is a part of the ids of -s12 and -s18."""
    assert run("build", "--list", "dsv41_ffn-gfx942-tp4-s1", "dsv41_keylist-gfx942-tp4-s6-r2") == 0
    assert capsys.readouterr().out.split() == ["dsv41_ffn-gfx942-tp4-s1", "dsv41_keylist-gfx942-tp4-s6-r2"]
    assert run("build", "--list", "dsv41_ffn-gfx942") == 0
    assert len(capsys.readouterr().out.split()) == 14 + 8  # target and draft widths


def test_all_builds_without_a_plan_are_named_at_once(tmp_path: Path, capsys: Output) -> None:
    wrong = ("dsv41_keylist-gfx942-tp4-s6-r0", "dsv41_ffn-gfx950-tp2-s49")
    assert run("build", "--out", tmp_path, *wrong) == 2
    said = capsys.readouterr().err
    assert all(f"{build} is not supported" in said for build in wrong)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_build_json_has_the_figures_and_a_second_run_is_cached(k1_store: Path, capsys: Output) -> None:
    assert run("build", "--json", "--out", k1_store, ID942, ID950) == 0
    first = json.loads(capsys.readouterr().out)
    assert run("build", "--out", k1_store, ID942, ID950) == 0
    table = capsys.readouterr().out

    assert [(b["id"], b["ok"], b["vgpr_spills"], b["scratch_bytes"]) for b in first] == [
        (ID942, True, 0, 0),
        (ID950, True, 0, 0),
    ]
    assert all(b["unchecked"] == [] for b in first)
    assert table.count("cached") == 2


def test_a_build_that_fails_is_exit_1_with_every_finding(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [Finding("ISA_SPILL", "k1", "3 VGPR spills", "shorten"), Finding("ISA_LDS", "k1", "too much", "")]

    def fails(unit: Unit, *rest: object) -> tuple[Artefact, bool]:
        raise CheckError(found)

    monkeypatch.setattr("flymono.gen.build.build", fails)

    assert run("build", "--json", "--out", tmp_path, ID942, ID950) == 1
    printed = capsys.readouterr()
    listed = json.loads(printed.out)
    assert [(b["id"], b["ok"]) for b in listed] == [(ID942, False), (ID950, False)]
    assert [f["code"] for f in listed[0]["findings"]] == ["ISA_SPILL", "ISA_LDS"]
    assert "error: 2 of 2 builds failed" in printed.err
    assert run("build", "--out", tmp_path, ID942) == 1
    assert "FAILED" in capsys.readouterr().out


# ---------------------------------------------------------------- doctor


def test_doctor_reports_every_part(capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYMONO_CACHE", str(tmp_path))
    monkeypatch.setenv("ARCH", "gfx1250")
    run("doctor", "--quick", "--json")
    lines = {line["name"]: line for line in json.loads(capsys.readouterr().out)}

    assert {
        "python",
        "packages",
        "MLIR bindings",
        "specs",
        "formatter",
        "cache",
        "linker",
        "emulator",
    } <= set(lines)
    assert lines["environment"]["text"].startswith("ARCH set")
    assert str(tmp_path) in lines["cache"]["text"]


@pytest.mark.parametrize(
    "error", [RuntimeError("gone"), ImportError("no module"), SystemExit(3), KeyError("x")]
)
def test_doctor_goes_on_when_a_part_is_broken(
    error: BaseException, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    def _broken() -> list[doctor_module.Line]:
        raise error

    monkeypatch.setattr(doctor_module, "PROBES", (_broken, doctor_module._python))

    assert run("doctor") == 1
    said = capsys.readouterr().out
    assert "bad   broken" in said
    assert "ok    python" in said


def test_doctor_works_when_nothing_but_python_and_typer_does() -> None:
    """Every other package raises on import (typer itself needs pydantic); the report still comes."""
    gone = "flydsl torch jinja2 yaml numpy filelock platformdirs elftools msgpack ruff"
    script = (
        "import sys\n"
        "class Gone:\n"
        f"    names = {set(gone.split())}\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in self.names: raise ImportError(name + ' is broken')\n"
        "sys.meta_path.insert(0, Gone())\n"
        "from flymono.cli.main import main\n"
        "main(['doctor', '--quick'])\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environ)

    assert ended.returncode == 1, ended.stderr
    assert "ok    python" in ended.stdout
    assert "is broken" in ended.stdout
    assert "Traceback" not in ended.stderr


# ---------------------------------------------------------------- diff


def side(code: str = "c", source: str = "s\n", error: str = "", **figures: int) -> Side:
    return Side({"vgprs": 100, "instructions": 2000, **figures}, source, code, error)


def test_a_comparison_names_what_changed() -> None:
    before = {
        "same": side(),
        "code": side(),
        "source": side(),
        "gone": side(),
        "breaks": side(),
        "heals": side(error="E"),
    }
    after = {
        "same": side(),
        "code": side("d", vgprs=104, instructions=1990),
        "source": side(source="t\n"),
        "new": side(),
        "breaks": side(error="GEN_CRASH LLVM aborted"),
        "heals": side(),
    }
    changes = compare(before, after)
    text = report(changes, source=True)

    assert {c.id: c.kind for c in changes} == {
        "same": "same", "code": "code", "source": "source", "new": "added",
        "breaks": "failed", "heals": "fixed", "gone": "removed",
    }  # fmt: skip
    assert "code: machine code differs: VGPR 100 -> 104 (+4), instructions 2,000 -> 1,990 (-10)" in text
    assert "source: source differs, machine code is the same\n--- before/source.py" in text
    assert "breaks: fails: GEN_CRASH LLVM aborted" in text
    assert text.endswith("7 builds: 1 added, 1 code, 1 failed, 1 fixed, 1 removed, 1 same, 1 source")


def test_a_failed_build_of_the_other_side_is_read() -> None:
    listed = [
        {
            "id": "x",
            "ok": False,
            "findings": [{"code": "GEN_CRASH", "message": "died", "where": "", "fix": ""}],
        }
    ]

    assert read_builds(listed)["x"].error == "GEN_CRASH died"


@pytest.mark.slow
def test_diff_of_a_change_in_the_device_library(repo: Path, tmp_path: Path) -> None:
    """A checkout with one commit; then a constant of mono/ is changed in its working tree."""
    git = ["git", "-C", str(tmp_path / "tree"), "-c", "user.name=x", "-c", "user.email=x@y"]
    subprocess.run(["git", "clone", "-q", str(repo), str(tmp_path / "tree")], check=True)
    for folder in ("cli", "gen", "mono", "runtime", "specs", "templates"):
        subprocess.run(["cp", "-r", f"{repo / folder}/.", str(tmp_path / "tree" / folder)], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "before"], check=True)
    template = tmp_path / "tree" / "templates" / "k1.py.j2"
    template.write_text(
        template.read_text().replace('    stage("end")', '    fx.rocdl.s_nop(3)\n    stage("end")')
    )
    environ = {
        **os.environ,
        "PYTHONPATH": path_of(tmp_path / "tree"),
        "FLYMONO_CACHE": str(tmp_path / "cache"),
    }
    command = [sys.executable, "-m", "flymono.cli.main", "diff", "HEAD", ID942, "--exit-code"]
    ended = subprocess.run(command, capture_output=True, text=True, env=environ, cwd=tmp_path / "tree")

    line = rf"{ID942}: machine code differs: .*instructions [\d,]+ -> [\d,]+ \(\+1\)"
    assert ended.returncode == 1, ended.stderr
    assert re.search(line, ended.stdout), ended.stdout
    status = subprocess.run([*git, "status", "--short"], capture_output=True, text=True, check=True).stdout
    assert status == " M templates/k1.py.j2\n?? .path/\n", "diff touches nothing"
