"""Measure a running server at several numbers of requests at once, and set two servers' runs side by side.

    python sweep.py run LABEL [--url http://localhost:8000] [--out sweep] [--dry-run]
    python sweep.py compare LABEL LABEL [--out sweep]

Run it once on a server of `serve.py --mode mono`, once on one of `--mode off`, then compare: absolute numbers
of one machine say little, the ratio of two runs on it does.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from recipes import benchmark, recipes, result_name

FIGURES = (("output_throughput", "tokens/s", False), ("median_tpot_ms", "ms a token", True),
           ("median_ttft_ms", "ms to first", True))  # fmt: skip
"""Key of a result file, head of its column, whether less is better."""


def compared(out: Path, labels: tuple[str, str], counts: list[int]) -> list[str]:
    """Lines of the table: a figure of both labels and their ratio (above 1: the first is better)."""
    lines = ["requests " + "".join(f"{head:>34}" for _, head, _ in FIGURES)]
    for count in counts:
        files = [out / result_name(label, count) for label in labels]
        if not all(f.is_file() for f in files):
            missing = ", ".join(f.name for f in files if not f.is_file())
            lines.append(f"{count:>8} not run: {missing}")
            continue
        one, two = (json.loads(f.read_text()) for f in files)
        cells = [_cell(float(one[key]), float(two[key]), less) for key, _, less in FIGURES]
        lines.append(f"{count:>8} " + "".join(f"{c:>34}" for c in cells))
    return lines


def _cell(a: float, b: float, less: bool) -> str:
    top, bottom = (b, a) if less else (a, b)
    return f"{a:.2f} / {b:.2f}, {top / bottom:.2f}x" if bottom else f"{a:.2f} / {b:.2f}"


def main(argv: list[str] | None = None) -> int:
    """Run, show or compare."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = p.add_subparsers(dest="what", required=True)
    run, compare = parts.add_parser("run"), parts.add_parser("compare")
    run.add_argument("label")
    run.add_argument("--url", default="http://localhost:8000")
    run.add_argument("--dry-run", action="store_true", help="print the commands and end")
    compare.add_argument("label", nargs=2)
    for part in (run, compare):
        part.add_argument("--out", default="sweep")
    a, book = p.parse_args(argv), recipes()
    counts = book["sweep"]["concurrency"]
    if a.what == "compare":
        print("\n".join(compared(Path(a.out), (a.label[0], a.label[1]), counts)))
        return 0
    for count in counts:
        command = benchmark(book, count, a.url.rstrip("/"), a.out, a.label)
        print(command.shown(), flush=True)
        if not a.dry_run and (code := command.run()):
            print(f"error: the run at {count} requests ended with {code}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
