"""Is a model spec consistent in itself? Layers, sources, sizes that must divide one another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from ..findings import Code, Finding
from ..schema import ModelSpec
from ..source import Source
from ..tree import Step
from .context import Context, repeats

RATIOS = (0, 1, 2)  # 0: no compressed cache; n: one compressed row for n tokens


def check_model(source: Source, model: ModelSpec) -> Iterator[Finding]:
    """All findings of one model."""
    yield from _layer_lists(source, model)
    yield from _ratios(source, model)
    yield from _sizes(source, model)
    yield from _bounds(source, model)
    yield from _codes(source, model)
    yield from _windows(source, model)


def check_prefixes(context: Context) -> Iterator[Finding]:
    """Two models must not share the first part of build ids."""
    taken: dict[str, str] = {}
    for source in context.sources.values():
        if isinstance(source.spec, ModelSpec):
            other = taken.setdefault(source.spec.prefix, source.spec.name)
            if other != source.spec.name:
                yield source.finding(Code.PREFIX_TAKEN, "prefix", prefix=source.spec.prefix, other=other)


def _layer_lists(source: Source, model: ModelSpec) -> Iterator[Finding]:
    topology = model.topology
    lists: dict[tuple[Step, ...], Sequence[int]] = {
        ("topology", "kv_source_layers"): topology.kv_source_layers,
        ("topology", "index_source_layers"): topology.index_source_layers,
        ("topology", "engram_layers"): topology.engram_layers,
        ("draft", "target_layers"): model.draft.target_layers,
    }
    for path, layers in lists.items():
        for i, layer in enumerate(layers):
            yield from _in_range(source, model, layer, str(path[-1]), *path, i)
        for i, (before, after) in enumerate(pairwise(layers), 1):
            if after <= before:
                yield source.finding(Code.LAYER_ORDER, *path, i, what=path[-1], layer=after)
    path = ("topology", "candidate_source_layer")
    yield from _in_range(source, model, topology.candidate_source_layer, "candidate_source_layer", *path)
    if topology.candidate_source_layer not in topology.index_source_layers:
        what = f"candidate_source_layer {topology.candidate_source_layer} is not an index source layer"
        hint = f"name one of {_listed(topology.index_source_layers)}"
        yield source.finding(Code.LAYER_SOURCE, *path, what=what, hint=hint)


def _in_range(source: Source, model: ModelSpec, layer: int, what: str, *path: Step) -> Iterator[Finding]:
    if not 0 <= layer < model.topology.layers:
        yield source.finding(Code.LAYER_RANGE, *path, what=what, layer=layer, last=model.topology.layers - 1)


def _ratios(source: Source, model: ModelSpec) -> Iterator[Finding]:
    topology = model.topology
    ratios, path = topology.compress_ratios, ("topology", "compress_ratios")
    want = topology.layers + topology.draft_layers
    if len(ratios) != want:
        yield Code.LAYER_COUNT.at(
            source.key_at(*path),
            got=len(ratios),
            layers=topology.layers,
            drafts=topology.draft_layers,
            want=want,
        )
        return
    for i, ratio in enumerate(ratios):
        if ratio not in RATIOS:
            rule = "one of " + _listed(RATIOS)
            yield source.finding(Code.OUT_OF_RANGE, *path, i, got=ratio, rule=rule)
        elif ratio and i >= topology.layers:
            what = f"draft layer {i - topology.layers} has ratio {ratio}, but drafts have no compressor"
            yield source.finding(Code.LAYER_SOURCE, *path, i, what=what, hint="write 0")
        elif ratio:
            yield from _served(source, model, i)
    yield from _sources_compress(source, model)


def _served(source: Source, model: ModelSpec, layer: int) -> Iterator[Finding]:
    """A layer with a compressed cache reads the latest kv and index sources at or before it."""
    ratios = model.topology.compress_ratios
    for key in ("kv_source_layers", "index_source_layers"):
        before = [s for s in getattr(model.topology, key) if 0 <= s <= layer and s < len(ratios)]
        kind = key.partition("_")[0]
        if not before:
            but = f"no {kind} source layer at or before it"
        elif ratios[max(before)] != ratios[layer]:
            but = f"its {kind} source {max(before)} has {ratios[max(before)]}"
        else:
            continue
        what = f"layer {layer} has ratio {ratios[layer]}, but {but}"
        hint = f"correct the ratio, or add a layer to {key}"
        yield source.finding(Code.LAYER_SOURCE, "topology", "compress_ratios", layer, what=what, hint=hint)


def _sources_compress(source: Source, model: ModelSpec) -> Iterator[Finding]:
    ratios = model.topology.compress_ratios
    for key in ("kv_source_layers", "index_source_layers"):
        for i, layer in enumerate(getattr(model.topology, key)):
            if 0 <= layer < model.topology.layers and ratios[layer] == 0:
                what = f"{key} names layer {layer}, whose ratio is 0"
                yield source.finding(
                    Code.LAYER_SOURCE, "topology", key, i, what=what, hint="name a compressed layer"
                )


def _sizes(source: Source, model: ModelSpec) -> Iterator[Finding]:
    attention, quantisation = model.attention, model.quantisation
    group, (block_rows, block_cols) = quantisation.activation_group, quantisation.weight_block
    pairs: list[tuple[tuple[Step, ...], int, str, int]] = [
        (("attention", "heads"), attention.heads, "attention.o_groups", attention.o_groups),
        (("attention", "heads"), attention.heads, "attention.kv_heads", attention.kv_heads),
        (("hidden",), model.hidden, "quantisation.activation_group", group),
        (("attention", "q_lora_rank"), attention.q_lora_rank, "quantisation.activation_group", group),
        (("attention", "q_lora_rank"), attention.q_lora_rank, "quantisation.weight_block[0]", block_rows),
        (("attention", "head_dim"), attention.head_dim, "quantisation.weight_block[0]", block_rows),
        (("hidden",), model.hidden, "quantisation.weight_block[1]", block_cols),
        (("attention", "rope_dim"), attention.rope_dim, "the pairs of a rotation", 2),
        (("moe", "intermediate"), model.moe.intermediate, "quantisation.activation_group", group),
    ]
    for path, big, small_name, small in pairs:
        if big % small:
            name = ".".join(map(str, path))
            values = {"small": small_name, "small_value": small, "big": name, "big_value": big}
            yield source.finding(Code.DIVIDES, *path, **values)
    nope = attention.head_dim - attention.rope_dim
    if nope > 0 and nope % quantisation.record_group:
        values = {
            "small": "quantisation.record_group", "small_value": quantisation.record_group,
            "big": "attention.head_dim - rope_dim", "big_value": nope,
        }  # fmt: skip
        yield source.finding(Code.DIVIDES, "quantisation", "record_group", **values)


def _bounds(source: Source, model: ModelSpec) -> Iterator[Finding]:
    attention, moe, draft, rope = model.attention, model.moe, model.draft, model.rope
    rows: list[tuple[tuple[Step, ...], int, str, int]] = [
        (("attention", "rope_dim"), attention.rope_dim, "head_dim - 1", attention.head_dim - 1),
        (("moe", "experts_per_token"), moe.experts_per_token, "experts", moe.experts),
        (("draft", "experts_per_token"), draft.experts_per_token, "experts", draft.experts),
        (("draft", "noise_token"), draft.noise_token, "vocab - 1", model.vocab - 1),
        (("rope", "beta_slow"), rope.beta_slow, "beta_fast", rope.beta_fast),
        (
            ("rope", "max_positions"), rope.max_positions,
            "factor * original_max_positions", rope.factor * rope.original_max_positions,
        ),
    ]  # fmt: skip
    for path, value, limit_name, limit in rows:
        if value > limit:
            what = ".".join(map(str, path))
            yield source.finding(
                Code.EXCEEDS, *path, what=what, value=value, limit_name=limit_name, limit=limit
            )
    yield from repeats(source, "windows", model.windows, "windows")


def _codes(source: Source, model: ModelSpec) -> Iterator[Finding]:
    for key in ("dense_code_range", "expert_code_range"):
        low, high = getattr(model.quantisation, key)
        if not 0 <= low <= high <= 254:
            rule = "a pair low, high with 0 <= low <= high <= 254 (255 is NaN)"
            yield source.finding(Code.OUT_OF_RANGE, "quantisation", key, got=f"{low}, {high}", rule=rule)


def _windows(source: Source, model: ModelSpec) -> Iterator[Finding]:
    window = model.attention.window
    if window not in model.windows:
        what = f"windows {_listed(model.windows)} do not hold attention.window {window}"
        yield source.finding(Code.FIGURE, "windows", what=what, hint=f"add {window}")
    for i, width in enumerate(model.windows):
        if width < window:
            rule = f"at least attention.window ({window})"
            yield source.finding(Code.OUT_OF_RANGE, "windows", i, got=width, rule=rule)


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))
