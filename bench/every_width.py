"""Does any build spill at any row count? Compiles a kind of build at every row count of its arch.

    python bench/every_width.py [KIND ...] [--rows 1,7,48] [--out DIR] [--json]

A KIND is a build id with `*` for its rows, for example 'dsv41_k2-gfx942-tp4-s*-r2'; without any, the kinds of
K2, of the FFN launch and of the key list. gen refuses a build with spills or private memory, so one that
spills is a failure here, and its findings are printed. Builds are kept in the store: a second run is quick.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from flymono.gen.build import Outcome, Settings, build_all
from flymono.gen.isa import Resources
from flymono.gen.store import Store
from flymono.gen.units import unit_of
from flymono.runtime.plan import BuildKey, plan_of
from flymono.specs import Specs, load

KINDS = (
    "dsv41_k2-gfx942-tp4-s*-r2",
    "dsv41_k2-gfx950-tp2-s*-r2-index",
    "dsv41_ffn-gfx942-tp4-s*",
    "dsv41_ffn-gfx950-tp2-s*",
    "dsv41_ffn-gfx942-tp4-s*-draft",
    "dsv41_k2-gfx950-tp4-s*-r1-index",
    "dsv41_ffn-gfx950-tp2-s*-draft",
    "dsv41_ffn-gfx950-tp4-s*",
    "dsv41_keylist-gfx942-tp4-s*-r2",
    "dsv41_k2-gfx942-tp4-s*-r0-draft",
    "dsv41_k2-gfx950-tp2-s*-r0-draft",
    "dsv41_ffn-gfx950-tp4-s*-draft",
)
FIGURES = {"vgprs": "VGPR", "sgprs": "SGPR", "lds_bytes": "LDS bytes", "instructions": "instructions"}


@dataclass(frozen=True)
class Sweep:
    """One kind at all its row counts: the largest of each figure with the rows that have it, and failures."""

    kind: str
    rows: tuple[int, ...]
    largest: dict[str, tuple[int, int]]  # figure -> (value, rows)
    spills: int
    failed: dict[int, str]


def keys_of(specs: Specs, kind: str, rows: Sequence[int]) -> Iterator[BuildKey]:
    """The builds of a kind: at `rows`, or at every row count that its arch admits."""
    limit = plan_of(specs, BuildKey.parse(kind.replace("*", "1"))).row_limit.rows
    for count in rows or range(1, limit + 1):
        if count <= limit:
            yield BuildKey.parse(kind.replace("*", str(count)))


def sweep(
    specs: Specs, kind: str, rows: Sequence[int], settings: Settings, told: Callable[[Outcome], None]
) -> Sweep:
    """Compile a kind at each of its row counts."""
    keys = list(keys_of(specs, kind, rows))
    outcomes = build_all([unit_of(specs, key) for key in keys], settings, told)
    both = list(zip(keys, outcomes, strict=True))
    made = {k.rows: o.artefact.resources for k, o in both if o.artefact is not None}
    failed = {k.rows: str(o.error) for k, o in both if o.error is not None}
    return Sweep(kind, tuple(k.rows for k in keys), _largest(made), sum(map(_spills, made.values())), failed)


def _largest(made: dict[int, Resources]) -> dict[str, tuple[int, int]]:
    if not made:
        return {}
    return {name: max((getattr(r, name), -rows) for rows, r in made.items()) for name in FIGURES}


def _spills(r: Resources) -> int:
    return r.vgpr_spills + r.sgpr_spills + r.scratch_bytes


def table(sweeps: Sequence[Sweep]) -> Iterator[str]:
    """Lines of a Markdown table, one a kind; each largest figure with the fewest rows that reach it."""
    heads = ("kind", "rows", "builds", "spills, scratch", *FIGURES.values(), "failed")
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for s in sweeps:
        figures = [f"{value:,} (s{-rows})" for value, rows in s.largest.values()] or ["-"] * len(FIGURES)
        span = f"{min(s.rows)} to {max(s.rows)}" if len(s.rows) > 1 else str(*s.rows)
        cells = (f"`{s.kind}`", span, str(len(s.rows)), str(s.spills), *figures, str(len(s.failed)))
        yield f"| {' | '.join(cells)} |"


def main() -> int:
    """Compile and report; 1 if a build failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND")
    parser.add_argument("--rows", type=lambda text: [int(n) for n in text.split(",")], default=[])
    parser.add_argument("--out", type=Path, help="store; default: FLYMONO_CACHE, else the user's cache")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    specs, settings = load(), Settings(Store(args.out), jobs=args.jobs)

    def told(o: Outcome) -> None:
        print(f"{o.unit.id} {'FAILED' if o.error else 'cached' if o.cached else f'{o.seconds:.1f} s'}",
              file=sys.stderr, flush=True)  # fmt: skip

    sweeps = [sweep(specs, kind, args.rows, settings, told) for kind in args.kinds or KINDS]
    print(json.dumps([asdict(s) for s in sweeps], indent=1) if args.json else "\n".join(table(sweeps)))
    for s in sweeps:
        for rows, text in s.failed.items():
            print(f"\n{s.kind} at {rows} rows:\n{text}", file=sys.stderr)
    return 1 if any(s.failed for s in sweeps) else 0


if __name__ == "__main__":
    sys.exit(main())
