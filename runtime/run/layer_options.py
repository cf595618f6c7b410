"""The options of `flymono run layer` and `run ffn`, and everything that can be known to be wrong with them
before any work is done, all of it at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from flymono.reference.case import default_padding
from flymono.reference.layer_case import kv_source
from flymono.reference.layer_weights import WholeLayer, seeded_layer
from flymono.runtime.plan import plan_layer, plan_of
from flymono.runtime.plan.keys import BuildKey
from flymono.runtime.run import folder
from flymono.runtime.run.checks import check_folder, check_layer, check_surroundings
from flymono.runtime.run.command import the_model
from flymono.runtime.run.options import RunOptions
from flymono.runtime.weights import check_layer_weights, read_layer
from flymono.specs import Specs, UserError
from flymono.specs.findings import check_all
from flymono.specs.schema import ModelSpec

DEFAULT_LAYER = 3  # a plain layer: ratio 2, fold, no index


@dataclass(frozen=True)
class LayerOptions(RunOptions):
    """Options of a run on all ranks; `tp` of None is the arch's first, `padded` of None the case's own.

    `chain` counts layers in a row from `layer` on, each fed by the one before it; `steps` decode steps.
    """

    chain: int = 1
    steps: int = 1
    draft: bool = False
    contexts: tuple[int, ...] = ()
    not_contexts: tuple[str, ...] = ()  # what --contexts has and is no length, to be told beside all else
    padded: int | None = None

    def tp_of(self, specs: Specs) -> int:
        """TP size: the one given, else the arch's first."""
        arch = specs.arch.get(self.arch)
        return self.tp if self.tp is not None else arch.tp[0] if arch else 1

    def layer_of(self, model: ModelSpec) -> int:
        """The layer: the one given, else a plain one of the backbone (or the first draft layer)."""
        if self.layer is not None:
            return self.layer
        return model.topology.layers if self.draft else DEFAULT_LAYER


