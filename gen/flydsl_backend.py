"""Every use of FlyDSL's private names, in one module (FlyDSL 0.5.0, pinned exactly).

Runs in a child process only (see worker.py): LLVM may abort the process, its options and FlyDSL's target
are process-wide, and importing it takes seconds. Nothing here reads or writes FlyDSL's own caches.

What is compiled, in this order, each from the text of the one before so that every stage can be stored:
source MLIR (with locations) -> lowered MLIR (LLVM dialect, target attached) -> ISA text and code object.
Both binaries carry line tables; paths in them are made relative first, so the bytes do not depend on
where the project or the generated file lies.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = Path(__file__).resolve().parent.parent
LAUNCHER = "launch"
# Frames kept per location: deep enough for kernel -> stage -> device library -> helper chains.
_LOCATION_DEPTH = "16"
_LOCATION = re.compile(r'loc\("([^"]+)":')


@dataclass(frozen=True)
class Compiled:
    """The four products of one compilation."""

    source_mlir: str
    lowered_mlir: str
    isa: str
    hsaco: bytes


def set_environment(rocm_path: str, environ: Any = os.environ) -> None:
    """Fix every variable that FlyDSL reads. To be called before the first import of flydsl.

    Variables of the user (ARCH, FLYDSL_...) are removed first: none of them may change what is built.
    """
    for name in [n for n in environ if n.startswith("FLYDSL_") or n in ("ARCH", "HSA_OVERRIDE_GFX_VERSION")]:
        del environ[name]
    environ.update(
        COMPILE_ONLY="1",
        FLYDSL_RUNTIME_ENABLE_CACHE="0",
        FLYDSL_DEBUG_ENABLE_DEBUG_INFO="1",
        FLYDSL_DEBUG_MAX_LOC_DEPTH=_LOCATION_DEPTH,
        ROCM_PATH=rocm_path,
    )
    sys.dont_write_bytecode = True


def warm_up() -> str:
    """Import everything a compilation needs, before the worker forks. Returns FlyDSL's version.

    Two changes to FlyDSL's locations, so that a message can name a template line. Frames of the standard
    library are left out (`functools.py` stands for every operator that is dispatched by type), and an
    operation of a raw builder gets the whole call chain instead of its innermost statement alone.
    """
    import flydsl
    import flydsl.compiler
    import flydsl.expr as fx  # noqa: F401
    from flydsl.compiler import ast_rewriter
    from flydsl.expr import meta

    stdlib, framework, statement = (
        sysconfig.get_path("stdlib"),
        meta._is_framework_file,
        ast_rewriter.file_location,
    )

    def is_framework(name: str) -> bool:
        return (
            bool(framework(name))
            or name == __file__
            or ("site-packages" not in name and name.startswith(stdlib))
        )

    def with_callers(*place: Any) -> Any:
        return _called_from(statement(*place), meta.capture_user_location())

    meta._is_framework_file, ast_rewriter.file_location = is_framework, with_callers
    return str(flydsl.__version__)


def _called_from(here: Any, chain: Any) -> Any:
    """`here` with the callers of a call-site chain (whose own innermost frame may be a line off)."""
    from flydsl._mlir import ir

    typed = ir.Location.from_attr(chain.attr, chain.context)
    return ir.Location.callsite(here, [typed.caller]) if isinstance(typed, ir.CallSiteLoc) else here


def load_module(path: Path) -> ModuleType:
    """Import a generated module from its content-addressed file. FlyDSL reads its source back by path."""
    name = "flymono_generated_" + re.sub(r"\W", "_", path.stem)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def relative_locations(mlir: str, generated: Path, shown_as: str) -> str:
    """MLIR text whose locations name `shown_as` for the generated file and paths below the package."""

    def relative(match: re.Match[str]) -> str:
        path = Path(match[1])
        if path == generated:
            return f'loc("{shown_as}":'
        try:
            return f'loc("{path.resolve().relative_to(PACKAGE).as_posix()}":'
        except ValueError:
            return f'loc("{path.name}":'

    return _LOCATION.sub(relative, mlir)


def set_target(target: str) -> None:
    """Both variables: with ARCH alone FlyDSL's Python helpers would specialise for another arch."""
    os.environ["ARCH"] = os.environ["FLYDSL_GPU_ARCH"] = target


def _placeholders(launcher: Any) -> list[int]:
    """Zeros for the launch arguments: addresses and counts do not enter the code."""
    launcher._ensure_sig()
    params = launcher._sig.parameters.values()
    return [0 for p in params if p.default is p.empty]


