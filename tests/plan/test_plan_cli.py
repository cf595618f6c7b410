"""`flymono plan k1`: tables for people, stable JSON for programs, refusals with exit code 2."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from flymono.cli.plan import register
from flymono.runtime.plan import BadBuildId, BuildKey, Unsupported, plan_k1, to_data, to_json
from flymono.specs import Specs
from flymono.specs.findings import UserError

BASE = ["plan", "k1", "--arch", "gfx942", "--tp", "4", "--rows", "7"]


def run(*args: str) -> tuple[int, str]:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback()(lambda: None)
    register(app)
    result = CliRunner().invoke(app, list(args), env={"COLUMNS": "150"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def test_tables_show_every_part(specs: Specs) -> None:
    code, text = run(*BASE)
    assert code == 0
    plan = plan_k1(specs, BuildKey("k1", "gfx942", 4, 7))
    words = [
        plan.key.id,
        "0..5, 6..6",
        "LDS: 42,752 of 65,536",
        "Arguments: 42, 336 bytes",
        "k1: 2e + 1",
        "bound",
    ]
    words += (
        [s.name for s in plan.stages] + [s.name for s in plan.sites] + [r.name for r in plan.scratch.regions]
    )
    words += [a.name for a in plan.abi.arguments] + [m.name for s in plan.lds.structs for m in s.members]
    words += [plan.cost.bound.by, "[positions, cos | sin]"]
    assert [w for w in words if w not in text] == []


def test_no_name_is_cut_in_a_pipe() -> None:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback()(lambda: None)
    register(app)
    assert "…" not in CliRunner().invoke(app, BASE, env={"COLUMNS": "80"}).stdout


def test_json_is_the_whole_plan_and_stable(specs: Specs) -> None:
    first, again = run(*BASE, "--json"), run(*BASE, "--json")
    assert first == again and first[0] == 0
    data = json.loads(first[1])
    plan = plan_k1(specs, BuildKey("k1", "gfx942", 4, 7))
    assert first[1] == to_json(plan)
    assert data.pop("id") == plan.key.id
    assert data == to_data(plan) and list(data) == list(vars(plan))
    assert data["passes"]["tiles"] == [[0, 6], [6, 1]]


def test_a_plan_holds_ints_and_strings_alone(specs: Specs) -> None:
    def leaves(value: object) -> set[type]:
        if isinstance(value, dict):
            return set().union(*map(leaves, value.values()))
        if isinstance(value, list):
            return set().union(set(), *map(leaves, value))
        return {type(value)}

    kinds = leaves(json.loads(to_json(plan_k1(specs, BuildKey("k1", "gfx950", 2, 6)))))
    assert kinds <= {int, str, bool, type(None)}
    with pytest.raises(TypeError, match="ints and strings"):
        to_data((1, 2.5))


def test_options_reach_the_key() -> None:
    code, text = run(*BASE[:-1], "6", "--ratio", "0", "--no-fold", "--window", "192", "--timeline", "--json")
    assert code == 0 and json.loads(text)["id"] == "dsv41_k1-gfx942-tp4-s6-r0-nofold-w192-timeline"
    code, text = run(*BASE, "--ratio", "1", "--index", "--json")
    assert json.loads(text)["id"] == "dsv41_k1-gfx942-tp4-s7-r1-index"


def test_tp_defaults_to_the_first_of_the_arch() -> None:
    code, text = run("plan", "k1", "--arch", "gfx950", "--rows", "6", "--json")
    assert code == 0 and json.loads(text)["key"]["tp"] == 2


def test_refusals() -> None:
    args = ["plan", "k1", "--arch", "gfx942", "--tp", "2", "--rows", "43"]
    with pytest.raises(Unsupported) as refused:
        run(*args)
    assert refused.value.exit_code == 2
    code, text = run(*args, "--json")
    data = json.loads(text)
    assert code == 2 and data["nearest"] == "dsv41_k1-gfx942-tp4-s42-r2"
    assert [r["code"] for r in data["reasons"]] == ["tp-not-offered", "rows-out-of-range"]
    with pytest.raises(Unsupported, match="arch-unknown"):
        run("plan", "k1", "--arch", "gfx90a", "--rows", "6")


def test_a_build_by_its_id() -> None:
    assert run("plan", "show", "dsv41_k1-gfx942-tp4-s7-r2", "--json") == run(*BASE, "--json")
    with pytest.raises(BadBuildId):
        run("plan", "show", "dsv41_k1-gfx942-tp4-s7")


@pytest.mark.parametrize(
    ("kind", "options", "build"),
    [
        ("k2", ["--ratio", "1", "--index"], "dsv41_k2-gfx950-tp2-s6-r1-index"),
        ("k2", ["--ratio", "0", "--draft", "--timeline"], "dsv41_k2-gfx950-tp2-s6-r0-draft-timeline"),
        ("ffn", ["--tp", "4", "--draft"], "dsv41_ffn-gfx950-tp4-s6-draft"),
        ("keylist", ["--ratio", "1"], "dsv41_keylist-gfx950-tp2-s6-r1"),
    ],
)
def test_every_kind_by_options_and_by_id(kind: str, options: list[str], build: str) -> None:
    code, text = run("plan", kind, "--arch", "gfx950", "--rows", "6", *options, "--json")
    assert code == 0 and json.loads(text)["id"] == build
    assert run("plan", "show", build, "--json") == (code, text)
    code, table = run("plan", "show", build)
    assert code == 0 and build in table and "Arguments:" in table


def test_k2_tables_show_both_halves() -> None:
    code, text = run("plan", "k2", "--arch", "gfx942", "--rows", "7")
    assert code == 0
    words = [
        "Attention half",
        "FFN half",
        "Peer buffer: ",
        "k_blocks",
        "wo_b_first",
        "ug_tasks",
    ]
    words += ["Arguments: 56, 448 bytes"]
    assert [w for w in words if w not in text] == []


def test_a_layer_is_drawn() -> None:
    """A line a stage with its tasks, a line a hand-off with its bytes, one launch after the other."""
    code, text = run("plan", "layer", "--arch", "gfx942", "--rows", "6", "--layer", "20")
    lines = text.splitlines()
    assert code == 0 and "launches       dsv41_k1-gfx942-tp4-s6-r1-index, dsv41_keylist-gfx942-" in text
    (slice_line, _) = [line for line in lines if line.startswith("slice      160")]
    assert slice_line == f"slice      160 {'1' * 40}{'·' * 24}  0..159"
    (handed,) = [line for line in lines if line.startswith("wo_b     -> slice")]
    assert handed.split()[3:] == ["attn", "491,520", "peer", "pairs", "of", "4", "ranks"]
    assert any("36 distinct experts" in line for line in lines) and lines[-1].startswith("total ")
    code, text = run("plan", "layer", "--arch", "gfx942", "--rows", "43", "--json")
    assert code == 2 and json.loads(text)["reasons"][0]["code"] == "rows-out-of-range"


def test_memory_of_a_rank() -> None:
    code, text = run("plan", "memory", "--arch", "gfx942", "--stock-drafts")
    assert code == 0 and "70.72" in text and "98.88 GiB" in text and "288" in text
    code, text = run("plan", "memory", "--arch", "gfx950", "--rows", "6,48", "--json")
    data = json.loads(text)
    assert code == 0 and data["copied"] == 0 and [s[0] for s in data["scratch"]] == [6, 48]
    assert "--loaded-gib" in run("plan", "memory", "--arch", "gfx950")[1]
    with pytest.raises(Unsupported, match="rows-out-of-range"):
        run("plan", "memory", "--arch", "gfx942", "--rows", "6,43")
    with pytest.raises(UserError, match="no list of rows"):
        run("plan", "memory", "--arch", "gfx942", "--rows", "six")


@pytest.mark.parametrize(("line", "words"), [
    ("layer --arch gfx942 --rows 99 --tp 3 --layer 77", ("layers 0 to 39", "99 rows", "TP3")),
    ("layer --arch nothing --rows 1 --layer 77", ("layers 0 to 39", "no arch spec 'nothing'")),
    ("memory --arch nothing --rows x,3", ("no arch spec 'nothing'", "'x,3' is no list")),
    ("memory --arch gfx942 --tp 9 --rows 99,x --loaded-gib nan", ("TP9", "99 rows", "'99,x'", "nan is no")),
    ("memory --arch gfx942 --loaded-gib inf", ("inf is no size",)),
    ("memory --arch gfx942 --loaded-gib=-5", ("-5.0 is no size",)),
])  # fmt: skip
def test_all_that_is_wrong_is_said_at_once(line: str, words: tuple[str, ...]) -> None:
    app = typer.Typer()
    register(app)
    result = CliRunner().invoke(app, ["plan", *line.split()])
    assert isinstance(result.exception, UserError)
    text = result.exception.render()
    assert [w for w in words if w not in text] == [], text
