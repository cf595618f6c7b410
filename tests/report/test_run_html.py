"""The report of a run: one launch or several, one rank or several, from `RunResult`s alone."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

from pages import Page

from flymono.reference.verdict import Verdict
from flymono.runtime.devices.base import Counters
from flymono.runtime.plan import BuildKey, KernelPlan, plan_of
from flymono.runtime.run.html import argument_bytes, html, rank_of, stage_work, write_html
from flymono.runtime.run.html_figures import histograms, share, stage_errors, stage_graph
from flymono.runtime.run.result import ArgumentTraffic, RunResult, StageSpan, spans_of
from flymono.specs import Specs

K1, K2 = "dsv41_k1-gfx942-tp4-s6-r2", "dsv41_k2-gfx942-tp4-s6-r2"


def verdict(
    stage: str, output: str, worst: float, budget: float, where: str, shape: tuple[int, ...]
) -> Verdict:
    counts = (("below", 10), ("above", 0 if worst <= budget else 1))
    return Verdict(stage, output, shape, worst, budget, worst <= budget, "absolute", where, counts)


def result(
    specs: Specs, build: str, ranks: int, verdicts: tuple[Verdict, ...], asked: float = 1.0
) -> RunResult:
    """A run of the plan's launch as a device might have counted it: rank r executes r more a stage."""
    plan: KernelPlan = plan_of(specs, BuildKey.parse(build))
    stages = [s for s in plan.stages if s.tasks]
    own = [{s.name: 10 * s.tasks + r for s in stages} for r in range(ranks)]
    by_stage = {s.name: {"v_mfma": sum(o[s.name] for o in own) - 5, "s_waitcnt": 5} for s in stages}
    line = [(s.workgroup_of(0), s.name, 100 * i, 100 * i + 90) for i, s in enumerate(stages)]
    counters = Counters(sum(sum(o.values()) for o in own), {}, by_stage, {}, line)
    traffic = tuple(
        ArgumentTraffic(t.name, t.requested_read + t.requested_write, int(t.requested_read * asked),
                        t.unique_read, t.requested_write, t.unique_read)
        for t in plan.cost.traffic
    )  # fmt: skip
    waits = tuple((s.producer, s.stage, s.region) for s in plan.sites)
    return RunResult(
        code="",
        build=build, device="a device", seed=7, source="weights <of> a seed", verdicts=verdicts,
        resources={"vgprs": 200}, counters=counters, traffic=traffic, spans=spans_of(counters), waits=waits,
        digests={}, ranks=ranks, rank_stages=tuple(own) if ranks > 1 else (),
    )  # fmt: skip


RIGHT = verdict("split", "part", 0.25, 1.0, "[2, 3, 1] got 1, reference 1.25", (4, 6, 10))
WRONG = verdict("wo_b", "attn", 1.5, 1.0, "[1, 0, 0] got 2.5, reference 1", (4, 6, 10))
APART = verdict("ranks", "out", 3, 0.0, "rank 3 differs from rank 0", (4, 6, 10))


def test_one_launch(specs: Specs, tmp_path: Path) -> None:
    one = result(specs, K1, 1, (verdict("norm", "x8", 0.5, 1.0, "[2, 3] got 1, reference 2", (6, 5120)),))
    write_html(one, tmp_path / "run.html")
    text = (tmp_path / "run.html").read_text()
    page = Page(text)
    page.check_offline()
    assert text == html(one) == html([one])
    assert f"{K1} right" in page.text and "weights <of> a seed" in page.text and "ranks" not in page.text
    assert set(one.counters.by_stage) <= set(page.cells) and {"6 x 5120", "0.50"} <= set(page.cells)


def test_launches_of_a_layer_in_one_file(specs: Specs) -> None:
    """A section each, ranks named, and a layer with one wrong output is wrong."""
    both = [result(specs, K1, 4, (RIGHT,)), result(specs, K2, 4, (RIGHT, WRONG, APART))]
    page = Page(html(both))
    page.check_offline()
    assert "2 launches wrong" in page.text and f"{K1} right" in page.text and f"{K2} wrong" in page.text
    assert "1 of 1" in page.cells and "1 of 3" in page.cells and "4 ranks side by side" in page.text
    for one in both:
        assert set(one.counters.by_stage) <= set(page.cells)
        assert {t.name for t in one.traffic if t.planned} <= set(page.cells)
        assert {f"{n:,}" for own in one.rank_stages for n in own.values()} <= set(page.cells)
    assert "2 launches right" in Page(html([both[0], result(specs, K2, 4, (RIGHT,))])).text


def test_a_chain_may_hold_a_build_twice(specs: Specs) -> None:
    one = result(specs, K2, 4, (RIGHT,))
    page = Page(html([one, one]))
    page.check_offline()
    assert {"launch-1", "launch-2"} <= set(page.ids)


