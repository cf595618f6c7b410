"""Score a running server on GSM8K, GPQA-Diamond, AIME25 and RULER needles, through lm-evaluation-harness, and
hold two servers' scores against each other.

    python evaluate.py run [gsm8k gpqa_diamond aime25 ruler_niah] [--out scores-mono] [--url ...] [--limit N]
    python evaluate.py compare scores-mono scores-off

Needs `pip install "lm_eval[api,ruler,math]"`. `run --dry-run` prints the commands. `compare` ends with 1 if a
score is missing or differs by more than two standard errors of the difference: kernels that compute what
vLLM's do move no score by more than chance.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

from recipes import BadChoice, chosen, evaluation, recipes


@dataclass(frozen=True)
class Score:
    """A share of right answers, and of how many."""

    value: float
    samples: int

    @property
    def error(self) -> float:
        """Standard error of the share; at 0 and 1, where the formula gives none, that of one answer."""
        return max(sqrt(self.value * (1 - self.value) / self.samples), 1 / self.samples)


def scores(folder: Path, entry: Mapping[str, Any]) -> dict[str, Score]:
    """{task, or task at length: score} of the newest results below `folder`; empty if there are none."""
    files = sorted(folder.rglob("results_*.json"), key=lambda p: p.stat().st_mtime)
    if not files:
        return {}
    found = json.loads(files[-1].read_text())
    out = dict[str, Score]()
    for task in (t for t in entry["tasks"] if t in found["results"]):
        samples = int(found["n-samples"][task]["effective"])
        for name, key in _keys(task, entry):
            value = found["results"][task].get(key, -1)  # -1: a length that was not asked
            out |= {name: Score(float(value), samples)} if float(value) >= 0 else {}
    return out


def _keys(task: str, entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(name of a score, its key in the results)."""
    if entry["metric"] != "length":
        return [(task, entry["metric"])]
    return [(f"{task} at {n}", f"{n},none") for n in entry["lengths"]]


def compared(book: Mapping[str, Any], one: Path, two: Path) -> tuple[list[str], bool]:
    """Lines, a score each, and whether every score is there twice and none differs by more than chance."""
    lines, good = list[str](), True
    for name, entry in book["evaluations"].items():
        a, b = scores(one / name, entry), scores(two / name, entry)
        for task, _ in (key for t in entry["tasks"] for key in _keys(t, entry)):
            if task not in a or task not in b:
                where = " and ".join(str(f) for f, held in ((one, a), (two, b)) if task not in held)
                lines.append(f"{name}: {task}: MISSING in {where}")
                good = False
                continue
            difference, error = a[task].value - b[task].value, sqrt(a[task].error ** 2 + b[task].error ** 2)
            alike = abs(difference) <= 2 * error
            verdict = "alike" if alike else "DIFFERS"
            lines.append(
                f"{name}: {task}: {a[task].value:.4f} {b[task].value:.4f}, "
                f"difference {difference:+.4f}, standard error {error:.4f}: {verdict}"
            )
            good &= alike
    return lines, good


def run(book: Mapping[str, Any], a: argparse.Namespace) -> int:
    """Run or show the commands of `a.names`; 1 if one failed."""
    names = a.names or list(book["evaluations"])
    for name in names:
        chosen("evaluation", name, book["evaluations"])
    failed = 0
    for name in names:
        command = evaluation(book, name, a.url.rstrip("/"), a.out, a.limit)
        print(command.shown(), flush=True)
        failed += not a.dry_run and command.run() != 0
    return 1 if failed else 0


def main(argv: list[str] | None = None) -> int:
    """Run or compare; 2 for an evaluation that does not exist."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = p.add_subparsers(dest="what", required=True)
    one, two = parts.add_parser("run"), parts.add_parser("compare")
    one.add_argument("names", nargs="*")
    one.add_argument("--url", default="http://localhost:8000")
    one.add_argument("--out", default="scores")
    one.add_argument("--limit", type=int, help="questions of each task, to try the set-up")
    one.add_argument("--dry-run", action="store_true", help="print the commands and end")
    two.add_argument("folder", nargs=2, type=Path)
    a, book = p.parse_args(argv), recipes()
    if a.what == "compare":
        lines, good = compared(book, *a.folder)
        print("\n".join(lines))
        return 0 if good else 1
    try:
        return run(book, a)
    except BadChoice as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
