"""What `flymono run` and `flymono demo` do: options in, a printed and judged result out.

Bad input of every kind is collected by the part that knows it (plan, weights, folder, specs) and
ends as a message and exit code 2; a wrong result is a table with its stage and exit code 1.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from rich.console import Console

from flymono.reference.case import K1Case, make_case
from flymono.reference.layer_case import begins
from flymono.reference.weights import K1Weights
from flymono.runtime.plan import BuildKey, K1Plan, plan_k1
from flymono.runtime.run import case_file, checks, folder, html, k1, table
from flymono.runtime.run.bind import bind
from flymono.runtime.run.devices import device_of
from flymono.runtime.run.group import Group, Kernel
from flymono.runtime.run.options import RunOptions
from flymono.runtime.run.result import RunResult
from flymono.runtime.run.results import result_of
from flymono.runtime.run.steps import Steps
from flymono.runtime.weights import read_k1_weights, seeded_file
from flymono.specs import Specs, load
from flymono.specs.findings import check_all
from flymono.specs.schema import ModelSpec

DEFAULT_LAYER = 3  # a plain layer: ratio 2, fold, no index
_OF_A_FOLDER = ("tp", "rows", "ratio", "fold", "index", "window", "layer", "weights")


@dataclass(frozen=True)
class Options(RunOptions):
    """The options of `flymono run k1`; None means "take it from the layer, or the default"."""

    ratio: int | None = None
    fold: bool | None = None
    index: bool | None = None
    window: int | None = None
    rank: int = 0


@dataclass(frozen=True)
class Prepared:
    """A run that only needs a device: plan, case, weights and where they came from."""

    specs: Specs
    model: ModelSpec
    plan: K1Plan
    case: K1Case
    weights: K1Weights
    source: str


def the_model(specs: Specs) -> ModelSpec:
    """The model of the specs that K1 is built for (the one that ships; a second needs an option)."""
    return next(iter(specs.model.values()))


def key_of(options: Options, specs: Specs, model: ModelSpec) -> BuildKey:
    """The build that the options name; a layer states what the options leave open."""
    arch = specs.arch.get(options.arch)
    tp = options.tp if options.tp is not None else arch.tp[0] if arch else 1
    ratio, fold, index = 2, True, False
    if options.layer is not None:
        ratio, fold, index = layer_kind(model, options.layer)
    return BuildKey(
        kind="k1", arch=options.arch, tp=tp, rows=options.width,
        ratio=ratio if options.ratio is None else options.ratio,
        fold=fold if options.fold is None else options.fold,
        index=index if options.index is None else options.index,
        window=model.attention.window if options.window is None else options.window,
        timeline=options.timeline, model=model.prefix,
    )  # fmt: skip


def layer_kind(model: ModelSpec, layer: int) -> tuple[int, bool, bool]:
    """(ratio, fold, index) of a layer (attention.md 1.3): engram layers and the first one do not fold."""
    top = model.topology
    first_draft = layer == top.layers
    fold = layer != 0 and layer not in top.engram_layers and not first_draft
    return top.compress_ratios[layer], fold, layer in top.index_source_layers


def prepare(options: Options, specs: Specs | None = None) -> Prepared:
    """Plan, case and weights of the options; raises what is wrong with them, nothing is written."""
    specs = specs or load()
    model = the_model(specs)
    if options.inputs is not None:
        return _from_folder(options, specs, model)
    layer = DEFAULT_LAYER if options.layer is None else options.layer
    checks.check_case(options, model, layer, specs, lambda o: key_of(o, specs, model))
    plan = plan_k1(specs, key_of(options, specs, model))
    checks.check_numerics(specs, model, plan)
    source = options.weights or seeded_file(model, layer, options.seed)
    weights = read_k1_weights(source, model, layer, plan.key.tp, options.rank)
    case = make_case(
        model, rows=plan.key.rows, tp=plan.key.tp, rank=options.rank, ratio=plan.key.ratio,
        fold=plan.key.fold, index=plan.key.index, window=plan.key.window, seed=options.seed,
        fp8=plan.strategy.fp8, first=begins(model, layer),
    )  # fmt: skip
    named = options.weights or f"seeded weights of layer {layer}"
    return Prepared(specs, model, plan, case, weights, str(named))


def _from_folder(options: Options, specs: Specs, model: ModelSpec) -> Prepared:
    assert options.inputs is not None
    saved = folder.load(options.inputs)
    key = BuildKey.parse(saved.build)
    folder.check_kind(options.inputs, key.kind, "k1")
    checks.check_folder(options, key, {name: getattr(options, name) for name in _OF_A_FOLDER})
    plan = plan_k1(specs, key)
    case, weights = case_file.restore(plan, saved)
    return Prepared(specs, model, plan, case, weights, str(options.inputs))


def run(options: Options, specs: Specs | None = None) -> RunResult:
    """Everything from specs to verdicts; `--save` writes its files on the way."""
    from flymono.gen import api

    steps = Steps(f"K1 on {options.arch}")
    with steps.step("read specs and weights, plan"):
        ready = checked(options, specs or load())
        given = k1.arguments_of(ready.plan, ready.case, ready.weights)
        bind(
            ready.plan, {**given, **Group.of([ready.plan], 1).arguments(0)}
        )  # an argument that does not fit is told before anything is compiled
    plan = ready.plan
    steps.title = plan.key.id
    with steps.step("generate, compile, check"):
        artefact = api.build(plan.key, ready.specs)
    device = device_of(options, ready.specs, 1, steps.count)
    if options.save is not None:
        case_file.save_inputs(options.save, plan, ready.case, ready.weights, given)
    with steps.step(f"execute on {plan.grid} workgroups"):
        done = k1.launch(plan, artefact, device, given, seed=options.seed)
    if options.save is not None:
        folder.save(options.save, "outputs", plan.key.id, done.outputs(plan), {})
    numerics = ready.specs.numerics[plan.key.kind]
    with steps.step("compare with the reference"):
        verdicts = k1.judge(plan, ready.case, ready.weights, ready.model, numerics, done)
    kernel = Kernel(plan, artefact, (given,))
    return result_of(kernel, device.name, options.seed, ready.source, [done], verdicts)


def checked(options: Options, specs: Specs) -> Prepared:
    """`prepare`, with everything else that can be known to be wrong now reported beside what it raises."""
    ready: list[Prepared] = []
    check_all(
        lambda: checks.check_surroundings(options, specs),
        lambda: ready.append(prepare(options, specs)),
    )
    return ready[0]


def run_and_print(options: Options) -> bool:
    """Run, print (a table, or JSON), write the report, and say whether every output is right.

    A report that fails after all costs the table nothing; JSON is one document, a result or an error.
    """
    result = run(options)
    if not options.json:
        Console().print(table.render(result, options.verbose))
    if options.report is not None:
        html.write_html(result, options.report)
    if options.json:
        print(json.dumps(result.to_json(), indent=2))
    return result.ok


def variant(options: Options, **changes: object) -> Options:
    """`options` with some changed (tests and benches run families of builds)."""
    return replace(options, **changes)  # type: ignore[arg-type]
