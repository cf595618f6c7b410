"""`flymono why` and `flymono plan model`: the six cases of the accept line, exit codes, bad input."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable

import pytest

from flymono.cli.main import main

CASES = {
    "TP2 on gfx942": "--arch gfx942 --tp 2 --layer 3 --rows 6",
    "43 rows": "--arch gfx942 --tp 4 --layer 3 --rows 43",
    "PIECEWISE": "--arch gfx942 --tp 4 --layer 3 --rows 6 --graph-mode piecewise",
    "a prefill row": "--arch gfx942 --tp 4 --layer 3 --rows 6 --prefill 1",
    "FP8 indexer on gfx950": "--arch gfx950 --tp 2 --layer 2 --rows 6 --indexer fp8",
    "expert parallel": "--arch gfx950 --tp 4 --layer 3 --rows 6 --ep",
    "all of it": "--arch gfx950 --tp 3 --layer 2 --rows 49 --graph-mode piecewise --prefill 2 --ep --dp 2 "
    "--pp 2 --kv-dtype mxfp8 --compute-units 32 --feature lora --no-fused-seam --moe-backend TRITON",
    "whole": "--gpu MI325X --layer 14 --rows 6",
    "a draft layer": "--gpu mi355x --tp 2 --layer 41 --rows 5 --widths any",
}
EXPECTED = {
    "TP2 on gfx942": {"tp-not-offered"},
    "43 rows": {"rows-out-of-range"},
    "PIECEWISE": {"piecewise"},
    "a prefill row": {"prefills"},
    "FP8 indexer on gfx950": {"indexer"},
    "expert parallel": {"expert-parallel"},
    "all of it": {
        "tp-not-offered", "model-shape", "rows-out-of-range", "piecewise", "prefills", "indexer",
        "expert-parallel", "data-parallel", "pipeline-parallel", "kv-dtype-unknown", "compute-units", "lora",
        "fused-seam", "moe-backend",
    },
    "whole": set(),
    "a draft layer": set(),
}  # fmt: skip

Run = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def flymono(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(line: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(line))
        said = capsys.readouterr()
        return ended.value.code if isinstance(ended.value.code, int) else 0, said.out, said.err

    return call


def test_the_answers_are_the_golden_ones(flymono: Run, golden: Callable[[str, str], None]) -> None:
    text = ""
    for name, options in CASES.items():
        code, out, err = flymono(f"why {options}")
        assert not err, name
        text += f"# {name}\n$ flymono why {options}\n{out}exit code {code}\n\n"
    golden("plan/why.txt", text)


@pytest.mark.parametrize("name", CASES)
def test_every_reason_with_the_nearest_choice(name: str, flymono: Run) -> None:
    """The nearest choice is a command line, and asking it says: whole."""
    code, out, _ = flymono(f"why {CASES[name]} --json")
    answer = json.loads(out)
    assert {r["code"] for r in answer["reasons"]} == EXPECTED[name]
    assert code == (1 if EXPECTED[name] else 0)
    assert all(r["fix"] and r["text"] and r["phase"] and r["class"] for r in answer["reasons"])
    again, out, _ = flymono(answer["nearest"].removeprefix("flymono ") + " --widths any --json")
    assert (again, json.loads(out)["path"]) == (0, "whole")


def test_a_lenient_server_says_its_path(flymono: Run) -> None:
    assert "the server does not start" in flymono("why --arch gfx942 --tp 2 --layer 3 --rows 6")[1]
    code, out, _ = flymono("why --arch gfx942 --tp 2 --layer 3 --rows 6 --lenient")
    assert code == 1 and "6 rows: vLLM's path" in out and "does not start" not in out


def test_a_width_that_does_not_ship(flymono: Run) -> None:
    code, out, _ = flymono("why --arch gfx942 --layer 3 --rows 7 --widths 6,12")
    assert code == 1 and "width-not-built" in out and "--widths 7" in out and "or capture 12 rows" in out
    assert flymono("why --arch gfx942 --layer 3 --rows 7 --widths any")[0] == 0


def test_an_arch_without_a_spec_is_an_answer(flymono: Run) -> None:
    code, out, _ = flymono("why --arch gfx90a --layer 3 --rows 6")
    assert code == 1 and "arch-unknown" in out and "nearest that is whole: flymono why --arch gfx942" in out


def test_bad_input_is_all_said_at_once(flymono: Run) -> None:
    code, out, err = flymono(
        "why --gpu mi300 --layer 99 --rows 0 --prefill -1 --graph-mode some --indexer fp4 --feature lor "
        "--dp 0 --widths 6;7"
    )
    assert code == 2 and not out
    for part in (
        "no arch spec lists a mi300", "mi300x", "layers 0 to 39", "--rows is 0", "--prefill is -1",
        "--graph-mode is some", "--indexer is fp4", "`lora`", "--dp is 0", "--widths is 6;7",
    ):  # fmt: skip
        assert part in err, part


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--layer 3 --rows 6", "no GPU is named"),
        ("--gpu mi300x --arch gfx950 --layer 3 --rows 6", "--gpu mi300x is gfx942"),
        ("--arch gfx942 --layer 41 --rows 5 --drafts 0", "layer 41 is a draft layer"),
    ],
)
def test_contradictions(options: str, said: str, flymono: Run) -> None:
    code, _, err = flymono(f"why {options}")
    assert code == 2 and said in err


@pytest.mark.parametrize(
    ("options", "counts", "code"),
    [
        ("--arch gfx942 --tp 4", (43, 0, 0), 0),
        ("--arch gfx950 --tp 2", (35, 8, 0), 0),
        ("--arch gfx950 --tp 4 --indexer mxfp4", (43, 0, 0), 0),
        ("--arch gfx950 --tp 4 --drafts 0 --indexer mxfp4", (40, 0, 0), 0),
        ("--arch gfx942 --tp 2", (0, 0, 43), 1),
    ],
)
def test_the_plan_of_a_model(options: str, counts: tuple[int, ...], code: int, flymono: Run) -> None:
    ended, out, _ = flymono(f"plan model {options} --json")
    plan = json.loads(out)
    assert (tuple(plan["counts"].values()), ended) == (counts, code)
    assert [one["layer"] for one in plan["layers"]] == list(range(sum(counts)))
    assert plan["starts"] == (code == 0)
    table = flymono(f"plan model {options}")[1]
    assert f"{counts[0]} whole, {counts[1]} ffn, {counts[2]} stock" in table.splitlines()[0]
    assert len([line for line in table.splitlines()[1:] if line[:2].strip().isdigit()]) == sum(counts)
