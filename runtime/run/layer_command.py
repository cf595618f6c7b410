"""What `flymono run layer` and `run ffn` do: options in, printed and judged results out, a table a launch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from rich.console import Console

from flymono.reference.compressor import CompressorWeights, random_compressor
from flymono.reference.draws import Draws
from flymono.reference.layer_case import LayerCase, begins, make_layer_case
from flymono.reference.layer_sizes import LayerSizes
from flymono.reference.layer_weights import WholeLayer
from flymono.runtime.plan import K1Plan, KernelPlan, plan_layer
from flymono.runtime.run import folder, html, layer_folder, table
from flymono.runtime.run.chain import Chain
from flymono.runtime.run.command import the_model
from flymono.runtime.run.devices import device_of
from flymono.runtime.run.ffn_command import run_ffn
from flymono.runtime.run.group import Group
from flymono.runtime.run.layer import Layer, run_layer
from flymono.runtime.run.layer_options import (
    LayerOptions,
    check_chain,
    check_options,
    open_folder,
    weights_of,
)
from flymono.runtime.run.result import Ran
from flymono.runtime.run.results import result_of
from flymono.runtime.run.steps import Steps
from flymono.runtime.weights import read_layer
from flymono.specs import Specs, load
from flymono.specs.schema import ModelSpec


def compressor_of(model: ModelSpec, layer: int, seed: int) -> CompressorWeights | None:
    """A compressor for layers that write compressed records (a drawn one: it is vLLM's kernel, not ours)."""
    top = model.topology
    if layer not in top.kv_source_layers:
        return None
    return random_compressor(
        Draws(seed, f"compressor/{layer}"), LayerSizes.of(model, 1), top.compress_ratios[layer]
    )


def case_of(options: LayerOptions, specs: Specs, plans: Sequence[KernelPlan], layer: int) -> LayerCase:
    """The step's case for a layer."""
    key, model = plans[0].key, the_model(specs)
    return make_layer_case(
        model, rows=key.rows, tp=key.tp, layer=layer, fp8=plans[0].strategy.fp8, seed=options.seed,
        contexts=options.contexts, fold=key.fold, index=key.index, window=key.window,
        first=begins(model, layer), padded=options.padded,
    )  # fmt: skip


def prepare_layer(options: LayerOptions, specs: Specs) -> Layer:
    """Plans, case and weights of the options' first layer, nothing built; raises what is wrong with them."""
    check_options(options, specs, "layer")
    model = the_model(specs)
    number = options.layer_of(model)
    plan = plan_layer(
        specs, options.arch, options.tp_of(specs), options.width, number, model.prefix, options.timeline
    )
    weights = weights_of(options, model, number)
    case = case_of(options, specs, plan.plans, number)
    return Layer(specs, plan, {}, case, weights, compressor_of(model, number, options.seed))


def built(layer: Layer) -> Layer:
    """The layer with its code objects."""
    from flymono.gen import api

    return replace(layer, artefacts={p.key.id: api.build(p.key, layer.specs) for p in layer.plan.plans})


def run_layers(options: LayerOptions, specs: Specs | None = None) -> Iterator[Ran]:
    """Run the options' layers one after the other, as many steps as asked for, on one group."""
    specs, steps = specs or load(), Steps(f"layer on {options.arch}")
    with steps.step("read specs and weights, plan"):
        first = _first(options, specs)
    device = device_of(options, specs, first.tp, steps.count)
    chain, source = (
        Chain(first, lambda n: _weights(options, first.case.model, n)),
        options.weights or options.inputs,
    )
    group: Group | None = None
    for number, step in chain.places(options.chain, options.steps):
        name = f"layer {number}" + (f", step {step + 1}" if options.steps > 1 else "")
        steps.title = name
        with steps.step("read specs and weights, plan"):
            layer = chain.layer(number, step)
        with steps.step("generate, compile, check"):
            layer = built(layer)
        group = group or Group.of(layer.plan.plans, layer.tp, seed=options.seed)
        keep = _keeper(options, layer) if layer.case is first.case else None
        with steps.step(f"execute on {layer.tp} ranks and compare with the reference"):
            done = chain.ran(run_layer(layer, device, group, chain.carried(number), keep))
        if options.save is not None:
            layer_folder.save_outputs(options.save, done)
        of = str(source or f"seeded weights of layer {number}")
        yield Ran(name, tuple(
            result_of(s.kernel, device.name, options.seed, of, s.done, s.verdicts) for s in done.steps
        ))  # fmt: skip


def _weights(
    options: LayerOptions, model: ModelSpec, layer: int
) -> tuple[WholeLayer, CompressorWeights | None]:
    return weights_of(options, model, layer), compressor_of(model, layer, options.seed)


def _keeper(options: LayerOptions, layer: Layer) -> Callable[[tuple[int, ...]], None] | None:
    """What is to be done with the step's experts: `--save` needs them in its file."""
    path = options.save
    return None if path is None else lambda experts: layer_folder.save_inputs(path, layer, experts)


def _first(options: LayerOptions, specs: Specs) -> Layer:
    if options.inputs is None:
        return prepare_layer(options, specs)
    model = the_model(specs)
    saved, key, number = open_folder(
        options, specs, "k1",
        lambda key, number: check_chain(options, model, number),
        lambda key, number: plan_layer(specs, key.arch, key.tp, key.rows, number, model.prefix),
    )  # fmt: skip
    plan = plan_layer(specs, key.arch, key.tp, key.rows, number, model.prefix)
    first = plan.plans[0]
    assert isinstance(first, K1Plan)
    case = layer_folder.restore(first, model, saved)
    weights = read_layer(options.inputs / folder.WEIGHTS, model, number)
    return Layer(specs, plan, {}, case, weights, compressor_of(model, number, case.k1.seed))


def run_and_print(options: LayerOptions, kind: str) -> bool:
    """Run `layer` or `ffn`, print tables as launches end (or one JSON document), write the report, and say
    whether every output is right."""
    console, ran = Console(), list[Ran]()
    for one in (run_layers if kind == "layer" else run_ffn)(options):
        ran.append(one)
        if not options.json:
            for result in one.results:
                console.print(table.render(result, options.verbose))
    results = [r for one in ran for r in one.results]
    ok = all(one.ok for one in ran)
    if not options.json:
        console.print(
            f"{', '.join(one.name for one in ran)}: {'right' if ok else 'WRONG'} on {results[0].ranks} ranks"
        )
    if options.report is not None:
        html.write_html(results, options.report)
    if options.json:
        launches = [{"of": one.name} | r.to_json() for one in ran for r in one.results]
        print(json.dumps({"ok": ok, "launches": launches}, indent=2))
    return ok
