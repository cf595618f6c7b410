"""The command line's promises: messages instead of tracebacks, exit codes, a fast start without torch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from flymono import __version__
from flymono.cli import main as cli
from flymono.specs.findings import UserError


def run(*args: str) -> int:
    """The exit code of `flymono args`."""
    with pytest.raises(SystemExit) as exit_:
        cli.main(args)
    code = exit_.value.code
    return code if isinstance(code, int) else 0 if code is None else 1


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--specs` writes to the environment; give it back afterwards."""
    monkeypatch.setenv(cli.SPECS_VARIABLE, "x")
    monkeypatch.delenv(cli.SPECS_VARIABLE)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[BaseException]]:
    """A command `spec` that raises what the list holds."""
    errors: list[BaseException] = []

    def fail() -> None:
        raise errors[0]

    module = SimpleNamespace(register=lambda app: app.command("spec")(fail))
    monkeypatch.setattr(cli, "import_module", lambda name, package: module)
    monkeypatch.setattr(cli, "COMMANDS", {"spec": "spec", "other": "other"})
    yield errors


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"flymono {__version__}\n"
    assert run("--help") == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in cli.COMMANDS)


@pytest.mark.parametrize(
    "args", [["nonsense"], ["spec", "nonsense"], ["spec", "check", "--nonsense"], ["spec", "copy"]]
)
def test_wrong_usage_is_exit_2(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*args) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (UserError("no", fix="do so"), 2, "error: no\n    fix: do so\n"),
        (KeyboardInterrupt(), 130, ""),
        (OSError(28, "No space left on device", "/x/y"), 2, "error: /x/y: No space left on device\n"),
        (PermissionError(13, "Permission denied", "/x"), 2, "error: /x: Permission denied\n"),
    ],
)
def test_errors(
    failing: list[BaseException],
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    text: str,
) -> None:
    failing.append(error)
    assert run("spec") == code
    assert capsys.readouterr().err == text


def test_a_bug_is_a_traceback(failing: list[BaseException]) -> None:
    failing.append(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        cli.main(["spec"])


def test_a_broken_module_costs_only_its_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(name: str, package: str) -> SimpleNamespace:
        if name != ".spec":
            raise ImportError("libfoo.so: cannot open")
        return SimpleNamespace(register=lambda app: app.command("spec")(lambda: None))

    monkeypatch.setattr(cli, "import_module", broken)
    assert run("run", "k1", "--arch", "x") == 2
    assert "`flymono run` cannot be loaded: ImportError: libfoo.so" in capsys.readouterr().err
    assert run("spec") == 0
    assert run("--help") == 0
    assert "unavailable" in capsys.readouterr().out


def test_specs_option_may_stand_anywhere() -> None:
    for args in (["--specs", "d", "a", "b"], ["a", "--specs", "d", "b"], ["a", "b", "--specs=d"]):
        assert cli._take_specs(list(args)) == ["a", "b"]
        assert os.environ.pop(cli.SPECS_VARIABLE) == str(Path("d").absolute())
    assert cli._take_specs(["a", "--", "--specs", "d"]) == ["a", "--", "--specs", "d"]
    for args in (["--specs"], ["--specs="], ["--specs", "--json"]):
        with pytest.raises(UserError, match="needs a folder"):
            cli._take_specs(args)


def test_every_command_module_registers_without_heavy_imports() -> None:
    """In a process of its own: the app is built, and neither torch nor FlyDSL nor numpy was imported."""
    code = (
        "import sys; from flymono.cli import main; app = main.build_app(); import typer.main; "
        "group = typer.main.get_command(app); "
        "print(*sorted({'torch', 'flydsl', 'numpy', 'pydantic', 'yaml', 'jinja2'} & set(sys.modules))); "
        "print(*[name for name, c in group.commands.items() if 'unavailable' in (c.help or '')])"
    )
    source = str(Path(cli.__file__).resolve().parents[1] / "src")
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert done.stdout.splitlines() == ["", ""]


def test_help_with_a_broken_torch(tmp_path: Path) -> None:
    for name in ("torch", "flydsl"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('broken on purpose')")
    source = Path(cli.__file__).resolve().parents[1] / "src"
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{source}"}
    for args in (["--help"], ["doctor", "--help"], ["spec", "show"]):
        done = subprocess.run(
            [sys.executable, "-m", "flymono.cli", *args], capture_output=True, text=True, env=env
        )
        assert done.returncode == 0, done.stderr