def test_the_rank_of_the_worst_element(specs: Specs) -> None:
    k2 = result(specs, K2, 4, ())
    assert [rank_of(v, k2) for v in (RIGHT, WRONG, APART)] == ["2", "1", "3"]
    own = verdict("wq_b", "q of rank 2", 0.5, 1.0, "[4, 3] got 1, reference 2", (6, 10))
    assert rank_of(own, result(specs, K1, 4, ())) == "2"
    rows = verdict("norm", "x8", 0.5, 1.0, "[3, 3] got 1, reference 2", (4, 10))
    assert rank_of(rows, result(specs, K1, 4, ())) == "", "four rows are not four ranks"
    assert rank_of(RIGHT, result(specs, K2, 1, ())) == ""
    assert rank_of(replace(RIGHT, worst=0.0), k2) == "", "nothing is off"


def test_instructions_of_every_rank(specs: Specs) -> None:
    k2 = result(specs, K2, 4, ())
    for work in stage_work(k2):
        assert len(work.ranks) == 4 and sum(work.ranks) == work.executed
        assert work.ranks[3] - work.ranks[0] == 3 and dict(work.most)["s_waitcnt"] == 5
    assert [w.stage for w in stage_work(k2)] == list(k2.counters.by_stage)


def test_bytes_against_the_plan(specs: Specs) -> None:
    """Large arguments above the allowance are marked, small ones and what lies within it are not."""
    as_planned = argument_bytes(result(specs, K2, 4, ()))
    assert {m.ratio for m in as_planned} == {1.0} and not [m for m in as_planned if m.over]
    over = {m.counted.name for m in argument_bytes(result(specs, K2, 4, (), asked=1.1)) if m.over}
    assert {"w13", "w2", "woa", "wob"} <= over and not over & {"pos", "klen", "sink", "out", "scratch"}
    assert not [m for m in argument_bytes(result(specs, K2, 4, (), asked=1.01)) if m.over]
    cells = Page(html(result(specs, K2, 4, (), asked=1.1))).cells
    row = cells[cells.index("w13") :][:7]
    assert row[4] == "1.100" and row[1] == row[5] == row[6] == "106,168,320"


def test_stage_errors_are_shares_of_the_budget(specs: Specs) -> None:
    k2 = result(specs, K2, 4, (RIGHT, WRONG, APART))
    assert [share(v) for v in k2.verdicts] == [0.25, 1.5, math.inf]
    assert share(verdict("x", "y", 0, 0.0, "", (1,))) == 0
    right, wrong = stage_errors(k2).data
    assert (list(right.x), list(right.y)) == ([0.25], ["split"])
    assert (list(wrong.x), list(wrong.y)) == ([1.5, 3.0], ["wo_b", "ranks"])


def test_arrows_of_the_wait_graph_lead_to_when_the_producer_is_done(specs: Specs) -> None:
    """A consumer that starts early waits: its arrow does not point back in time, nor past its own end."""
    spans = (StageSpan("slice", 0, 500, 1), StageSpan("norm", 100, 600, 1), StageSpan("gate", 50, 400, 1))
    waits = (("slice", "norm", "lin"), ("slice", "gate", "pmix"), ("slice", "nothing", "x"))
    arrows = stage_graph(replace(result(specs, K1, 1, ()), spans=spans, waits=waits)).layout.annotations
    assert [(a.ay, a.y, a.ax, a.x, a.text) for a in arrows] == [
        ("slice", "norm", 500, 500, "lin"),
        ("slice", "gate", 500, 400, "pmix"),
    ]


def test_what_runs_ahead_of_the_first_stage_has_a_name(specs: Specs) -> None:
    one = result(specs, K1, 1, ())
    counters = replace(one.counters, by_stage={"": {"s_mov_b32": 3}, **one.counters.by_stage})
    assert stage_work(replace(one, counters=counters))[0].stage == "entry"


def test_histograms_of_ranks_are_added(specs: Specs) -> None:
    """Outputs with all elements in one bin have nothing to show, unless they are wrong."""
    k2 = result(specs, K2, 4, (WRONG, WRONG, RIGHT))
    (bar,) = histograms(k2).data
    assert list(bar.y) == [20, 2]
    assert histograms(result(specs, K1, 4, (RIGHT,))) is None
    all_off = replace(APART, histogram=(("equal", 0), ("different", 3)))
    (bar,) = histograms(result(specs, K2, 4, (RIGHT, all_off))).data
    assert list(bar.y) == [0, 3]


def test_json_keeps_the_counts_of_every_rank(specs: Specs) -> None:
    data = json.loads(json.dumps(result(specs, K2, 4, (RIGHT,)).to_json()))
    assert len(data["rank_stages"]) == 4 and data["ranks"] == 4
