"""Tables of error budgets: terms are defined, used, and each budget says one thing."""

from __future__ import annotations

import pytest

from .folder import SpecFolder

HEAD = "schema_version: 1\nkind: numerics\nname: t\nkernel: k1\nmodel: deepseek_v41_flash\n"
TERMS = (
    'terms:\n  - {name: u, formula: "2 ** -24", derivation: d}\n'
    '  - {name: s, formula: "3 * u", derivation: d}\n'
)
BUDGET = '  - {stage: a, output: x, dtype: f32, rule: bound, terms: [s], formula: "s", derivation: d}\n'
GOOD = HEAD + TERMS + "budgets:\n" + BUDGET


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", []),
        ("terms: [s]", "terms: [s, q]", ["10:63 UNKNOWN_TERM"]),
        ("terms: [s]", "terms: [u]", ["8:12 UNUSED_TERM"]),
        ("terms: [s]", "terms: []", ["8:12 UNUSED_TERM", "10:5 BUDGET_EMPTY"]),
        ("rule: bound", "rule: bits", ["10:5 BUDGET_BITS"]),
        ("rule: bound", "rule: near", ["10:45 NOT_ONE_OF"]),
        (BUDGET, BUDGET + BUDGET, ["11:5 BUDGET_TWICE"]),
        ("name: s,", "name: u,", ["8:12 REPEATED", "10:60 UNKNOWN_TERM"]),
        ("model: deepseek_v41_flash", "model: deepseek", ["5:8 UNKNOWN_MODEL"]),
    ],
)
def test_table(folder: SpecFolder, old: str, new: str, expected: list[str]) -> None:
    (folder.root / "numerics").mkdir(exist_ok=True)
    folder.write("numerics/t.yaml", GOOD.replace(old, new) if old else GOOD)
    assert [line.removeprefix("numerics/t.yaml:") for line in folder.shown()] == expected
