"""`flymono why`: whether a layer of a server runs on the kernels in a step, and every reason why not.

Exit codes: 0 the layer runs whole, 1 it does not (the reasons are the answer), 2 the question is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import serving

if TYPE_CHECKING:
    from ..runtime.plan import Reason
    from ..runtime.plan.layers import Host, StepFacts
    from ..runtime.plan.layers.nearest import Answer, Question
    from ..specs import Specs

GRAPHS = ("none", "full", "piecewise")
NOT_WHOLE = 1


def register(app: typer.Typer) -> None:
    """Add `flymono why` to the app."""
    app.command("why")(why)


def why(
    layer: Annotated[int, typer.Option(help="Layer of the model; draft layers come last.")],
    rows: Annotated[int, typer.Option(help="Rows of the step, padded ones too.")],
    arch: serving.Arch = None,
    tp: serving.Tp = None,
    gpu: serving.Gpu = None,
    units: serving.Units = None,
    graph_mode: Annotated[str, typer.Option(help="Graph of the step: none, full or piecewise.")] = "none",
    prefill: Annotated[int, typer.Option(help="Prefills among the step's rows.")] = 0,
    indexer: serving.Indexer = "fp8",
    kv_dtype: serving.KvDtype = None,
    ep: serving.Ep = False,
    dp: serving.Dp = 1,
    pp: serving.Pp = 1,
    cp: serving.Cp = 1,
    moe_backend: serving.Moe = None,
    no_fused_seam: serving.NoSeam = False,
    drafts: serving.Drafts = None,
    feature: serving.Features = None,
    widths: serving.Widths = "shipped",
    lenient: serving.Lenient = False,
    json: serving.Json = False,
) -> None:
    """Say how a layer of a server runs in a step, and every reason why not on the kernels (exit code 1)."""
    from ..runtime.plan.layers import Path, StepFacts
    from ..runtime.plan.layers.nearest import Question, answer, nearest_choice
    from ..specs import load

    specs = load()
    said = serving.Said(
        arch, gpu, units, tp, ep, dp, pp, cp, indexer, kv_dtype, moe_backend, no_fused_seam, drafts,
        tuple(feature or ()), widths,
    )  # fmt: skip
    host = serving.host_of(
        specs,
        said,
        lambda: serving.one_of("--graph-mode", graph_mode, GRAPHS),
        lambda: _numbers(specs, layer, rows, prefill, drafts),
    )
    first_draft = next(iter(specs.model.values())).topology.layers
    facts = StepFacts(rows, draft=layer >= first_draft, graph=graph_mode, prefills=prefill)  # type: ignore[arg-type]
    asked = Question(host, layer, facts)
    found, near = answer(specs, asked, strict=not lenient), nearest_choice(specs, asked)
    typer.echo(_json(asked, found, near) if json else _text(specs, asked, found, near))
    raise typer.Exit(0 if found.path is Path.WHOLE else NOT_WHOLE)


def _numbers(specs: Specs, layer: int, rows: int, prefill: int, drafts: int | None) -> None:
    from ..runtime.plan.layer import kind_of
    from ..specs.findings import UserError, check_all

    model = next(iter(specs.model.values()))

    def drafted() -> None:
        if drafts == 0 and layer >= model.topology.layers:
            raise UserError(
                f"layer {layer} is a draft layer, and --drafts is 0", fix="write 1 or more drafts"
            )

    check_all(
        lambda: kind_of(model, layer),
        lambda: serving.positive("--rows", rows),
        lambda: serving.positive("--prefill", prefill, 0),
        drafted,
    )


def reasons_of(asked: Question, found: Answer) -> list[Reason]:
    """Every reason of every phase against this layer in this step."""
    from ..runtime.plan.layers import Path, ServeCode

    one = found.plan[asked.layer]
    said = {r.code for r in one.reasons}
    step = [r for r in found.decision.reasons if not (said and r.code is ServeCode.NO_KERNEL_LAYERS)]
    return [*one.reasons, *(step if one.path is not Path.STOCK or said else ())]


def command(host: Host, layer: int, facts: StepFacts) -> str:
    """The question as a command line, defaults left out."""
    words = [f"flymono why --arch {host.arch} --tp {host.tp} --layer {layer} --rows {facts.rows}"]
    words += [f"--graph-mode {facts.graph}"] if facts.graph != "none" else []
    words += [f"--indexer {host.indexer}"] if host.indexer != "fp8" else []
    words += [f"--drafts {host.drafts}"] if host.drafts is not None else []
    return " ".join(words)


def _json(asked: Question, found: Answer, near: Question | None) -> str:
    import json

    from ..runtime.plan.layers.model import reason_data

    data = {
        "layer": asked.layer,
        "rows": asked.facts.rows,
        "arch": asked.host.arch,
        "tp": asked.host.tp,
        "path": str(found.path),
        "planned": str(found.plan[asked.layer].path),
        "starts": found.plan.starts,
        "reasons": [reason_data(r) for r in reasons_of(asked, found)],
        "nearest": None if near is None else command(near.host, near.layer, near.facts),
    }
    return json.dumps(data, indent=2)


def _text(specs: Specs, asked: Question, found: Answer, near: Question | None) -> str:
    """The answer in words: path, reasons by phase, the nearest choice."""
    from ..runtime.plan.layers import Path
    from ..runtime.plan.layers.summary import WORDS

    host, one, reasons = asked.host, found.plan[asked.layer], reasons_of(asked, found)
    end = (
        WORDS[found.path]
        if found.plan.starts
        else "the server does not start (FLYMONO_STRICT=0: vLLM's path)"
    )
    lines = [f"layer {asked.layer} on {host.arch} TP{host.tp}, a step of {asked.facts.rows} rows: {end}"]
    lines += [f"  {one.kind.why}" + _source(one.source, asked.layer)] if one.kind is not None else []
    if found.path is Path.WHOLE:
        return "\n".join([*lines, *_launches(specs, asked, found)])
    lines += _phases(reasons)
    same = near is not None and near == asked
    lines += (
        [f"nearest that is whole: {command(near.host, near.layer, near.facts)}"] if near and not same else []
    )
    return "\n".join(lines)


def _source(source: int | None, layer: int) -> str:
    return f", selected by layer {source}" if source not in (None, layer) else ""


def _phases(reasons: list[Reason]) -> list[str]:
    from ..runtime.plan.unsupported import Phase

    lines = []
    for phase in Phase:
        of = [r for r in reasons if r.code.phase is phase]
        known = phase in (Phase.CONFIG, Phase.STEP)
        lines += (
            [] if of else [f"{phase}: {'nothing against it' if known else 'known once a server has loaded'}"]
        )
        for r in of:
            lines += [f"{phase}: {r.code} ({r.code.klass}): {r.text}", f"    fix: {r.fix}"]
    return lines


def _launches(specs: Specs, asked: Question, found: Answer) -> list[str]:
    """What a whole layer launches, and how wide a step may be."""
    from ..runtime.plan.layer import layer_keys

    model, host = next(iter(specs.model.values())), asked.host
    keys = layer_keys(model, specs.arch[host.arch], host.tp, asked.facts.rows, asked.layer)
    limit = f"  {asked.facts.rows} rows of at most {found.plan.limit} ({found.plan.limit_why})"
    return [f"  launches {', '.join(key.id for key in keys)}", limit]
