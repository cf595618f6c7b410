"""Build units: render, lint, look into the store, compile, check, store. One or many, some at a time.

Threads only drive child processes here: each worker thread owns one compile server (compiler.py), because
FlyDSL and LLVM keep process-wide state. What is built does not depend on the number of jobs or their order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from . import checks_abi, checks_isa, checks_mlir, explain, isa, store
from .compiler import SECONDS, Compiler, Products, compile_unit
from .findings import CheckError, Finding, GenError, LintError
from .linker import Linker, find_linker
from .lint import lint
from .render import TEMPLATES, Rendered, render
from .store import Artefact, Store, disk_errors
from .unit import Unit

_ONE_PARSER = threading.Lock()
"""CPython 3.11 counts the depth of all threads' `ast.parse` in one place, and fails when two overlap."""


AGREE_TRIES = 3
"""Compilations of a unit until its ISA text and its code object are the same code."""


@dataclass(frozen=True)
class Outcome:
    """What became of one unit: an artefact or the error; `cached` if nothing had to be compiled."""

    unit: Unit
    artefact: Artefact | None
    error: GenError | None
    cached: bool
    seconds: float


@dataclass
class Settings:
    """How to build: where artefacts go, how many at once, the deadline of one compilation."""

    store: Store
    jobs: int = 1
    seconds: float = SECONDS
    force: bool = False
    templates: Path = TEMPLATES
    rocm_path: str | None = None

    def linker(self) -> Linker:
        """The linker, wrapped below the store if it is not ROCm's own."""
        with disk_errors(self.store.root):
            return find_linker(self.store.root, self.rocm_path)


def linted(unit: Unit, templates: Path = TEMPLATES) -> Rendered:
    """Render `unit`, refuse what FlyDSL would miscompile or misname. Raises RenderError or LintError."""
    rendered = render(unit, templates)
    placed = [*lint(rendered.source, f"{unit.id}.py"), *checks_abi.module_findings(unit, rendered.source)]
    own = [Finding(f.code, rendered.where(line), f.message, f.fix) for line, f in placed]
    if found := own + list(library_findings()):
        raise LintError(found)
    return rendered


@cache
def library_findings() -> tuple[Finding, ...]:
    """Lint findings of mono/, whose functions every generated module runs."""
    root = TEMPLATES.parent
    files = sorted((root / "mono").rglob("*.py"))
    return tuple(f for p in files for _, f in lint(p.read_text(), p.relative_to(root).as_posix()))


def build(unit: Unit, settings: Settings, compiler: Compiler | None = None) -> tuple[Artefact, bool]:
    """The artefact of `unit` and whether it was there already. Raises GenError; nothing half-made is kept."""
    with _ONE_PARSER:
        rendered = linted(unit, settings.templates)
    key = store.key_of(unit, rendered)
    if not settings.force and (there := settings.store.find(unit.id, key)):
        return there, True
    with settings.store.lock(unit.id, key):
        if not settings.force and (there := settings.store.find(unit.id, key)):
            return there, True
        with (
            _compiler(settings, compiler) as running,
            settings.store.scratch() as folder,
            disk_errors(folder),
        ):
            return _compile(unit, rendered, settings, running, folder), False


@contextmanager
def _compiler(settings: Settings, given: Compiler | None) -> Iterator[Compiler]:
    if given is not None:
        yield given
        return
    with Compiler(settings.linker(), settings.seconds) as own:
        yield own


def _compile(
    unit: Unit, rendered: Rendered, settings: Settings, compiler: Compiler, folder: Path
) -> Artefact:
    """Compile, check and store; the scratch folder becomes the artefact."""
    products, code = _agreed(unit, rendered, compiler, folder)
    figures = isa.resources(products.hsaco)
    findings = judge(unit, rendered, products, figures, code)
    if findings:
        raise CheckError(findings)
    for extra in ("result.json", "stderr.txt", "stdout.txt"):
        (folder / extra).unlink(missing_ok=True)
    manifest = store.manifest_of(
        unit, rendered, figures[0], code, isa.stage_ranges(code), products.facts, compiler.linker.version
    )
    return settings.store.put(folder, manifest)


def _agreed(
    unit: Unit, rendered: Rendered, compiler: Compiler, folder: Path
) -> tuple[Products, list[isa.Instruction]]:
    """Products whose text and machine code hold the same instructions.

    The backend orders some of its work by the addresses of its objects. One build of some hundreds came out
    with one branch more in its text than in its code object; a new server has other addresses.
    """
    for left in range(AGREE_TRIES, 0, -1):
        products = compile_unit(compiler, unit, rendered, folder)
        try:
            return products, isa.locate(products.text("isa"), products.hsaco)
        except isa.Mismatch:
            if left == 1:
                raise
            compiler.close()
    raise AssertionError("the last try returns or raises")


def judge(
    unit: Unit,
    rendered: Rendered,
    products: Products,
    figures: list[isa.Resources],
    code: list[isa.Instruction],
) -> list[Finding]:
    """Findings of every check on MLIR and code object."""
    module = products.folder / rendered.filename

    def of_chain(chain: list[tuple[str, int, int]]) -> str:
        return explain.place(chain, rendered, module)

    def of_instruction(i: isa.Instruction) -> str:
        return f"{explain.place([(i.file, i.line, 0)], rendered, module)} (kernel.s:{i.text_line})"

    out = checks_mlir.judge(products.facts, unit.expect, of_chain)
    if len(figures) != 1:
        out.append(
            Finding(
                "ISA_KERNELS",
                unit.id,
                f"{len(figures)} kernels in the code object, one was meant",
                "launch the kernel once in the template's launcher",
            )
        )
    for name, layout in isa.argument_layout(products.hsaco).items():
        out += checks_abi.layout_findings(unit, layout, name)
    for kernel in figures:
        out += checks_isa.check(
            kernel, [i for i in code if i.kernel == kernel.name], unit.expect, of_instruction
        )
    return out


def build_all(
    units: Iterable[Unit], settings: Settings, on_done: Callable[[Outcome], None] = lambda outcome: None
) -> list[Outcome]:
    """Build every unit, `settings.jobs` at a time; outcomes in the order of `units`.

    A unit that fails does not stop the others. Ctrl-C ends the compile servers at once, and what is finished
    by then is in the store: the next run goes on from there.
    """
    listed, linker, local, servers = list(units), settings.linker(), threading.local(), list[Compiler]()

    def one(unit: Unit) -> Outcome:
        if not hasattr(local, "compiler"):
            local.compiler = Compiler(linker, settings.seconds)
            servers.append(local.compiler)
        return _outcome(unit, settings, local.compiler)

    pool = ThreadPoolExecutor(max(1, settings.jobs), thread_name_prefix="flymono-build")
    try:
        futures: dict[Future[Outcome], int] = {pool.submit(one, unit): n for n, unit in enumerate(listed)}
        done: dict[int, Outcome] = {}
        for future in as_completed(futures):
            done[futures[future]] = future.result()
            on_done(done[futures[future]])
        return [done[n] for n in range(len(listed))]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for server in servers:
            server.end()
        pool.shutdown(wait=True)
        for server in servers:
            server.close()


def _outcome(unit: Unit, settings: Settings, compiler: Compiler) -> Outcome:
    start = time.monotonic()
    try:
        artefact, cached = build(unit, settings, compiler)
    except GenError as error:
        return Outcome(unit, None, error, False, time.monotonic() - start)
    return Outcome(unit, artefact, None, cached, time.monotonic() - start)
