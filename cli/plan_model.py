"""`flymono plan model`: the path of each layer of a model on a server, and why.

Exit codes: 0 the server starts, 1 it does not, 2 the question is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from rich.console import Console

from . import serving

if TYPE_CHECKING:
    from ..runtime.plan.layers import ModelPlan


def model(
    arch: serving.Arch = None,
    tp: serving.Tp = None,
    gpu: serving.Gpu = None,
    units: serving.Units = None,
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
    """Print the path of every layer of a model on a server, with its reasons."""
    from ..runtime.plan.layers import model_plan
    from ..specs import load

    specs = load()
    said = serving.Said(
        arch, gpu, units, tp, ep, dp, pp, cp, indexer, kv_dtype, moe_backend, no_fused_seam, drafts,
        tuple(feature or ()), widths,
    )  # fmt: skip
    plan = model_plan(specs, serving.host_of(specs, said), strict=not lenient)
    if json:
        typer.echo(as_json(plan), nl=False)
    else:
        print_model(plan)
    raise typer.Exit(0 if plan.starts else 1)


def as_json(plan: ModelPlan) -> str:
    """The plan as JSON text."""
    import json

    return json.dumps(plan.data(), indent=2) + "\n"


def print_model(plan: ModelPlan, console: Console | None = None) -> None:
    """Print a line a layer, then each group of reasons once, as a server logs them."""
    from ..runtime.plan.layers import startup_lines
    from ..runtime.plan.layers.codes import listed
    from .plan_tables import new_table, put

    out = console or Console()
    head, *groups = startup_lines(plan)
    table = new_table("", "layer|path|what it is|codes")
    for one in plan.layers:
        codes = ", ".join(dict.fromkeys(str(r.code) for r in one.reasons))
        put(table, str(one.layer), str(one.path), one.kind.why if one.kind is not None else "unknown", codes)
    out.print(head.text, highlight=False)
    out.print(table)
    for line in groups:
        out.print(line.text, highlight=False, soft_wrap=True, markup=False)
    for name, rows in (("steps", plan.widths), ("draft steps", plan.draft_widths)):
        if rows is not None:
            out.print(f"{name} of {listed(rows)} rows are in the bundle", highlight=False)
    if not plan.starts:
        out.print("the server does not start; FLYMONO_STRICT=0 runs vLLM's path instead", highlight=False)
    out.print(f"digest {plan.digest[:16]}", highlight=False)