def features_off(fragments: list[str], features: str) -> list[str]:
    """The pass pipeline with target features switched off (there is no hint for it)."""
    return [
        f.replace("features= ", f"features={features} ") if f.startswith("rocdl-attach-target") else f
        for f in fragments
    ]


def compile_module(
    launcher: Any,
    target: str,
    hints: Mapping[str, Any],
    *,
    features: str = "",
    relocate: Callable[[str], str] = lambda text: text,
    on_stage: Callable[[str, str | bytes], None] = lambda name, data: None,
) -> Compiled:
    """Compile a `@flyc.jit` launcher for `target`; `on_stage(name, text_or_bytes)` is told each product.

    Raises what FlyDSL raises. May also kill the process, or print `error:` on fd 2 and return garbage:
    the caller watches both.
    """
    from flydsl._mlir import ir
    from flydsl.compiler.backends import get_backend
    from flydsl.compiler.jit_function import MlirCompiler, _create_mlir_context, _run_pipeline
    from flydsl.compiler.kernel_function import CompilationContext
    from flydsl.compiler.llvm_options import llvm_options

    set_target(target)
    zeros = _placeholders(launcher)
    bound = launcher._sig.bind(*zeros)
    bound.apply_defaults()
    merged = {**launcher._effective_compile_hints(), **hints}
    backend = get_backend()
    launcher._backend_target = backend.target
    launcher._resolve_arguments(bound.arguments)
    with (
        _create_mlir_context() as context,
        CompilationContext.compile_hints(merged),
        llvm_options(merged.get("llvm_options") or {}),
    ):
        traced = launcher._trace(context, launcher._sig, bound, None, execute=False)
        _, config = MlirCompiler.prepare(
            traced.module, backend=backend, compile_hints=merged, link_libs=traced.link_libs
        )
        source = relocate(traced.module.operation.get_asm(enable_debug_info=True))
        on_stage("source_mlir", source)
        lowered_module = ir.Module.parse(source)
        fragments = features_off(config.fragments[:-1], features) if features else config.fragments[:-1]
        _run_pipeline(lowered_module, fragments, verifier=True, print_after_all=False)
        lowered = lowered_module.operation.get_asm(enable_debug_info=True)
        on_stage("lowered_mlir", lowered)
        isa = _serialise(lowered, "isa").decode()
        on_stage("isa", isa)
        hsaco = _serialise(lowered, "fatbin")
        on_stage("hsaco", hsaco)
    return Compiled(source, lowered, isa, hsaco)


def _serialise(lowered: str, kind: str) -> bytes:
    """Run the backend on lowered MLIR: `isa` gives assembly text, `fatbin` a linked code object."""
    from flydsl._mlir import ir
    from flydsl._mlir.dialects import gpu
    from flydsl._mlir.passmanager import PassManager
    from flydsl.compiler.jit_function import _run_pass_manager

    module = ir.Module.parse(lowered)
    _run_pass_manager(PassManager.parse(f"builtin.module(gpu-module-to-binary{{format={kind}}})"), module)
    binary = next(o.operation for o in module.body.operations if o.operation.name == "gpu.binary")
    return bytes(gpu.ObjectAttr(ir.ArrayAttr(binary.attributes["objects"])[0]).object)


@contextmanager
def parsed(mlir: str) -> Iterator[Any]:
    """`mlir` as a verified module in a fresh context."""
    from flydsl._mlir import ir
    from flydsl.compiler.jit_function import _create_mlir_context

    with _create_mlir_context():
        module = ir.Module.parse(mlir)
        module.operation.verify()
        yield module


def walk(module: Any, visit: Callable[[Any], None]) -> None:
    """Call `visit(operation)` on every operation, parents first."""
    from flydsl._mlir import ir

    def each(op: Any) -> Any:
        visit(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(each, ir.WalkOrder.PRE_ORDER)


def location_chain(op: Any) -> list[tuple[str, int, int]]:
    """(file, line, column) from the innermost frame of an operation's location to the kernel's own."""
    from flydsl.compiler.diagnostics import location_chain as chain

    return [(frame.filename, frame.line, frame.col) for frame in chain(op.location)]


def error_places(error: BaseException) -> list[list[tuple[str, int, int]]]:
    """Location chains that a FlyDSL error carries, one for each diagnostic."""
    records = getattr(error, "diagnostics", None) or []
    return [[(f.filename, f.line, f.col) for f in r.chain] for r in records if getattr(r, "chain", None)]
