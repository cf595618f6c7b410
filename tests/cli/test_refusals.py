"""What the commands refuse: everything at once, before any work, and as one JSON document with `--json`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flymono.cli import doctor
from flymono.cli import main as cli
from flymono.gen.findings import Finding as GenFinding
from flymono.gen.findings import StoreError
from flymono.runtime import files
from flymono.specs.findings import SeveralErrors, UserError, check_all

Run = Callable[..., "Said"]


class Said:
    """What one call of the command line said."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def flymono(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.setenv("FLYMONO_CACHE", str(tmp_path / "cache"))

    def call(*args: str) -> Said:
        with pytest.raises(SystemExit) as ended:
            cli.main(args)
        code = ended.value.code
        return Said(code if isinstance(code, int) else 0, *capsys.readouterr())

    return call


def test_a_run_lists_all_that_is_wrong_with_its_options(flymono: Run, tmp_path: Path) -> None:
    said = flymono(
        *[
            "run",
            "k1",
            "--arch",
            "gfx942",
            "--tp",
            "2",
            "--rows",
            "43",
            "--rank",
            "7",
            "--layer",
            "400",
            "--seed",
            "-1",
        ],
        *["--order", "foo", "--mfma", "bar", "--trans", "baz"],
        *("--report", str(tmp_path)),
    )
    assert said.code == 2
    for part in (
        "TP2 on gfx942", "43 rows", "rank 7", "layer 400", "seed is -1", "order is foo", "mfma is bar",
        "trans is baz", f"cannot write {tmp_path}: it is a folder",
    ):  # fmt: skip
        assert said.err.count(part) == 1, part
    assert "compile" not in said.err
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("order", ["starve:256", "starve:99999999999", "starve:x", "starve"])
def test_only_a_workgroup_that_exists_can_be_starved(flymono: Run, order: str) -> None:
    said = flymono(*["run", "k1", "--arch", "gfx950", "--order"], order)
    assert said.code == 2
    assert "starve" in said.err and "compile" not in said.err


@pytest.mark.parametrize(
    "args",
    [
        "run k1 --arch gfx942 --rows 43 --json",
        "run k1 --arch gfx942 --rows 43 --order foo --json",
        "run k1 --arch gfx942 --weights gone --json",
        "run k1 --arch gfx942 --inputs gone --json",
        "build dsv41_k1-gfx942-tp4-s43-r2 --json",
        "build nonsense --json",
        "plan k1 --arch gfx942 --rows 43 --json",
        "plan show nonsense --json",
        "spec show nonsense --json",
        "diff no-such-revision dsv41_k1-gfx942-tp4-s6-r2 --json",
        "diff --json -- --output=gone dsv41_k1-gfx942-tp4-s6-r2",
    ],
)
def test_a_refusal_is_json_where_json_was_asked_for(flymono: Run, args: str) -> None:
    said = flymono(*args.split())
    assert said.code == 2
    assert json.loads(said.out)


def test_json_of_errors_keeps_every_finding() -> None:
    one = StoreError([GenFinding("GEN_DISK", "here", "full", "free some")])
    two = UserError("no", fix="do so")
    with pytest.raises(SeveralErrors) as caught:
        check_all(lambda: _raise(one), lambda: check_all(lambda: _raise(two), lambda: _raise(one)))
    assert caught.value.errors == (one, two, one)
    assert caught.value.to_json()["errors"] == [
        {"error": str(one), "fix": "", "findings": [one.findings[0].to_json()]},
        {"error": "no", "fix": "do so"},
        {"error": str(one), "fix": "", "findings": [one.findings[0].to_json()]},
    ]
    assert caught.value.render().count("error: ") == 3


def _raise(error: UserError) -> None:
    raise error


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    files.check_writable(tmp_path / "new" / "folder" / "report.html")
    for bad in (tmp_path, tmp_path / "file" / "report.html", Path("/proc/nowhere/report.html")):
        with pytest.raises(files.WriteError):
            files.check_writable(bad)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_terminal_without_utf8_gets_escapes(tmp_path: Path) -> None:
    """A name that the encoding lacks is shown escaped; the message and the exit code stay."""
    environ = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": os.pathsep.join(sys.path)}
    call = [sys.executable, "-m", "flymono.cli.main", "--specs", str(tmp_path / "f\u00fcnf"), "spec", "check"]
    run = subprocess.run(call, capture_output=True, env=environ, timeout=120)
    assert run.returncode == 2
    assert b"f\\xfcnf" in run.stdout + run.stderr
    assert b"Traceback" not in run.stderr


SAMPLES = Path(__file__).parents[1] / "emulator"


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("option", ["--opcodes", "--disassemble"])
def test_emulate_shows_what_a_code_object_holds(flymono: Run, arch: str, option: str) -> None:
    said = flymono("emulate", str(SAMPLES / f"sample_{arch}.hsaco"), option)
    assert said.code == 0, said.err
    assert "s_endpgm" in said.out and arch in said.out
    assert "not implemented" not in said.out


@pytest.mark.parametrize("content", [b"", b"hello", b"\x7fELF", None])
def test_emulate_refuses_what_is_no_code_object(flymono: Run, tmp_path: Path, content: bytes | None) -> None:
    good = (SAMPLES / "sample_gfx942.hsaco").read_bytes()
    path = tmp_path / "kernel.hsaco"
    path.write_bytes(good[: len(good) // 2] if content is None else content)
    for bad in (path, tmp_path, tmp_path / "gone"):
        said = flymono("emulate", str(bad), "--opcodes")
        assert said.code == 2
        assert said.err.startswith(f"error: {bad}") and "fix: " in said.err


@pytest.mark.parametrize("text", ["raise RuntimeError('broken on purpose')", "raise ImportError('lost')"])
def test_a_broken_package_is_a_message(tmp_path: Path, text: str) -> None:
    (tmp_path / "torch.py").write_text(text)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    environ = {**os.environ, "PYTHONPATH": path, "FLYMONO_CACHE": str(tmp_path / "cache")}
    call = [sys.executable, "-m", "flymono.cli.main"]
    run = subprocess.run(
        [*call, "run", "k1", "--arch", "gfx942"], capture_output=True, text=True, env=environ, timeout=120
    )
    assert run.returncode == 2
    assert run.stderr.startswith("error: a package cannot be loaded: ") and "flymono doctor" in run.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise RuntimeError('broken')", "msgpack: RuntimeError: broken"),
        ("import os; os._exit(7)", "msgpack: importing it ended Python with exit code 7"),
    ],
)
def test_doctor_imports_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    (tmp_path / "msgpack.py").write_text(text)
    monkeypatch.setattr(doctor, "MODULES", {"json": "json", "msgpack": "msgpack"})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (line,) = doctor._imports()
    assert (line.state, line.text) == ("bad", said)
    assert line.fix == "pip install --force-reinstall msgpack"


def test_an_error_of_our_own_is_no_broken_package() -> None:
    def bug() -> None:
        raise RuntimeError("ours")

    with pytest.raises(RuntimeError) as caught:
        check_all(bug)
    assert not cli._broken_package(caught.value)
    assert cli._broken_package(ModuleNotFoundError("No module named 'torch'"))


def test_a_termination_ends_as_ctrl_c_does() -> None:
    with pytest.raises(SystemExit) as ended:
        cli._terminated(15, None)
    assert ended.value.code == 143
