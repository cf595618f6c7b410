"""The `flymono` command: one app, whose commands live in the modules beside this one.

Invariants
 - Importing this module, `--help` and `doctor` need neither torch nor FlyDSL: every module of `COMMANDS` only
   describes its commands and imports what it runs on when it runs.
 - A module that cannot be imported costs its own commands, not the whole app; calling one says why.
 - A user's mistake is a message on stderr and exit code 2, Ctrl-C is 130, a closed pipe is quiet; a traceback
   means a bug of this project.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from .. import __version__
from ..specs.findings import UserError
from .extras import missing

# command -> module with `register(app)`; the order is the order of `flymono --help`
COMMANDS = {
    "doctor": "doctor",
    "spec": "spec",
    "plan": "plan",
    "why": "why",
    "gen": "gen",
    "build": "build",
    "bundle": "bundle",
    "status": "status",
    "run": "run",
    "demo": "demo",
    "trace": "trace",
    "verify": "verify",
    "emulate": "emulate",
    "diff": "diff",
    "codes": "codes",
}
SPECS_OPTION = "--specs"
SPECS_VARIABLE = "FLYMONO_SPECS"
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the `flymono` script; always ends in SystemExit."""
    if argv is None:  # only where this process is ours
        signal.signal(signal.SIGTERM, _terminated)
    args = list(sys.argv[1:] if argv is None else argv)
    _print_anywhere()
    try:
        build_app()(args=_take_specs(args), prog_name="flymono")
    except UserError as error:
        sys.exit(_refuse(error, args))
    except KeyboardInterrupt:  # typer catches it while a command runs; this is the time before
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # keeps the exit's flush quiet
        sys.exit(1)
    except OSError as error:
        sys.exit(_system_error(error, args))
    except Exception as error:
        if not _broken_package(error):
            raise
        what = f"a package cannot be loaded: {_reason(error)}"
        refused = missing(error) or UserError(what, fix="`flymono doctor` says what is broken here")
        sys.exit(_refuse(refused, args))


def _terminated(number: int, frame: object) -> None:
    """End as on Ctrl-C: compile servers go, scratch folders are removed, locks are given back."""
    raise SystemExit(128 + number)


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _broken_package(error: Exception) -> bool:
    """Whether `error` came out of an import statement of ours, raised by a module that is not ours."""
    if isinstance(error, ImportError):
        return True
    code = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    own = [n for n, c in enumerate(code) if _is_ours(c.co_filename)]
    return bool(own) and [c.co_name for c in code[own[-1] + 1 :][:1]] == ["<module>"]


def _is_ours(file: str) -> bool:
    here, path = Path(__file__).resolve().parent.parent, Path(file).resolve()
    return path.is_relative_to(here) and "site-packages" not in path.relative_to(here).parts


def _print_anywhere() -> None:
    """A character that the terminal's encoding lacks is shown as its escape, and never ends a command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _refuse(error: UserError, args: Sequence[str]) -> int:
    """Print an error: for people on stderr, and with `--json` as the one document on stdout too."""
    print(error.render(), file=sys.stderr)
    if "--json" in args:
        print(json.dumps(error.to_json(), indent=2))
    return error.exit_code


def _system_error(error: OSError, args: Sequence[str]) -> int:
    """A full disk, a missing file, a permission: the system's own words are the message."""
    if error.errno is None:
        raise error
    place = f"{error.filename}: " if error.filename else ""
    code = _refuse(UserError(f"{place}{error.strerror}"), args)
    if os.environ.get("FLYMONO_TRACEBACK"):
        raise error
    return code


def _take_specs(args: list[str]) -> list[str]:
    """Take `--specs DIR` out of `args`, wherever it stands, into the environment.

    Child processes that load specs then see the same folder as this one.
    """
    rest: list[str] = []
    words = iter(args)
    for word in words:
        if word == "--":
            return [*rest, word, *words]
        if word == SPECS_OPTION:
            os.environ[SPECS_VARIABLE] = _folder(next(words, ""))
        elif word.startswith(SPECS_OPTION + "="):
            os.environ[SPECS_VARIABLE] = _folder(word.partition("=")[2])
        else:
            rest.append(word)
    return rest


def _folder(value: str) -> str:
    if not value or value.startswith("-"):
        raise UserError(
            f"{SPECS_OPTION} needs a folder", fix=f"{SPECS_OPTION} DIR (`flymono spec copy DIR` makes one)"
        )
    return str(Path(value).absolute())


def build_app() -> typer.Typer:
    """The app with every command that can be imported; placeholders of the others say why they cannot."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for command, module in COMMANDS.items():
        try:
            import_module(f".{module}", __package__).register(app)
        except (
            Exception
        ) as error:  # whatever a broken installation raises at import must not take `doctor` along
            _placeholder(app, command, error)
    return app


def _placeholder(app: typer.Typer, command: str, error: Exception) -> None:
    reason = _reason(error)

    def unavailable(ctx: typer.Context) -> None:
        raise missing(error) or UserError(
            f"`flymono {command}` cannot be loaded: {reason}",
            fix="`flymono doctor` says what is missing here",
        )

    settings = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command(command, help=f"(unavailable: {reason})", context_settings=settings)(unavailable)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"flymono {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Version.")
    ] = False,
    specs: Annotated[  # for the help page: `main` takes it out before, so that it may stand anywhere
        str | None, typer.Option(SPECS_OPTION, metavar="DIR", envvar=SPECS_VARIABLE, help="Folder of specs.")
    ] = None,
) -> None:
    """From YAML specs of GPUs and models to checked mono decode kernels."""


if __name__ == "__main__":
    main()
