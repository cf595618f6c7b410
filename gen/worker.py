"""The compile server: a child process that imports FlyDSL once and forks for every job.

Run as `python -m flymono.gen.worker`. One JSON line in, one JSON line out, until end of input.
A job runs in a fork of the pristine server: what it does to LLVM's or FlyDSL's process-wide state dies with
it, and so does the process when LLVM aborts. The server holds no GPU runtime and no threads, so forking is
safe; it is itself started as a new program, never forked from the user's process.

Request:  {"task": "compile" | "probe", "folder": DIR, "seconds": N, ...}
Answer:   {"status": "done"} with DIR/result.json written, or {"status": "signal", "signal": N},
          {"status": "exit", "code": N}, {"status": "timeout"}. DIR/stderr.txt has what was printed on fd 2.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from . import flydsl_backend as backend


def serve(requests: Any, answers: Any) -> None:
    """Answer requests until the input ends."""
    answers.write(json.dumps({"status": "ready", "flydsl": backend.warm_up()}) + "\n")
    answers.flush()
    for line in requests:
        job = json.loads(line)
        answers.write(json.dumps(_run(job)) + "\n")
        answers.flush()


def _run(job: dict[str, Any]) -> dict[str, Any]:
    """Fork, wait at most job["seconds"], say how the fork ended."""
    pid = os.fork()
    if pid == 0:
        _child(job)
    deadline = time.monotonic() + job["seconds"] + 0.5  # the child dumps its stack at `seconds`
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return {"status": "timeout"}
        time.sleep(0.005)
    if os.WIFSIGNALED(status):
        return {"status": "signal", "signal": os.WTERMSIG(status)}
    code = os.WEXITSTATUS(status)
    return {"status": "done"} if code == 0 else {"status": "exit", "code": code}


def _child(job: dict[str, Any]) -> None:
    """Do the job with fd 1 and fd 2 in files of its folder; never returns."""
    folder = Path(job["folder"])
    try:
        for fd, name in ((1, "stdout.txt"), (2, "stderr.txt")):
            target = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(target, fd)
            os.close(target)
        faulthandler.enable()  # a crash or the deadline leaves the Python stack in stderr.txt
        faulthandler.dump_traceback_later(job["seconds"])
        try:
            result = TASKS[job["task"]](job, folder)
        except Exception as error:
            result = {"error": describe(error)}
        (folder / "result.json").write_text(json.dumps(result))
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
        os._exit(70)
    os._exit(0)


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as JSON: type, message, location chains, Python frames innermost first, traceback."""
    frames = [(f.filename, f.lineno, 0) for f in reversed(traceback.extract_tb(error.__traceback__))]
    if isinstance(error, SyntaxError) and error.filename:
        frames.insert(0, (error.filename, error.lineno or 1, 0))
    return {
        "type": type(error).__name__,
        "message": str(error),
        "chains": backend.error_places(error),
        "frames": frames,
        "traceback": "".join(traceback.format_exception(error)),
        "errno": getattr(error, "errno", None),
    }


def _compile(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Compile job["module"] (a path) for job["target"]; products go to files of the folder as they arise."""
    from . import checks_mlir

    path, shown = Path(job["module"]), job["shown_as"]

    def keep(name: str, data: str | bytes) -> None:
        target = folder / job["files"][name]
        target.write_bytes(data if isinstance(data, bytes) else data.encode())

    module = backend.load_module(path)
    built = backend.compile_module(
        getattr(module, backend.LAUNCHER),
        job["target"],
        job["hints"],
        features=job["features"],
        on_stage=keep,
        relocate=lambda text: backend.relative_locations(text, path, shown),
    )
    return {"mlir": checks_mlir.survey(built.source_mlir, shown)}


def _probe(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Compile the probe of job["claim"]; which mnemonic its code must hold, and whether it does."""
    from . import probe_kernels

    body, mnemonic = probe_kernels.body_of(job["claim"])
    built = backend.compile_module(probe_kernels.launcher(body), job["target"], {})
    return {"mnemonic": mnemonic, "found": mnemonic in built.isa, "mach": built.hsaco[48]}


TASKS = {"compile": _compile, "probe": _probe}


def main() -> None:
    """Entry point: protocol on the original stdin and stdout, everything printed goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    requests = os.fdopen(os.dup(0))
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends this process
    serve(requests, answers)


if __name__ == "__main__":
    backend.set_environment(sys.argv[1])
    main()
