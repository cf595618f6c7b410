"""Arithmetic formulas of the numerics specs: numbers, names, + - * / **, and a few named functions.

A formula is parsed with `ast` and walked; nothing is evaluated that is not listed here.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from math import ceil, log2

from ..specs.findings import UserError
from ..specs.schema import NumericsSpec

UNIT = 2.0**-24  # unit roundoff of float32


class FormulaError(UserError, ValueError):
    """A formula that is not arithmetic over known names, or has no value."""

    def __init__(self, message: str) -> None:
        super().__init__(message, fix="correct the formula in specs/numerics")


class Terms(dict[str, float]):
    """Values of a numerics spec's terms by name; one that the spec lacks is the user's error."""

    def __missing__(self, name: str) -> float:
        raise FormulaError(f"the numerics spec has no term {name!r}, which a budget of the reference needs")


def gamma(roundings: float) -> float:
    """n u / (1 - n u): the relative error of a sum after n roundings, second order included."""
    return roundings * UNIT / (1 - roundings * UNIT)


FUNCTIONS: dict[str, Callable[..., float]] = {
    "gamma": gamma,
    "ceil": ceil,
    "log2": log2,
    "max": max,
    "min": min,
}
OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def _walk(node: ast.expr, names: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_walk(operand, names)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_walk(left, names), _walk(right, names))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            return FUNCTIONS[name](*(_walk(arg, names) for arg in args))
    raise FormulaError(
        f"{ast.unparse(node)!r} is not arithmetic over the known names: {', '.join(sorted(names))}"
    )


def evaluate(formula: str, names: Mapping[str, float]) -> float:
    """Value of `formula`; FormulaError names the part that is not allowed or not known."""
    try:
        tree = ast.parse(formula, mode="eval")
    except SyntaxError as error:
        raise FormulaError(f"{formula!r} is not a formula: {error.msg}") from error
    try:
        return _walk(tree.body, names)
    except FormulaError:
        raise
    except (ArithmeticError, ValueError, TypeError) as error:  # 1/0, 9.0**999, log2(0), gamma()
        raise FormulaError(f"{formula!r} has no value: {error}") from error


def terms_of(numerics: NumericsSpec, names: Mapping[str, float], gemv: str) -> Terms:
    """Every term of `numerics` as a number, for one set of sizes and one GEMV strategy."""
    known = dict(names)
    for term in numerics.terms:
        formula = term.formula if isinstance(term.formula, str) else term.formula.get(gemv)
        if formula is None:
            raise FormulaError(
                f"term {term.name} of {numerics.name} has no formula for the GEMV strategy {gemv!r}"
            )
        known[term.name] = evaluate(formula, known)
    return Terms({term.name: known[term.name] for term in numerics.terms})
