"""Source that FlyDSL 0.5.0 accepts and compiles to something else, found before it is compiled.

FlyDSL rewrites the functions it decorates: `if`, `while` and `for ... in range(...)` on run-time values
become regions of MLIR, and what Python would do inside them is lost in some cases without a word. This lint
reads each decorated function (`@flyc.kernel`, `@flyc.jit`) and the functions nested in it.

A region is *dynamic* unless its test is `const_expr(...)` or its loop is not over `range(...)`. That is
FlyDSL's own rule: `if 1 == 1:` is treated as dynamic too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from dataclasses import dataclass, field

from .findings import Finding

Function = ast.FunctionDef | ast.AsyncFunctionDef
_FIXES = {
    "LINT_RETURN": "set a variable that is defined before the region, and return it after the region",
    "LINT_FOR_ELSE": "put the else body after the loop, under a flag",
    "LINT_NEGATIVE_STEP": "count upwards and compute the descending index in the body",
    "LINT_WHILE_TRUE": "loop on a flag: go = Int32(1); while go != 0: ...",
    "LINT_BREAK": "loop on a flag, or use range_constexpr, whose loop is Python's own",
    "LINT_REGION_NAME": "define the name before the region, with its final type",
    "LINT_UNDECORATED": "decorate the helper with @flyc.jit",
    "LINT_TRY": "move the statement out of the region: what it does happens while tracing, once",
    "LINT_NONLOCAL": "pass the value in and return it",
}


@dataclass
class _Function:
    """A function under inspection: names bound so far, and names bound first inside a dynamic region."""

    node: Function
    bound: set[str]
    region_only: dict[str, int] = field(default_factory=dict)  # name -> line of its first binding


def lint(source: str, filename: str) -> list[tuple[int, Finding]]:
    """All findings of `source` with their line (from 1), in order. `filename` is for messages only."""
    tree = ast.parse(source)
    plain = _plain_helpers(tree)
    found: list[tuple[int, str, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, Function) and _traced(node):
            found += _Visitor(plain).function(node)
    return [
        (line, Finding(code, f"{filename}:{line}", text, _FIXES[code]))
        for line, code, text in sorted(set(found))
    ]


def _call_name(node: ast.AST) -> str:
    """`f` of `f(...)` and of `a.b.f(...)`, else an empty string."""
    if not isinstance(node, ast.Call):
        return ""
    return (
        node.func.id
        if isinstance(node.func, ast.Name)
        else node.func.attr
        if isinstance(node.func, ast.Attribute)
        else ""
    )


def _traced(node: Function) -> bool:
    """Whether FlyDSL rewrites the function: a decorator `kernel`, `jit` or `device` (mono/), by any path."""
    names = {
        ast.unparse(d.func if isinstance(d, ast.Call) else d).rsplit(".", 1)[-1] for d in node.decorator_list
    }
    return bool(names & {"kernel", "jit", "device"})


def _plain_helpers(tree: ast.Module) -> dict[str, int]:
    """Module-level functions that FlyDSL does not rewrite, with the first line that needs it to.

    Needs it: a `while`, or an `if` that compares a thread or block index, or a loaded value.
    """
    return {
        f.name: line
        for f in tree.body
        if isinstance(f, Function) and not _traced(f)
        for line in [next(_runtime_tests(f), 0)]
        if line
    }


def _runtime_tests(node: Function) -> Iterator[int]:
    """Lines of tests that can only be meant for run time: they read an index of the machine or memory."""
    for inner in ast.walk(node):
        test = inner.test if isinstance(inner, (ast.If, ast.While, ast.IfExp)) else None
        limits = inner.iter if isinstance(inner, ast.For) and _call_name(inner.iter) == "range" else None
        for part in ast.walk(test or limits or ast.Pass()):
            if (isinstance(part, ast.Attribute) and part.attr in ("thread_idx", "block_idx")) or _call_name(
                part
            ) in ("generic_load", "atomic_add", "atomic_cas", "raw_ptr_buffer_load"):
                yield inner.lineno  # type: ignore[attr-defined]


class _Visitor:
    """Walks one traced function in program order."""

    def __init__(self, plain_helpers: dict[str, int]) -> None:
        self.plain = plain_helpers
        self.found: list[tuple[int, str, str]] = []

    def function(self, node: Function, outer: frozenset[str] = frozenset()) -> list[tuple[int, str, str]]:
        """Findings of `node`; `outer` are names of the enclosing functions."""
        args = node.args
        names = {
            a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg) if a
        }
        self.body(node.body, _Function(node, names | outer), dynamic=False)
        return self.found

    def add(self, node: ast.stmt | ast.expr, code: str, text: str) -> None:
        self.found.append((node.lineno, code, text))

    def body(self, body: list[ast.stmt], fn: _Function, dynamic: bool) -> None:
        for statement in body:
            self.statement(statement, fn, dynamic)

    def statement(self, node: ast.stmt, fn: _Function, dynamic: bool) -> None:
        if isinstance(node, Function):
            _Visitor.function(self, node, frozenset(fn.bound))
            fn.bound.add(node.name)
            return
        self.expressions(node, fn)
        if dynamic:
            self.in_region(node)
        if isinstance(node, ast.If):
            self.branch(node, fn, dynamic)
        elif isinstance(node, (ast.For, ast.While)):
            self.loop(node, fn, dynamic)
        elif isinstance(node, (ast.With, ast.Try)):
            for part in (node.body, getattr(node, "orelse", []), getattr(node, "finalbody", [])):
                self.body(part, fn, dynamic)
            for handler in getattr(node, "handlers", []):
                self.body(handler.body, fn, dynamic)
        self.bind(_bound_names(node), fn)

    def in_region(self, node: ast.stmt) -> None:
        """Statements that do not mean inside a region what they say."""
        if isinstance(node, ast.Return):
            self.add(node, "LINT_RETURN", "return inside a dynamic if/for/while is ignored")
        elif isinstance(node, ast.Try):
            self.add(node, "LINT_TRY", "try inside a dynamic region acts while tracing, not at run time")
        elif isinstance(node, ast.Nonlocal):
            self.add(node, "LINT_NONLOCAL", "a nonlocal written in a dynamic region does not leave it")

    def branch(self, node: ast.If, fn: _Function, dynamic: bool) -> None:
        if _call_name(node.test) == "const_expr":
            self.body(node.body, fn, dynamic)
            self.body(node.orelse, fn, dynamic)
        else:
            self.region(node.body, fn)
            self.region(node.orelse, fn)

    def loop(self, node: ast.For | ast.While, fn: _Function, dynamic: bool) -> None:
        if isinstance(node, ast.For):
            if _call_name(node.iter) != "range":
                self.bind(_target_names(node.target), fn)
                self.body([*node.body, *node.orelse], fn, dynamic)
                return
            self.range_loop(node)
        elif _call_name(node.test) == "const_expr":
            self.body([*node.body, *node.orelse], fn, dynamic)
            return
        elif isinstance(node.test, ast.Constant) and node.test.value:
            self.add(
                node, "LINT_WHILE_TRUE", "while True never ends: there is no break or return in a kernel"
            )
        self.jumps(node)
        targets = _target_names(node.target) if isinstance(node, ast.For) else set()
        self.region(node.body, fn, targets)

    def range_loop(self, node: ast.For) -> None:
        if node.orelse:
            self.add(node.orelse[0], "LINT_FOR_ELSE", "the else body of a range loop is dropped")
        args = node.iter.args if isinstance(node.iter, ast.Call) else []
        if len(args) == 3 and _negative(args[2]):
            self.add(
                node,
                "LINT_NEGATIVE_STEP",
                "range with a negative step is emitted as it is: the loop runs wrongly",
            )

    def jumps(self, loop: ast.For | ast.While) -> None:
        """break and continue that belong to `loop` itself."""
        stack: list[ast.stmt] = list(loop.body)
        while stack:
            node = stack.pop()
            if isinstance(node, (ast.Break, ast.Continue)):
                word = "break" if isinstance(node, ast.Break) else "continue"
                self.add(node, "LINT_BREAK", f"{word} in a dynamic loop does not compile")
            if not isinstance(node, (ast.For, ast.While, ast.FunctionDef, ast.AsyncFunctionDef)):
                stack += [c for c in ast.iter_child_nodes(node) if isinstance(c, ast.stmt)]

    def region(self, body: list[ast.stmt], fn: _Function, targets: Set[str] = frozenset()) -> None:
        """A dynamic body: names that it binds first are lost behind it."""
        inner = _Function(fn.node, fn.bound | targets, dict(fn.region_only))
        self.body(body, inner, dynamic=True)
        for statement in body:
            for name in _all_bound(statement) - fn.bound:
                fn.region_only.setdefault(name, statement.lineno)
        for name in targets - fn.bound:
            fn.region_only.setdefault(name, body[0].lineno - 1)
        fn.region_only.update({n: line for n, line in inner.region_only.items() if n not in fn.bound})

    def bind(self, names: set[str], fn: _Function) -> None:
        fn.bound |= names
        for name in names:
            fn.region_only.pop(name, None)

    def expressions(self, node: ast.stmt, fn: _Function) -> None:
        """Reads of the statement's own expressions (not of the statements nested in it)."""
        for part in _own_expressions(node):
            local = {a.arg for n in ast.walk(part) if isinstance(n, ast.Lambda) for a in n.args.args}
            local |= {
                n.id for n in ast.walk(part) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
            for name in ast.walk(part):
                self.read(name, fn, local)
                called = _call_name(name)
                if called in self.plain and isinstance(name, ast.Call) and isinstance(name.func, ast.Name):
                    self.add(
                        name,
                        "LINT_UNDECORATED",
                        f"{called}() branches on run-time values (line {self.plain[called]}), undecorated",
                    )

    def read(self, node: ast.AST, fn: _Function, local: set[str]) -> None:
        if (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Load)
            and node.id not in local
            and node.id in fn.region_only
            and node.id not in fn.bound
        ):
            self.add(
                node,
                "LINT_REGION_NAME",
                f"{node.id!r} is first defined inside the dynamic region at line {fn.region_only[node.id]}",
            )


