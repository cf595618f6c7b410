"""Compile rendered modules in child processes (parent side of worker.py).

A `Compiler` owns one server process, started when the first job comes and started anew if it dies. It is used
by one thread or process at a time; parallel builds use one Compiler each.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from . import explain
from .findings import CompileError, Finding
from .linker import Linker
from .render import Rendered
from .unit import Unit

FILES = {
    "source_mlir": "source.mlir",
    "lowered_mlir": "lowered.mlir",
    "isa": "kernel.s",
    "hsaco": "kernel.hsaco",
}
SECONDS = 600.0
_GRACE = 30.0
_START_SECONDS = 180.0


@dataclass(frozen=True)
class Answer:
    """How a job ended: the server's word, the child's result (empty if it died) and what fd 2 got."""

    status: Mapping[str, Any]
    result: Mapping[str, Any]
    log: str


class Compiler:
    """A running compile server. Use as a context manager; `close` ends it and its children."""

    def __init__(self, linker: Linker, seconds: float = SECONDS) -> None:
        self.linker, self.seconds = linker, seconds
        self.process: subprocess.Popen[str] | None = None
        self.flydsl = ""
        self.ended = False
        self.lock = threading.Lock()  # `end` comes from another thread than `start`

    def __enter__(self) -> Compiler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> str:
        """Start the server if it does not run. Returns FlyDSL's version."""
        if self.process is None or self.process.poll() is not None:
            self.close()
            with self.lock:
                if self.ended:
                    raise CompileError(
                        [Finding("GEN_INTERRUPTED", "", "the build was ended", "run it again")]
                    )
                self._launch()
            self.flydsl = str(self._read(_START_SECONDS, "the compile server did not start")["flydsl"])
        return self.flydsl

    def _launch(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "flymono.gen.worker", str(self.linker.rocm_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log_file(),
            text=True,
            start_new_session=True,
            env=_environment(),
        )

    def end(self) -> None:
        """Kill the server now and never start one again; for another thread than the one that compiles."""
        with self.lock:
            self.ended = True
            self._kill()

    def _kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def _log_file(self) -> int:
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the server)
        return self.log.fileno()

    def _read(self, seconds: float, failure: str) -> dict[str, Any]:
        """One answer of the server; CompileError with its own output if none comes."""
        assert self.process is not None and self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if ready else ""
        if line:
            return dict(json.loads(line))
        self.log.seek(0)
        said = self.log.read().decode(errors="replace").strip().splitlines()
        self.close()
        raise CompileError(
            [
                Finding(
                    "GEN_SERVER",
                    "",
                    f"{failure}: {said[-1] if said else 'it said nothing'}",
                    "run flymono doctor",
                )
            ]
        )

    def run(self, task: str, folder: Path, **job: Any) -> Answer:
        """Do one job with `folder` for its files."""
        self.start()
        assert self.process is not None and self.process.stdin is not None
        request = {"task": task, "folder": str(folder), "seconds": self.seconds, **job}
        with contextlib.suppress(BrokenPipeError):  # a dead server is noticed by the read
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        status = self._read(self.seconds + _GRACE, "the compile server died")
        result, log = folder / "result.json", folder / "stderr.txt"
        return Answer(
            status,
            json.loads(result.read_text()) if status["status"] == "done" else {},
            log.read_text(errors="replace") if log.exists() else "",
        )

    def close(self) -> None:
        """End the server and whatever it is compiling."""
        if self.process is None:
            return
        self._kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                if pipe:
                    pipe.close()
        self.log.close()
        self.process = None


def _environment() -> dict[str, str]:
    """The child finds the same flymono as this process, however that was found."""
    root = str(Path(__file__).resolve().parent.parent)
    source = next(
        (
            p
            for p in sys.path
            if p and Path(p, "flymono").is_dir() and Path(p, "flymono", "gen").resolve() == Path(root, "gen")
        ),
        None,
    )
    path = [source] if source else []
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")]).strip(os.pathsep),
    }


@dataclass(frozen=True)
class Products:
    """Files of a successful compilation (in `folder`, named as in FILES) and the facts of its MLIR."""

    folder: Path
    facts: Mapping[str, Any]

    def text(self, name: str) -> str:
        return (self.folder / FILES[name]).read_text()

    @property
    def hsaco(self) -> bytes:
        return (self.folder / FILES["hsaco"]).read_bytes()


def compile_unit(compiler: Compiler, unit: Unit, rendered: Rendered, folder: Path) -> Products:
    """Compile into `folder` (which exists and is empty). Raises CompileError with every finding."""
    module = folder / rendered.filename
    module.write_text(rendered.source)
    answer = compiler.run(
        "compile",
        folder,
        module=str(module),
        shown_as=f"{unit.id}.py",
        target=unit.target,
        hints=dict(unit.hints),
        features=unit.features,
        files=FILES,
    )
    findings = findings_of(answer, rendered, module, compiler.seconds)
    if findings:
        raise CompileError(findings)
    return Products(folder, answer.result["mlir"])


def findings_of(answer: Answer, rendered: Rendered, module: Path, seconds: float) -> list[Finding]:
    """Everything that went wrong in a compile job, empty if nothing did."""

    def where(frames: list[explain.Frame]) -> str:
        return explain.place(frames, rendered, module)

    path = module.with_name(FILES["source_mlir"])
    source = path.read_text() if path.is_file() else ""
    if answer.status["status"] != "done":
        return explain.of_death(answer.status, answer.log, source, seconds, where)
    native = explain.of_native(answer.log, source, where)
    if error := answer.result.get("error"):
        _raise_disk_full(error)
        return explain.of_exception(error, where) + native
    return native


def _raise_disk_full(error: Mapping[str, Any]) -> None:
    """A full disk in the child is the same failure as one in the parent: let the store report it."""
    if error.get("errno"):
        raise OSError(error["errno"], os.strerror(error["errno"]))


def scratch_folder(parent: Path) -> Path:
    """A fresh folder for one job below `parent`; its name says which process made it. Follows the umask."""
    folder = parent / f".tmp-{os.getpid()}-{secrets.token_hex(6)}"
    folder.mkdir(parents=True)
    return folder


def remove_folder(folder: Path) -> None:
    """Remove a scratch folder, even a half-made one."""
    shutil.rmtree(folder, ignore_errors=True)
