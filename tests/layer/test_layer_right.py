"""Whole layers on all ranks: every stage of K1, key list and K2 within its budget, ranks with equal bits.

The step's cases hold several requests, padded rows, -1 in top-k lists and real records. What every layer kind
and row count gives is in the table; one row each runs quickly, the others are slow.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch

from flymono.reference.layer_case import make_layer_case
from flymono.runtime.devices.emulator import EmulatorDevice
from flymono.runtime.plan import plan_layer
from flymono.runtime.run.ffn_command import run_ffn
from flymono.runtime.run.group import Group
from flymono.runtime.run.layer import Layer, LayerDone, run_layer
from flymono.runtime.run.layer_command import built, prepare_layer, run_layers
from flymono.runtime.run.layer_options import LayerOptions
from flymono.runtime.run.result import Ran
from flymono.specs import Specs, load

QUICK = (
    ("gfx942", 4, 1, 2),  # an index and kv source layer: compressor and key list between the launches
    ("gfx950", 2, 1, 0),  # the first layer: no compressed cache, nothing to fold
)
SLOW = (
    ("gfx950", 2, 6, 3),  # a plain layer of ratio 2
    ("gfx942", 4, 7, 21),  # a ragged pass of a ratio-1 layer
    ("gfx942", 4, 6, 40),  # a draft layer
    ("gfx950", 2, 6, 40),
    ("gfx950", 2, 17, 20),  # makes its keys in K2, takes tasks from the queue
)
MODES = ({"mfma": "fma", "order": "random"}, {"mfma": "perturb", "trans": "ulp"})


@cache
def specs() -> Specs:
    return load()


def wrong(ran: Ran) -> list[str]:
    """What is not right, by build and stage."""
    return [
        f"{r.build} {v.name}: {v.worst} > {v.budget} at {v.where}"
        for r in ran.results
        for v in r.verdicts
        if not v.ok
    ]


def check(options: LayerOptions, given: Specs | None = None) -> list[Ran]:
    done = []
    for ran in run_layers(options, given or specs()):
        assert not wrong(ran), wrong(ran)
        assert ran.ok
        done.append(ran)
    return done


@pytest.mark.parametrize(("arch", "tp", "rows", "layer"), QUICK)
def test_a_layer_is_right(arch: str, tp: int, rows: int, layer: int) -> None:
    (ran,) = check(LayerOptions(arch=arch, tp=tp, rows=rows, layer=layer))
    assert {r.ranks for r in ran.results} == {tp}
    assert {v.output for v in ran.results[-1].verdicts if v.stage == "ranks"} >= {"out", "res_out"}


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "tp", "rows", "layer"), SLOW)
def test_every_kind_of_layer_is_right(arch: str, tp: int, rows: int, layer: int) -> None:
    check(LayerOptions(arch=arch, tp=tp, rows=rows, layer=layer))


@pytest.mark.slow
@pytest.mark.parametrize("how", MODES)
def test_other_arithmetic_and_order_stay_within_the_budgets(how: dict[str, str]) -> None:
    check(LayerOptions(arch="gfx950", tp=2, rows=2, layer=3, seed=1, **how))  # type: ignore[arg-type]


@pytest.mark.slow
def test_contexts_of_every_length() -> None:
    check(LayerOptions(arch="gfx950", rows=6, layer=21, contexts=(1, 100, 130, 513, 4000, 70_000), padded=0))


@pytest.mark.parametrize(("arch", "layer", "chain", "steps"), [("gfx942", 2, 3, 1), ("gfx950", 20, 2, 2)])
def test_chains_go_on_with_what_kernels_left(arch: str, layer: int, chain: int, steps: int) -> None:
    done = check(LayerOptions(arch=arch, rows=2, layer=layer, chain=chain, steps=steps))
    assert len(done) == chain * steps


@pytest.mark.parametrize(("arch", "draft"), [("gfx950", True)])
def test_an_ffn_launch_is_right(arch: str, draft: bool) -> None:
    for ran in run_ffn(LayerOptions(arch=arch, rows=1, draft=draft), specs()):
        assert ran.ok, wrong(ran)


# ------------------------------------------------------------------ padding


def _run(layer: Layer) -> LayerDone:
    layer = built(layer)
    device = EmulatorDevice(layer.specs.arch[layer.k1.key.arch], {"seed": 0})
    return run_layer(layer, device, Group.of(layer.plan.plans, layer.tp))


@pytest.mark.parametrize(
    ("arch", "number"), [pytest.param("gfx942", 2, marks=pytest.mark.slow), ("gfx950", 3)]
)
def test_padded_rows_do_not_touch_the_others(arch: str, number: int) -> None:
    """Two live rows of three, and the same two alone: equal bits, though builds, passes and tasks differ."""
    whole = prepare_layer(LayerOptions(arch=arch, rows=3, layer=number, padded=1), specs())
    key = whole.k1.key
    plan = plan_layer(specs(), arch, key.tp, 2, number, key.model)
    alone = replace(whole, plan=plan, case=replace(whole.case, k1=whole.case.k1.select(torch.arange(2))))
    wide, narrow = _run(whole), _run(alone)
    assert wide.ok and narrow.ok
    for name in ("out", "res_out", "post_out", "comb_out", "pre_out"):
        assert torch.equal(getattr(wide.ffn, name)[:2], getattr(narrow.ffn, name)), name
    swa = [d.steps[0].done[0].bound.tensor("swa") for d in (wide, narrow)]
    assert torch.equal(*swa)


# ------------------------------------------------------------------ limits follow the specs


@pytest.mark.parametrize(
    ("edit", "draft"),
    [
        pytest.param({"gfx942.machine.workgroups": 304}, False, id="304 units", marks=pytest.mark.slow),
        pytest.param({"deepseek_v41_flash.moe.intermediate": 1536}, True, id="a narrower shared expert"),
    ],
)
def test_an_edited_spec_raises_the_row_limit(edit: dict[str, int], draft: bool) -> None:
    """More passes of shared units fit (MI300X has 304 units): a launch of the rows that now fit is right."""
    edited = load(None, edit)
    before, limit = (plan_layer(s, "gfx942", 4, 1, 3).plans[-1].row_limit for s in (specs(), edited))
    assert limit.rows > before.rows
    for ran in run_ffn(LayerOptions(arch="gfx942", rows=limit.rows, draft=draft), edited):
        assert ran.ok, wrong(ran)


def test_cases_have_what_the_table_says() -> None:
    model = next(iter(specs().model.values()))
    case = make_layer_case(model, rows=6, tp=4, layer=3).k1
    assert int((case.slot < 0).sum()) >= 1 and len(case.t2r[case.live].unique()) > 1
