"""The K1 template holds order and choice only, and agrees with the plan it is rendered from."""

from __future__ import annotations

import ast
from pathlib import Path

import jinja2
import pytest
from jinja2 import nodes

from flymono.gen.linemap import strip_marks
from flymono.gen.lint import lint
from flymono.gen.render import environment, render_text
from flymono.runtime.plan import BuildKey, plan_k1
from flymono.specs import load

TEMPLATE = Path(__file__).resolve().parents[2] / "templates" / "k1.py.j2"
SPECS = load()
KEYS = [
    "dsv41_k1-gfx942-tp4-s6-r2",
    "dsv41_k1-gfx942-tp4-s42-r0-nofold",
    "dsv41_k1-gfx942-tp4-s1-r0-w192-timeline",
    "dsv41_k1-gfx950-tp2-s6-r2",
    "dsv41_k1-gfx950-tp4-s48-r1-nofold-index",
]


def _rendered(build: str) -> str:
    key = BuildKey.parse(build)
    model = next(m for m in SPECS.model.values() if m.prefix == key.model)
    context = {"plan": plan_k1(SPECS, key), "key": key, "symbol": key.symbol, "model": model}
    return strip_marks(render_text("k1.py.j2", context))[0]


def _tree() -> nodes.Template:
    env = environment()
    source, _, _ = env.loader.get_source(env, "k1.py.j2")  # type: ignore[union-attr]
    return env.parse(source)


def test_template_is_python_before_rendering() -> None:
    ast.parse(TEMPLATE.read_text())


def test_template_is_short() -> None:
    assert len(TEMPLATE.read_text().splitlines()) <= 150


def test_template_computes_nothing() -> None:
    operators = (nodes.BinExpr, nodes.UnaryExpr)
    found = [n for n in _tree().find_all(operators) if not isinstance(n, nodes.Not)]
    assert not found, [f"line {n.lineno}: {type(n).__name__}" for n in found]


def test_template_asks_for_build_flags_only() -> None:
    """Every condition is `key.<flag>` or its negation: no number, no arch."""
    tests = [n.test for kind in (nodes.If, nodes.CondExpr) for n in _tree().find_all(kind)]
    assert tests
    for test in tests:
        asked = test.node if isinstance(test, nodes.Not) else test
        assert isinstance(asked, nodes.Getattr), repr(asked)
        assert isinstance(asked.node, nodes.Name)
        assert (asked.node.name, asked.attr) in {("key", "timeline"), ("key", "index"), ("key", "fold")}


def test_undefined_names_are_errors() -> None:
    assert environment().undefined is jinja2.StrictUndefined


@pytest.mark.parametrize("build", KEYS)
def test_rendered_module_is_flat_and_literal(build: str) -> None:
    source = _rendered(build)
    tree = ast.parse(source)
    assert "{{" not in source
    assert not lint(source, "k1.py")
    functions = [n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    assert functions == ["k1", "launch"]
    kernel = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "k1")
    assert not [n for n in ast.walk(kernel) if isinstance(n, ast.If | ast.For | ast.While | ast.IfExp)]


@pytest.mark.parametrize("build", KEYS)
def test_arguments_are_those_of_the_abi(build: str) -> None:
    plan = plan_k1(SPECS, BuildKey.parse(build))
    expected = [(a.name, "Int32" if a.type == "int32" else "Int64") for a in plan.abi.arguments]
    functions = {n.name: n for n in ast.walk(ast.parse(_rendered(build))) if isinstance(n, ast.FunctionDef)}
    for name in ("k1", "launch"):
        given = [(a.arg, ast.unparse(a.annotation)) for a in functions[name].args.args if a.annotation]
        assert given[: len(expected)] == expected, name
    call = next(
        n for n in ast.walk(functions["launch"]) if isinstance(n, ast.Call) and ast.unparse(n.func) == "k1"
    )
    assert [ast.unparse(a) for a in call.args] == [name for name, _ in expected]


@pytest.mark.parametrize("build", KEYS)
def test_stage_marks_are_the_plans_stages(build: str) -> None:
    plan = plan_k1(SPECS, BuildKey.parse(build))
    tree = ast.parse(_rendered(build))
    marks = [
        n.args[0].value
        for n in ast.walk(tree)  # type: ignore[attr-defined]
        if isinstance(n, ast.Call) and ast.unparse(n.func) == "stage"
    ]
    assert set(marks) - {"end"} == {s.name for s in plan.stages if s.tasks}
