"""The drawing of a layer: every task once, every argument in a group, and text that fits its terminal."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from flymono.cli.plan_layer import print_layer
from flymono.runtime.plan import BuildKey, KernelPlan, plan_layer, plan_of
from flymono.runtime.plan.layer import handoffs
from flymono.runtime.plan.view import GROUPS, moved, part_size, passed, place_text, placed, pushed, terms
from flymono.specs import Specs

MACHINES = [("gfx942", 4), ("gfx950", 2)]
LAYERS = [2, 3, 20, 40]
HERE, PAST = "123456789", "¹²³⁴⁵⁶⁷⁸⁹"
WIDTHS = {"gfx942": (1, 6, 7, 42), "gfx950": (1, 6, 17, 48)}


@pytest.fixture(scope="module", params=MACHINES, ids=lambda m: m[0])
def plans(specs: Specs, request: pytest.FixtureRequest) -> list[KernelPlan]:
    """Launches of the layers above and the FFN launches of an arch, at narrow and wide steps."""
    plans, (arch, tp) = [], request.param
    for rows in WIDTHS[arch]:
        plans += [p for layer in LAYERS for p in plan_layer(specs, arch, tp, rows, layer).plans]
        plans += [plan_of(specs, BuildKey("ffn", arch, tp, rows, draft=draft)) for draft in (False, True)]
    return plans


def drawn(
    specs: Specs, arch: str, tp: int, rows: int, layer: int, width: int, encoding: str = "utf-8"
) -> str:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding, newline="")
    print_layer(plan_layer(specs, arch, tp, rows, layer), Console(file=out, width=width))
    out.flush()
    return raw.getvalue().decode(encoding)


@pytest.mark.parametrize(("arch", "tp"), MACHINES)
@pytest.mark.parametrize("layer", LAYERS)
def test_the_drawing_is_the_golden_one(
    arch: str, tp: int, layer: int, specs: Specs, golden: Callable[[str, str], None]
) -> None:
    golden(f"plan/layer{layer}-{arch}-tp{tp}-s6.txt", drawn(specs, arch, tp, 6, layer, 80))


def test_a_wide_step_in_a_wide_terminal(specs: Specs, golden: Callable[[str, str], None]) -> None:
    """Token tiles, pick tiles and both queues; places and producers beside the picture."""
    golden("plan/layer20-gfx942-tp4-s42-wide.txt", drawn(specs, "gfx942", 4, 42, 20, 120))


@pytest.mark.parametrize("width", [40, 80, 100, 119, 120, 200])
def test_no_line_is_wider_than_the_terminal(specs: Specs, width: int) -> None:
    text = drawn(specs, "gfx942", 4, 42, 20, width)
    assert max(map(len, text.splitlines())) <= max(width, 76), "hand-offs need 76 columns"
    assert ("waits for" in text) is (width >= 120)


def test_columns_sum_to_the_tasks(plans: list[KernelPlan]) -> None:
    for plan in plans:
        for row, stage in zip(placed(plan), (s for s in plan.stages if s.tasks), strict=True):
            assert (row.stage, row.tasks) == (stage.name, stage.tasks)
            assert sum(n for n, _ in row.columns(1)) + row.queued == stage.tasks
            assert row.queued == (max(0, stage.tasks - stage.queue.static) if stage.queue else 0)
            busiest = [max(row.held[at : at + 4]) for at in range(0, plan.grid, 4)]
            assert [n for n, _ in row.columns(4)] == busiest


def test_what_is_past_the_wrap(plans: list[KernelPlan]) -> None:
    """A workgroup is past the wrap if counting up from task 0 reaches it only after the end of the grid."""
    seen = 0
    for plan in plans:
        for row in placed(plan):
            stage = plan.stage(row.stage)
            reached = {
                stage.workgroup_of(t): stage.first + t % stage.span * stage.stride for t in range(row.tasks)
            }
            past = {w for w, at in reached.items() if at >= plan.grid and row.held[w]}
            assert {w for w, (n, beyond) in enumerate(row.columns(1)) if n and beyond} == past
            assert row.wraps is bool(past)
            seen += row.wraps
    assert seen


def test_the_picture_is_the_plan(specs: Specs) -> None:
    """Digits of a drawing with a column a workgroup, read back."""
    plan = plan_layer(specs, "gfx942", 4, 7, 3).plans[-1]
    lines = drawn(specs, "gfx942", 4, 7, 3, 15 + 256 + 41).splitlines()
    lines = lines[lines.index(plan.key.id) :]
    for stage in (s for s in plan.stages if s.tasks):
        at = next(i for i, line in enumerate(lines) if line.startswith(f"{stage.name} "))
        bar = lines[at][15:271]
        counts = [HERE.find(c) + 1 if c in HERE else PAST.find(c) + 1 for c in bar]
        assert counts == list(next(r for r in placed(plan) if r.stage == stage.name).held)
        queued = lines[at + 1].split()[0]
        total = sum(counts) + (int(queued) if queued.startswith("+") else 0)
        assert total == stage.tasks == int(lines[at][9:14])
        lines = lines[at:]


def test_the_documented_picture_is_drawn(specs: Specs, repo: Path) -> None:
    """docs/plan.md shows lines of a drawing; its numbers are those of the example it names."""
    picture = (repo / "docs" / "plan.md").read_text().split("```")[3].strip("\n").splitlines()
    lines = drawn(specs, "gfx942", 4, 42, 3, 80).splitlines()
    assert len(picture) > 6 and [x for x in picture if x != "..." and x not in lines] == []


def test_columns_are_equal_parts() -> None:
    assert [part_size(256, n) for n in (256, 255, 128, 94, 64, 63, 25)] == [1, 2, 2, 4, 4, 8, 16]
    assert [part_size(304, n) for n in (304, 76, 64)] == [1, 4, 8]
    assert (part_size(42, 64), part_size(251, 64)) == (1, 4), "a prime grid has no equal parts"


def test_places_in_words(specs: Specs) -> None:
    plan = plan_layer(specs, "gfx942", 4, 42, 20).plans[-1]
    words = {s.name: place_text(s) for s in plan.stages}
    assert words["wo_a"] == "248..255 0..55" and words["wo_b"] == "all, from 56" and words["down"] == "all"
    assert words["shared_q"] == "21..255 1..15 by 2" and words["slice"] == "0..159" and words["epoch"] == "0"
    for stage in (s for s in plan.stages if s.name in ("shared_q", "wo_a", "route")):
        used = {stage.workgroup_of(t) for t in range(min(stage.tasks, stage.span))}
        ends = [int(n) for part in words[stage.name].split(" by ")[0].split() for n in part.split("..")]
        assert (ends[0], ends[-1]) == (stage.first, stage.workgroup_of(stage.tasks - 1))
        assert {ends[1], ends[2]} <= used | {plan.grid - 1}


def test_letters_where_superscripts_cannot_be_shown(specs: Specs) -> None:
    text = drawn(specs, "gfx942", 4, 6, 3, 80, "ascii")
    assert "letters (a is 1)" in " ".join(text.split())
    (line,) = [x for x in text.splitlines() if x.startswith("wo_b ") and "->" not in x]
    row = next(r for r in placed(plan_layer(specs, "gfx942", 4, 6, 3).plans[-1]) if r.stage == "wo_b")
    assert line[15:] == "".join(chr(ord("a") + n - 1) if past else str(n) for n, past in row.columns(4))


def test_every_argument_is_in_one_group(plans: list[KernelPlan]) -> None:
    names = " ".join(GROUPS.values()).split()
    assert len(names) == len(set(names))
    for plan in plans:
        assert {t.name for t in plan.cost.traffic} <= set(names)
        groups, sheet = moved(plan), plan.cost.traffic
        assert sum(g.requested for g in groups) == sum(t.requested_read + t.requested_write for t in sheet)
        assert sum(g.unique for g in groups) == plan.cost.bound.hbm_bytes
        assert [ns for _, ns, _ in terms(plan)].count(plan.cost.bound.ns) >= 1


def test_notes_say_what_is_read_again(specs: Specs) -> None:
    k2 = plan_layer(specs, "gfx942", 4, 42, 3).plans[-1]
    notes = {g.group: dict(g.notes) for g in moved(k2)}
    assert notes["shared expert"] == {"sgu sgu_s": "once a token tile of 6: 7 times"}
    assert "7 times" in drawn(specs, "gfx942", 4, 42, 3, 80)
    assert pushed(k2) == 4 * 42 * 5120 * 2 * 2 * 2, "both regions, a pair of 8 bytes for two bf16, every rank"


def test_what_launches_hand_on(specs: Specs) -> None:
    found = passed(plan_layer(specs, "gfx942", 4, 6, 20))
    names = {(p.writer, p.reader, p.name): (p.becomes, p.bytes) for p in found}
    assert names["k1", "k2", "res_out"] == ("res_in", 6 * 4 * 5120 * 2)
    assert names["keylist", "k2", "kt"] == ("kt", 6 * 640 * 4)
    assert names["k1", "k2", "q"][1] == 6 * 16 * 512 * 2 and ("k1", "k2", "swa") in names
    assert not [n for n in names if n[2] in ("scratch", "epoch")]


def test_a_hand_off_carries_what_its_stage_reads(specs: Specs, plans: list[KernelPlan]) -> None:
    """A flag of xq stands for two copies of a row: one for the routed experts, one for the shared."""
    k2 = plan_layer(specs, "gfx942", 4, 6, 3).plans[-1]
    carried = {(h.producer, h.stage): h.region for h in handoffs(k2)}
    assert carried["xq", "shared"] == "x8 x8s" and carried["xq", "ug"] == "x8r x8rs"
    assert carried["norm", "xq"] == carried["norm", "router"] == "normed"
    for plan in plans:
        data = {r.name for r in plan.scratch.regions if r.kind == "data"}
        sent = {n for s in plan.stages if s.tasks for n in s.publishes if n in data}
        assert sent <= set(" ".join(h.region for h in handoffs(plan)).split()), plan.key.id