def _negative(node: ast.expr) -> bool:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    return isinstance(value, int) and value < 0


def _target_names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _bound_names(node: ast.stmt) -> set[str]:
    """Names that the statement itself binds at its own level."""
    parts: list[ast.AST] = []
    if isinstance(node, ast.Assign):
        parts += node.targets
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        parts.append(node.target)
    elif isinstance(node, ast.With):
        parts += [item.optional_vars for item in node.items if item.optional_vars]
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        return {(a.asname or a.name).split(".")[0] for a in node.names}
    stored = {
        n.id for p in parts for n in ast.walk(p) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    walrus = {
        n.target.id
        for e in _own_expressions(node)
        for n in ast.walk(e)
        if isinstance(n, ast.NamedExpr) and isinstance(n.target, ast.Name)
    }
    return stored | walrus


def _all_bound(node: ast.stmt) -> set[str]:
    """Names bound anywhere in the statement, nested functions' bodies excepted."""
    names = _bound_names(node)
    if isinstance(node, Function):
        return names | {node.name}
    if isinstance(node, ast.For):
        names |= _target_names(node.target)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            names |= _all_bound(child)
        elif isinstance(child, ast.ExceptHandler):
            for statement in child.body:
                names |= _all_bound(statement)
    return names


def _own_expressions(node: ast.stmt) -> list[ast.expr]:
    return [c for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)]
