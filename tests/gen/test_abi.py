"""Launch arguments: template, plan and code object agree, or the difference is named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from toys import TEMPLATES, unit

from flymono.gen.build import Settings, build, linted
from flymono.gen.checks_abi import layout_findings, module_findings
from flymono.gen.compiler import Compiler
from flymono.gen.findings import CheckError, LintError
from flymono.gen.unit import Unit
from flymono.gen.units import unit_of
from flymono.runtime.plan import BuildKey
from flymono.specs import load

X = {"name": "x", "type": "ptr", "offset": 0}
Y = {"name": "y", "type": "ptr", "offset": 8}
N = {"name": "n", "type": "int32", "offset": 16}


def toy(*abi: dict[str, object]) -> Unit:
    return replace(unit(), abi=abi)


def test_arguments_that_agree_are_no_finding(settings: Settings, compiler: Compiler) -> None:
    assert build(toy(X, Y, N), settings, compiler)[0].manifest["abi"] == [X, Y, N]


@pytest.mark.parametrize(
    ("abi", "text"),
    [
        ((Y, X, N), "argument 1 of toy is x: Int64, the ABI has y: Int64"),
        ((X, Y), "argument 3 of toy is n: Int32, the ABI has nothing"),
        ((X, Y, N, N), "argument 4 of toy is nothing, the ABI has n: Int32"),
        ((X, Y, {**N, "type": "int64"}), "argument 3 of toy is n: Int32, the ABI has n: Int64"),
    ],
)
def test_a_template_that_differs_is_named_at_its_line(abi: tuple[dict[str, object], ...], text: str) -> None:
    with pytest.raises(LintError) as caught:
        linted(toy(*abi), TEMPLATES)
    first = caught.value.findings[0]

    assert (first.code, first.message) == ("ABI_ARGUMENT", text)
    assert "(templates/good.py.j2:5)" in first.where


def test_a_call_in_another_order_is_named() -> None:
    source = linted(toy(X, Y, N), TEMPLATES).source.replace("toy(x, y, n)", "toy(y, x, n)")
    ((_, found),) = module_findings(toy(X, Y, N), source)

    assert found.message == "argument 1 of the call of the kernel is y, the ABI has x"


def test_a_module_without_a_kernel_is_named() -> None:
    ((_, found),) = module_findings(toy(X), "def launch(x): pass\n")

    assert found.message == "0 kernels and 1 functions named launch in the module"


def test_a_layout_that_differs_is_named(settings: Settings, compiler: Compiler) -> None:
    wrong = toy(X, Y, {**N, "offset": 20})
    with pytest.raises(
        CheckError, match=r"argument 3 \(n\): .* is \(16, 4\) in the code object, \(20, 4\) in the ABI"
    ):
        build(wrong, settings, compiler)


def test_a_hidden_argument_is_named() -> None:
    (found,) = layout_findings(toy(X, Y, N), ((0, 8), (8, 8), (16, 4), (24, 8)), "toy")

    assert "argument 4 (nothing)" in found.message


@pytest.mark.parametrize("name", ["dsv41_k1-gfx942-tp4-s6-r2", "dsv41_k1-gfx950-tp2-s6-r2-index"])
def test_k1_takes_the_arguments_of_the_plan(name: str) -> None:
    k1 = unit_of(load(), BuildKey.parse(name))

    assert len(k1.abi) == 42  # the 40 of attention.md 6.1, fault words and bound
    assert linted(k1).id == name
