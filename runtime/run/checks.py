"""What can be known to be wrong with the options of a run before any work is done, all of it at once.

A run takes seconds to minutes: an option that the emulator does not know or a report that cannot be written
must not be found at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from flymono.reference.formula import terms_of
from flymono.reference.sizes import K1Sizes, SumOrder
from flymono.runtime.files import check_writable
from flymono.runtime.plan import K1Plan, plan_k1
from flymono.runtime.run.devices import check_device
from flymono.runtime.run.options import RunOptions
from flymono.runtime.weights import check_k1_weights
from flymono.specs import Specs, UserError
from flymono.specs.findings import check_all
from flymono.specs.schema import ModelSpec

if TYPE_CHECKING:
    from flymono.runtime.plan import BuildKey
    from flymono.runtime.run.command import Options


def check_surroundings(options: RunOptions, specs: Specs) -> None:
    """Raise what is wrong with the device's options and with the places that are written at the end."""
    checks: list[Callable[[], object]] = [lambda: check_device(options, specs)]
    if options.save is not None:
        inputs = options.save / "inputs.safetensors"
        checks.append(lambda: check_writable(inputs))
    if options.report is not None:
        report = options.report
        checks.append(lambda: check_writable(report))
    check_all(*checks)


def check_case(
    options: Options, model: ModelSpec, layer: int, specs: Specs, key_of: Callable[[Options], BuildKey]
) -> None:
    """Raise what is wrong with layer, build, rank and weights file, each on its own."""
    last = len(model.topology.compress_ratios) - 1
    there = 0 <= layer <= last
    key = key_of(options if there else replace(options, layer=None))

    def rank_exists() -> None:
        if not 0 <= options.rank < max(key.tp, 1):
            raise UserError(f"there is no rank {options.rank} at TP{key.tp}", fix=f"take 0 to {key.tp - 1}")

    checks: list[Callable[[], object]] = [
        lambda: check_layer(layer, model), lambda: plan_k1(specs, key), rank_exists,
    ]  # fmt: skip
    if there and options.weights is not None:
        weights = options.weights
        checks.append(lambda: check_k1_weights(weights, model, layer))
    check_all(*checks)


def check_layer(layer: int, model: ModelSpec) -> None:
    """Raise UserError where the model has no such layer."""
    last = len(model.topology.compress_ratios) - 1
    if not 0 <= layer <= last:
        fix = f"take 0 to {last}; {model.topology.layers} to {last} are draft layers"
        raise UserError(f"there is no layer {layer}", fix=fix)


def check_folder(options: RunOptions, key: BuildKey, given: Mapping[str, object]) -> None:
    """Raise UserError where options contradict the build that a folder of --save was written for; `given`:
    what such a folder holds, by option, None where it was not stated."""
    stated = [f"--{name}" for name, value in given.items() if value is not None]
    if stated:
        what = f"{', '.join(stated)} beside --inputs, which holds all of that"
        raise UserError(what, fix="leave it out")
    if options.arch != key.arch:
        raise UserError(f"{options.inputs} was saved for {key.arch}", fix=f"--arch {key.arch}")


def check_numerics(specs: Specs, model: ModelSpec, plan: K1Plan) -> None:
    """Raise what is wrong with the formulas of the kernel's error budgets, before anything is compiled."""
    order = SumOrder(gemv=plan.strategy.gemv)
    terms_of(specs.numerics[plan.key.kind], order.names(K1Sizes.of(model, plan.key.tp)), order.gemv)
