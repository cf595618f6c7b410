"""Does each budget say one thing, once?"""

from __future__ import annotations

from collections.abc import Iterator

from ..findings import Code, Finding
from ..schema import NumericsSpec
from ..source import Source
from .context import Context


def check_numerics(source: Source, numerics: NumericsSpec, context: Context) -> Iterator[Finding]:
    """All findings of one table of error budgets."""
    yield from context.unknown(source, Code.UNKNOWN_MODEL, "model", numerics.model, "model")
    seen: dict[tuple[str, str], int] = {}
    for i, budget in enumerate(numerics.budgets):
        allows = budget.rtol > 0 or budget.atol > 0 or budget.tie
        if budget.bits and allows:
            yield source.finding(Code.BUDGET_BOTH, "budgets", i, output=budget.output)
        if not budget.bits and not allows:
            yield source.finding(Code.BUDGET_EMPTY, "budgets", i, output=budget.output)
        first = seen.setdefault((budget.stage, budget.output), i)
        if first != i:
            line = source.at("budgets", first).line
            yield source.finding(
                Code.BUDGET_TWICE, "budgets", i, stage=budget.stage, output=budget.output, line=line
            )
