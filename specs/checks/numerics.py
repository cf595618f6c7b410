"""Does each budget say one thing, once, in terms that the file defines?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..findings import Code, Finding, near
from ..schema import NumericsSpec
from ..source import Source
from .context import Context


def check_numerics(source: Source, numerics: NumericsSpec, context: Context) -> Iterator[Finding]:
    """All findings of one table of error budgets."""
    yield from context.unknown(source, Code.UNKNOWN_MODEL, "model", numerics.model, "model")
    yield from _terms(source, numerics)
    seen: dict[tuple[str, str], int] = {}
    for i, budget in enumerate(numerics.budgets):
        if (budget.rule == "bits") == bool(budget.terms):
            code = Code.BUDGET_BITS if budget.terms else Code.BUDGET_EMPTY
            yield source.finding(code, "budgets", i, output=budget.output, rule=budget.rule)
        first = seen.setdefault((budget.stage, budget.output), i)
        if first != i:
            line = source.at("budgets", first).line
            values = {"stage": budget.stage, "output": budget.output, "line": line}
            yield source.finding(Code.BUDGET_TWICE, "budgets", i, **values)


def _words(formula: str | dict[str, str]) -> set[str]:
    texts = [formula] if isinstance(formula, str) else formula.values()
    return {word for text in texts for word in re.findall(r"[A-Za-z_]\w*", text)}


def _terms(source: Source, numerics: NumericsSpec) -> Iterator[Finding]:
    names = [term.name for term in numerics.terms]
    used = {word for term in numerics.terms for word in _words(term.formula)}
    for i, budget in enumerate(numerics.budgets):
        for j, term in enumerate(budget.terms):
            used.add(term)
            if term not in names:
                yield source.finding(
                    Code.UNKNOWN_TERM, "budgets", i, "terms", j, term=term, hint=near(term, names)
                )
    for i, name in enumerate(names):
        if name in names[:i]:
            yield source.finding(Code.REPEATED, "terms", i, "name", what="terms", value=name)
        elif name not in used:
            yield source.finding(Code.UNUSED_TERM, "terms", i, "name", term=name)
