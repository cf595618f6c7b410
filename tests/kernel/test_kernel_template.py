"""The templates hold order and choice only, and agree with the plans that they are rendered from."""

from __future__ import annotations

import ast
from pathlib import Path

import jinja2
import pytest
from jinja2 import nodes

from flymono.gen.linemap import strip_marks
from flymono.gen.lint import lint
from flymono.gen.render import environment, render_text
from flymono.runtime.plan import BuildKey, KernelPlan, plan_of
from flymono.specs import load

FOLDER = Path(__file__).resolve().parents[2] / "templates"
KERNELS = sorted(path.name for path in FOLDER.glob("*.py.j2"))
ALL = sorted(path.name for path in FOLDER.glob("*.j2"))
SPECS = load()
KEYS = [
    "dsv41_k1-gfx942-tp4-s6-r2",
    "dsv41_k1-gfx942-tp4-s42-r0-nofold",
    "dsv41_k1-gfx942-tp4-s1-r0-w192-timeline",
    "dsv41_k1-gfx950-tp2-s6-r2",
    "dsv41_k1-gfx950-tp4-s48-r1-nofold-index",
    "dsv41_k2-gfx942-tp4-s42-r1",
    "dsv41_k2-gfx950-tp2-s6-r2-timeline",
    "dsv41_k2-gfx950-tp4-s48-r1-index",
    "dsv41_ffn-gfx942-tp4-s6",
    "dsv41_keylist-gfx942-tp4-s6-r2",
    "dsv41_keylist-gfx942-tp4-s42-r1",
]
FLAGS = {"key.timeline", "key.index", "key.fold", "plan.attention.early_wo_b"}


def _planned(build: str) -> KernelPlan:
    return plan_of(SPECS, BuildKey.parse(build))


def _rendered(build: str) -> str:
    key = BuildKey.parse(build)
    model = next(m for m in SPECS.model.values() if m.prefix == key.model)
    context = {"plan": _planned(build), "key": key, "symbol": key.symbol, "model": model}
    return strip_marks(render_text(f"{key.kind}.py.j2", context))[0]


def _tree(name: str) -> nodes.Template:
    env = environment()
    source, _, _ = env.loader.get_source(env, name)  # type: ignore[union-attr]
    return env.parse(source)


def _dotted(node: nodes.Node) -> str:
    if isinstance(node, nodes.Getattr):
        return f"{_dotted(node.node)}.{node.attr}"
    return node.name if isinstance(node, nodes.Name) else repr(node)


def test_there_is_a_template_of_every_kind() -> None:
    assert {f"{BuildKey.parse(build).kind}.py.j2" for build in KEYS} == set(KERNELS)


@pytest.mark.parametrize("name", KERNELS)
def test_template_is_python_before_rendering(name: str) -> None:
    ast.parse((FOLDER / name).read_text())


@pytest.mark.parametrize("name", ALL)
def test_template_is_short(name: str) -> None:
    assert len((FOLDER / name).read_text().splitlines()) <= 125


@pytest.mark.parametrize("name", ALL)
def test_template_computes_nothing(name: str) -> None:
    operators = (nodes.BinExpr, nodes.UnaryExpr)
    found = [n for n in _tree(name).find_all(operators) if not isinstance(n, nodes.Not)]
    assert not found, [f"line {n.lineno}: {type(n).__name__}" for n in found]


@pytest.mark.parametrize("name", ALL)
def test_template_asks_for_build_flags_only(name: str) -> None:
    """Every condition is a flag of the build or its negation: no number, no arch."""
    asked = [n.test for n in _tree(name).find_all((nodes.If, nodes.CondExpr))]  # type: ignore[attr-defined]
    assert {_dotted(t.node if isinstance(t, nodes.Not) else t) for t in asked} <= FLAGS


def test_undefined_names_are_errors() -> None:
    assert environment().undefined is jinja2.StrictUndefined


@pytest.mark.parametrize("build", KEYS)
def test_rendered_module_is_flat_and_literal(build: str) -> None:
    source, kind = _rendered(build), BuildKey.parse(build).kind
    tree = ast.parse(source)
    assert "{{" not in source
    assert not lint(source, f"{kind}.py")
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    assert [f.name for f in functions] == [kind, "launch"]
    assert not [n for n in ast.walk(functions[0]) if isinstance(n, ast.If | ast.For | ast.While | ast.IfExp)]


@pytest.mark.parametrize("build", KEYS)
def test_arguments_are_those_of_the_abi(build: str) -> None:
    kind = BuildKey.parse(build).kind
    expected = [(a.name, "Int32" if a.type == "int32" else "Int64") for a in _planned(build).abi.arguments]
    functions = {n.name: n for n in ast.walk(ast.parse(_rendered(build))) if isinstance(n, ast.FunctionDef)}
    for name in (kind, "launch"):
        given = [(a.arg, ast.unparse(a.annotation)) for a in functions[name].args.args if a.annotation]
        assert given[: len(expected)] == expected, name
    calls = [n for n in ast.walk(functions["launch"]) if isinstance(n, ast.Call)]
    call = next(n for n in calls if ast.unparse(n.func) == kind)
    assert [ast.unparse(a) for a in call.args] == [name for name, _ in expected]


def _marks(build: str) -> set[str]:
    calls = [n for n in ast.walk(ast.parse(_rendered(build))) if isinstance(n, ast.Call)]
    return {ast.literal_eval(n.args[0]) for n in calls if ast.unparse(n.func) == "stage"}


@pytest.mark.parametrize("build", KEYS)
def test_stage_marks_are_the_plans_stages(build: str) -> None:
    """A stage that a device function marks inside another one is seen in the code object only."""
    planned = {s.name for s in _planned(build).stages if s.tasks}
    assert _marks(build) - {"end"} == planned - {"shared_q"}
