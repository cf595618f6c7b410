"""The serving examples: every command that they print, and what they make of results."""

from __future__ import annotations

import json
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flymono.runtime.plan.width import width_report
from flymono.specs import Specs, load

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "vllm"


@pytest.fixture(scope="module")
def specs() -> Specs:
    return load()


@pytest.fixture(scope="module")
def recipes() -> dict[str, Any]:
    return runpy.run_path(str(FOLDER / "recipes.py"))


@pytest.fixture(scope="module")
def book(recipes: dict[str, Any]) -> dict[str, Any]:
    return dict(recipes["recipes"]())


def run(script: str, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(FOLDER / script), *words]
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def test_every_gpu_has_an_arch_spec_whose_tp_sizes_it_takes(book: dict[str, Any], specs: Specs) -> None:
    for gpu in book["gpus"].values():
        assert set(gpu["tp"]) <= set(specs.arch[gpu["arch"]].tp)


def test_requests_at_once_fit_the_row_limit(book: dict[str, Any], specs: Specs) -> None:
    """The widest step of the recipe is a step that the kernels take: one more request would not be."""
    drafts = book["serve"]["args"]["--speculative-config"]["num_speculative_tokens"]
    model = specs.model["deepseek_v41_flash"]
    for gpu in book["gpus"].values():
        limit = width_report(model, specs.arch[gpu["arch"]]).limit.rows
        assert gpu["args"]["--max-num-seqs"] == limit // (drafts + 1)


@pytest.mark.parametrize("gpu", ["mi300x", "mi325x", "mi350x", "mi355x"])
@pytest.mark.parametrize("mode", ["mono", "stock", "off"])
def test_serve_prints_its_command_and_runs_nothing(gpu: str, mode: str) -> None:
    done = run("serve.py", "--gpu", gpu, "--mode", mode, "--dry-run", "--bundle", "a b", "--", "--port", "9")
    assert done.returncode == 0, done.stderr
    words = shlex.split(done.stdout)
    assert words[words.index("serve") - 1] == "vllm"
    assert ("--monokernel" in words) == (mode != "off")
    assert ("FLYMONO=stock" in words, "FLYMONO=0" in words) == (mode == "stock", mode == "off")
    assert "FLYMONO_BUNDLE=a b" in words
    assert words[-2:] == ["--port", "9"]
    assert json.loads(words[words.index("--speculative-config") + 1])["num_speculative_tokens"] == 5


@pytest.mark.parametrize(
    ("script", "words", "says"),
    [
        ("serve.py", ["--gpu", "mi100"], "take one of mi300x"),
        ("serve.py", ["--gpu", "mi300x", "--tp", "2"], "TP4, not TP2"),
        ("evaluate.py", ["run", "gsm9k"], "take one of gsm8k"),
    ],
)
def test_a_choice_that_does_not_exist_ends_with_2(script: str, words: list[str], says: str) -> None:
    done = run(script, *words, "--dry-run")
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_evaluate_prints_a_command_for_each_set(book: dict[str, Any]) -> None:
    done = run("evaluate.py", "run", "--dry-run", "--url", "http://h:1/", "--limit", "4")
    lines = [shlex.split(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert len(lines) == len(book["evaluations"])
    for words, entry in zip(lines, book["evaluations"].values(), strict=True):
        assert words[words.index("--tasks") + 1].split(",") == entry["tasks"]
        assert ("--apply_chat_template" in words) == entry["chat"]
        assert "base_url=http://h:1/v1/" in words[words.index("--model_args") + 1]
        assert words[words.index("--limit") + 1] == "4"


SAMPLES = 400


def scored(folder: Path, book: dict[str, Any], value: float, without: str = "") -> Path:
    """Result files of every evaluation as the harness writes them, all with one score."""
    for name, entry in book["evaluations"].items():
        keys = [f"{n},none" for n in entry["lengths"]] if "lengths" in entry else [entry["metric"]]
        one = dict.fromkeys(keys, value) | {"65536,none": -1, "alias": "a task"}
        tasks = [t for t in entry["tasks"] if t != without]
        found = {
            "results": dict.fromkeys(tasks, one),
            "n-samples": {t: {"original": 9999, "effective": SAMPLES} for t in tasks},
        }
        (folder / name / "a-model").mkdir(parents=True)
        (folder / name / "a-model" / "results_1.json").write_text(json.dumps(found))
    return folder


@pytest.mark.parametrize(("other", "code"), [(0.9, 0), (0.86, 0), (0.84, 1), (1.0, 1)])
def test_scores_that_differ_by_more_than_chance_are_told(
    tmp_path: Path, book: dict[str, Any], other: float, code: int
) -> None:
    """At 400 answers and a share of 0.9 the difference of two servers has a standard error of about 0.023."""
    one, two = scored(tmp_path / "one", book, 0.9), scored(tmp_path / "two", book, other)
    done = run("evaluate.py", "compare", str(one), str(two))
    assert done.returncode == code, done.stdout + done.stderr
    wanted = sum(len(e["tasks"]) * len(e.get("lengths", [0])) for e in book["evaluations"].values())
    assert len(done.stdout.splitlines()) == wanted
    assert ("DIFFERS" in done.stdout) == bool(code)


def test_a_missing_score_is_named_with_its_folder(tmp_path: Path, book: dict[str, Any]) -> None:
    one, two = scored(tmp_path / "one", book, 0.9), scored(tmp_path / "two", book, 0.9, without="aime25")
    done = run("evaluate.py", "compare", str(one), str(two))
    assert done.returncode == 1
    assert f"aime25: aime25: MISSING in {two}" in done.stdout


def test_sweep_prints_its_runs_and_compares_two(tmp_path: Path, book: dict[str, Any]) -> None:
    done = run("sweep.py", "run", "mono", "--out", str(tmp_path), "--dry-run")
    assert [shlex.split(x)[-1] for x in done.stdout.splitlines()] == [
        f"mono-c{n}.json" for n in book["sweep"]["concurrency"]
    ]
    for label, tokens, ms in (("mono", 200.0, 5.0), ("off", 100.0, 11.0)):
        one = {"output_throughput": tokens, "median_tpot_ms": ms, "median_ttft_ms": 0.0}
        (tmp_path / f"{label}-c1.json").write_text(json.dumps(one))
    table = run("sweep.py", "compare", "mono", "off", "--out", str(tmp_path)).stdout.splitlines()
    assert "2.00x" in table[1] and "2.20x" in table[1]
    assert "not run: mono-c2.json, off-c2.json" in table[2]


def test_a_program_that_is_missing_is_named(tmp_path: Path) -> None:
    line = [sys.executable, str(FOLDER / "serve.py"), "--gpu", "mi325x"]
    done = subprocess.run(
        line, env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 127
    assert "vllm is not installed here" in done.stderr