def parse_contexts(text: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """(context lengths, what is no length) of "1,130,4000"."""
    parts = [p.strip() for p in text.split(",") if p.strip()]
    wrong = [p for p in parts if not (p.isascii() and p.isdigit()) or int(p) < 1]
    return tuple(int(p) for p in parts if p not in wrong), tuple(wrong)


def ffn_key(options: LayerOptions, specs: Specs) -> BuildKey:
    """The FFN launch's build that the options name."""
    model = the_model(specs)
    draft = options.layer_of(model) >= model.topology.layers
    return BuildKey(
        "ffn", options.arch, options.tp_of(specs), options.width, model=model.prefix, draft=draft,
        timeline=options.timeline,
    )  # fmt: skip


def weights_of(options: LayerOptions, model: ModelSpec, layer: int) -> WholeLayer:
    """The layer's weights: of the file that the options name, else from the seed."""
    if options.weights is not None:
        return read_layer(options.weights, model, layer)
    return seeded_layer(model, layer, options.seed)


def check_options(options: LayerOptions, specs: Specs, kind: str) -> None:
    """Raise everything that is wrong; `kind` is what runs, `layer` or `ffn`."""
    model = the_model(specs)
    checks: list[Callable[[], object]] = [lambda: check_surroundings(options, specs)]
    checks += [lambda: _step(options, model), lambda: _contexts(options), lambda: _mixture(options, model)]
    layer, last = options.layer_of(model), len(model.topology.compress_ratios) - 1
    there = 0 <= layer <= last
    checks.append(lambda: check_layer(layer, model))
    if kind == "layer":
        tp = options.tp_of(specs)
        numbers = range(layer, min(layer + max(options.chain, 1), last + 1)) if there else (DEFAULT_LAYER,)
        checks += [
            partial(plan_layer, specs, options.arch, tp, options.width, n, model.prefix) for n in numbers
        ]
        checks.append(lambda: check_chain(options, model, layer))
    else:
        checks.append(lambda: plan_of(specs, ffn_key(options, specs)))
    if there and options.weights is not None:
        weights = options.weights
        checks.append(lambda: check_layer_weights(weights, model, layer))
    check_all(*checks)


def _chained(model: ModelSpec, first: int, count: int) -> None:
    """Layers in a row read one compressed cache and fold one another's output in."""
    ratios, engram = model.topology.compress_ratios, model.topology.engram_layers
    if first < 0:
        return  # no layer, which is told by itself
    found = []
    for n in range(first + 1, min(first + count, len(ratios))):
        if kv_source(model, n) != kv_source(model, first) or ratios[n] != ratios[first]:
            found.append(f"layer {n} reads another compressed cache than layer {first}")
        if n in engram:
            found.append(f"layer {n} takes a residual that its engram has settled")
        if n == model.topology.layers:
            found.append(f"layer {n} is the first draft layer, which the backbone does not feed")
    if found:
        raise UserError("these layers are no chain:" + "".join(f"\n  {f}" for f in found),
                        fix="start at a source layer, for example --layer 2 --chain 3")  # fmt: skip


def _contexts(options: LayerOptions) -> None:
    if options.not_contexts:
        words = ", ".join(map(repr, options.not_contexts))
        raise UserError(f"contexts {words}: a context is a number of tokens from 1 on",
                        fix="give them as --contexts 1,130,4000")  # fmt: skip


def _mixture(options: LayerOptions, model: ModelSpec) -> None:
    """--draft beside a layer of the backbone, whose mixture is another one."""
    first = model.topology.layers
    if options.draft and options.layer is not None and 0 <= options.layer < first:
        fix = f"leave --draft out, or take a layer from {first} on"
        raise UserError(f"layer {options.layer} is no draft layer", fix=fix)


def check_chain(options: LayerOptions, model: ModelSpec, first: int) -> None:
    """Raise what is wrong with the layers and steps in a row from `first` on."""
    check_all(lambda: _counts(options), lambda: _chained(model, first, options.chain))


def _counts(options: LayerOptions) -> None:
    if options.chain < 1 or options.steps < 1:
        raise UserError(f"a chain of {options.chain} layers in {options.steps} steps",
                        fix="both --chain and --steps are 1 or more")  # fmt: skip


def _step(options: LayerOptions, model: ModelSpec) -> None:
    """What is wrong with the rows' contexts and padding."""
    found, rows = [], options.width
    padded = default_padding(rows) if options.padded is None else options.padded
    if rows > 0 and not 0 <= padded < rows:
        found.append(f"{padded} padded rows of {rows}: at least one row must be live")
    long = [c for c in options.contexts if c + 8 > model.rope.max_positions]
    if long:
        found.append(f"contexts {long} are beyond the model's {model.rope.max_positions:,} positions")
    if found:
        raise UserError("the step cannot be made:" + "".join(f"\n  {f}" for f in found),
                        fix="change --padded or --contexts")  # fmt: skip


def open_folder(
    options: LayerOptions, specs: Specs, kind: str, *checks: Callable[[BuildKey, int], object]
) -> tuple[folder.Saved, BuildKey, int]:
    """The folder that --inputs names, with the build and the layer that it was saved for. Raises all that is
    wrong with it, with the options beside it, and what `checks` find."""
    assert options.inputs is not None
    path, saved = options.inputs, folder.load(options.inputs)
    key, number = BuildKey.parse(saved.build), saved.facts.get("layer", -1)
    given = {"tp": options.tp, "rows": options.rows, "layer": options.layer, "draft": options.draft or None,
             "padded": options.padded, "weights": options.weights,
             "contexts": options.contexts or options.not_contexts or None}  # fmt: skip
    check_all(
        lambda: folder.check_kind(path, key.kind, kind),
        lambda: check_folder(options, key, given),
        lambda: check_surroundings(options, specs),
        *(partial(check, key, number) for check in checks),
    )
    return saved, key, number
