"""`flymono plan layer --html`: one file, offline, with everything that the plan has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from pages import Page
from typer.testing import CliRunner

from flymono.cli.plan import register
from flymono.runtime.plan import LayerPlan, plan_layer, to_json
from flymono.runtime.plan.layer import handoffs
from flymono.runtime.report.layer import layer_html
from flymono.runtime.report.layer_figures import handoff_figure, occupancy_figure
from flymono.runtime.report.layer_memory import lds_figure, scratch_figure
from flymono.specs import Specs

CASES = [("gfx942", 4, 6, 3), ("gfx942", 4, 42, 20), ("gfx950", 2, 6, 2), ("gfx950", 2, 17, 40)]


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
def test_a_page_has_all_of_the_plan_and_opens_offline(case: tuple[str, int, int, int], specs: Specs) -> None:
    plan = plan_layer(specs, *case)
    page = Page(layer_html(plan))
    page.check_offline()
    assert [n for n in wanted(plan) if n not in page.cells] == []
    assert all(p.key.id in page.ids for p in plan.plans)
    assert plan.kind.why.split(", ")[0].capitalize() in page.text
    assert f"of at most {plan.plans[-1].row_limit.rows}" in page.text


def wanted(plan: LayerPlan) -> list[str]:
    """Names and numbers that must stand in a cell of a table."""
    cells = []
    for p in plan.plans:
        cells += [s.name for s in p.stages] + [f"{s.tasks:,}" for s in p.stages]
        cells += [s.name for s in p.sites] + [f"{h.bytes:,}" for h in handoffs(p)]
        cells += [m.name for s in p.lds.structs for m in s.members]
        cells += [t.name for t in p.cost.traffic if t.requested_read or t.requested_write]
        cells += [t.note for t in p.cost.traffic if t.note and t.requested_read]
        cells += [f"{t.requested_read:,}" for t in p.cost.traffic]
    peer = plan.plans[-1].peer.regions.regions  # type: ignore[attr-defined]
    for r in (*plan.plans[-1].scratch.regions, *peer):
        cells += [r.name, f"{r.offset:,}", f"{r.bytes:,}", r.index, r.writer, r.reader, " ".join(r.lifetime)]
    return cells


def test_the_heat_map_is_the_task_table(specs: Specs) -> None:
    plan = plan_layer(specs, "gfx942", 4, 42, 20).plans[-1]
    grid, queue = occupancy_figure(plan).data
    for stage, held, told, extra in zip(grid.y, grid.z, grid.text, queue.z, strict=True):
        counts = [n or 0 for n in held]
        assert sum(counts) + (extra[0] or 0) == plan.stage(stage).tasks
        for workgroup, (n, text) in enumerate(zip(counts, told, strict=True)):
            tasks = plan.stage(stage).tasks_of(workgroup)[:n]
            assert text == "" if not n else text.split(" of ")[0].endswith(", ".join(map(str, tasks)))
    assert {s: z[0] for s, z in zip(queue.y, queue.z, strict=True) if z[0]} == {"ug": 2012, "down": 64}


def test_bands_are_the_hand_offs(specs: Specs) -> None:
    found = handoffs(plan_layer(specs, "gfx942", 4, 6, 3).plans[-1])
    (sankey,) = handoff_figure(found).data
    names = sankey.node.label
    ends = [(names[a], names[b]) for a, b in zip(sankey.link.source, sankey.link.target, strict=True)]
    assert ends == [(h.producer, h.stage) for h in found]
    told = zip(found, sankey.link.label, strict=True)
    assert all(f"{h.bytes:,} bytes" in text and text.startswith(h.region) for h, text in told)


def test_maps_of_memory_lie_where_the_plan_says(specs: Specs) -> None:
    plan = plan_layer(specs, "gfx950", 2, 6, 3).plans[-1]
    bars = [
        b
        for trace in scratch_figure(plan.scratch).data
        for b in zip(trace.text, trace.base, trace.x, strict=True)
    ]
    assert sorted(bars) == sorted((r.name, r.offset, r.bytes) for r in plan.scratch.regions)
    bars = [
        b for trace in lds_figure(plan.lds).data for b in zip(trace.text, trace.base, trace.x, strict=True)
    ]
    assert sorted(bars) == sorted((m.name, m.offset, m.bytes) for s in plan.lds.structs for m in s.members)


def test_the_same_plan_gives_the_same_page(specs: Specs) -> None:
    plan = plan_layer(specs, "gfx942", 4, 6, 20)
    assert layer_html(plan) == layer_html(plan)


def test_the_command_writes_it_and_prints_all_the_same(specs: Specs, tmp_path: Path) -> None:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback()(lambda: None)
    register(app)
    call = ["plan", "layer", "--arch", "gfx942", "--rows", "6"]
    file = tmp_path / "new" / "layer.html"
    drawn = CliRunner().invoke(app, call)
    both = CliRunner().invoke(app, [*call, "--html", str(file)])
    assert both.exit_code == 0 and both.stdout == drawn.stdout
    plan = plan_layer(specs, "gfx942", 4, 6, 3)
    assert file.read_text() == layer_html(plan)
    as_json = CliRunner().invoke(app, [*call, "--json", "--html", str(file)])
    assert as_json.stdout == to_json(plan) and json.loads(as_json.stdout)["kind"]["layer"] == 3
    refused = tmp_path / "refused.html"
    call[-1] = "43"
    assert CliRunner().invoke(app, [*call, "--html", str(refused)]).exit_code != 0 and not refused.exists()
