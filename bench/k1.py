"""K1 in counts and ratios: registers, LDS, instructions, executed instructions, bytes, emulator speed.

    python bench/k1.py [--rows 6] [--json]

Every count is the same on every machine. The only time is the emulator's rate of wave instructions,
printed with the mark that it is held to; it is a report and not a test. The marks of the public
implementation are those of its own builds at 6 rows, ratio 2, fold.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from flymono.runtime.run.command import Options, run
from flymono.runtime.run.result import RunResult

ROWS = 6
RATE_MARK = 5e6  # wave instructions a second and core


@dataclass(frozen=True)
class Mark:
    """What the public kernel needs at 6 rows, ratio 2, fold."""

    arch: str
    tp: int
    vgprs: int
    lds_bytes: int
    instructions: int


MARKS = (Mark("gfx942", 4, 154, 42_752, 4_551), Mark("gfx950", 2, 192, 59_136, 3_842))
WEIGHTS = (("wqkv", "wqkv_s"), ("wqb", "wqb_s"), ("hc_fn",))  # a weight and its scale codes


def rows_of(mark: Mark, result: RunResult) -> list[tuple[str, float, float | None]]:
    """(figure, ours, mark or None)."""
    traffic = {t.name: t for t in result.traffic}
    rows: list[tuple[str, float, float | None]] = [
        (name, result.resources[name], getattr(mark, name)) for name in ("vgprs", "lds_bytes", "instructions")
    ]
    rows.append(("spills", result.resources["spills"], 0))
    rows.append(("executed wave instructions", result.counters.instructions, None))
    for names in WEIGHTS:
        asked = sum(traffic[n].requested for n in names)
        held = sum(traffic[n].unique for n in names)
        rows.append((f"{' and '.join(names)}: requested over unique bytes", asked / held, 1.02))
    return rows


def show(mark: Mark, result: RunResult, console: Console) -> bool:
    """Print one kernel's table; False if a figure is above its mark."""
    table = Table("figure", "ours", "mark", "ratio", title=result.build, title_justify="left")
    good = True
    for name, ours, limit in rows_of(mark, result):
        ratio = "" if not limit else f"{ours / limit:.3f}"
        good = good and (limit is None or ours <= limit)
        table.add_row(name, f"{ours:,.6g}", "" if limit is None else f"{limit:,.6g}", ratio)
    rate = result.counters.instructions / result.counters.seconds
    ratio = f"{rate / RATE_MARK:.2f}"
    table.add_row("emulator, wave instructions a core second", f"{rate:,.0f}", f"{RATE_MARK:,.0f}", ratio)
    console.print(table)
    return good


def main() -> int:
    """Run K1 on both archs and compare the counts with the marks; 1 if one is above."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results = [(m, run(Options(arch=m.arch, tp=m.tp, rows=args.rows))) for m in MARKS]
    if args.json:
        print(json.dumps({r.build: {n: v for n, v, _ in rows_of(m, r)} for m, r in results}, indent=2))
        return 0
    shown = [show(m, r, Console()) for m, r in results]
    return 0 if all(shown) else 1


if __name__ == "__main__":
    sys.exit(main())
