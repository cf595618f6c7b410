"""K2 and the FFN launch in counts and ratios, on all ranks of a group, beside another implementation.

    python bench/layer.py [BUILD ...] [--hot N] [--json] [--other PATH] [--compile CMD]

Counts are of all ranks together and the same on every machine. An instruction that a wave executed because it
waited (a look after a wait's first) is counted apart, since it depends on who runs when. A stage has what its
label dominates (flow.py); a little address arithmetic may be counted for a neighbour.

--other is a path pattern of the other implementation's code objects with {kind}, {arch}, {tp}, {rows} and
{ratio}; built with stage labels (local symbols `*.stage.<name>.*`, no instruction) it is compared by stage.
--compile is its compile command with the same names and {out}: both compilers then run in turn, three times.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import flow
import other
import ranks
import torch
from rich.console import Console
from rich.table import Table

from flymono.gen import api
from flymono.gen.build import Settings, build
from flymono.gen.store import Artefact, Store
from flymono.gen.units import unit_of
from flymono.runtime.plan import BuildKey
from flymono.runtime.weights.fp4_copies import NAMES

# The public implementation at 6 rows: VGPRs, LDS bytes, static instructions.
MARKS = {
    "dsv41_k2-gfx942-tp4-s6-r2": (213, 57_216, 17_357),
    "dsv41_k2-gfx950-tp2-s6-r2": (252, 89_792, 12_815),
    "dsv41_ffn-gfx942-tp4-s6": (213, 57_024, 13_895),
    "dsv41_ffn-gfx950-tp2-s6": (244, 89_792, 10_047),
}
BUILDS = tuple(MARKS)
WEIGHTS = {
    "wo_a": ("woa", "woa_s"),
    "wo_b": ("wob", "wob_s"),
    "selected experts": NAMES,
    "shared gate/up": ("sgu", "sgu_s"),
    "shared down": ("sw2", "sw2_s"),
    "router": ("gate_w",),
    "gate projection": ("hc_fn",),
}
AIM, ONCE, COMPILE_AIM, TURNS = 0.9, 1.02, 0.5, 3


@dataclass
class Count:
    """Executed wave instructions of all ranks: work, looks in vain, and the work of each stage."""

    work: int
    waiting: int
    stages: dict[str, int]


@dataclass
class Report:
    """What one build is measured to do; `theirs*` and `same*` only beside another implementation."""

    build: str
    experts: int
    resources: dict[str, int]
    ours: Count
    requested: dict[str, float]  # of a weight with its codes: asked over held bytes
    theirs: Count | None = None
    theirs_requested: dict[str, float] = field(default_factory=dict)
    same_bits: dict[str, bool] = field(default_factory=dict)
    compile_ratio: float | None = None


def count_of(ran: ranks.Ran, hsaco: bytes) -> Count:
    """Counts of a launch by the PCs of its kernel."""
    code, by_pc = flow.Flow(hsaco), ran.by_pc()
    vain, work = code.waiting(by_pc), Counter[str]()
    for pc, stage in code.stages().items():
        work[stage] += sum(by_pc.get(i.pc, 0) - vain.get(i.pc, 0) for i in code.blocks[pc].instructions)
    return Count(work.total(), sum(vain.values()), dict(work))


def requested_of(step: ranks.Step, ran: ranks.Ran) -> dict[str, float]:
    """Bytes asked of each weight and its codes over the bytes of them that the step needs."""
    groups = {name: names for name, names in WEIGHTS.items() if names[0] in step.weights[0]}
    return {
        name: sum(ran.requested(n) for n in names) / sum(ranks.held(step, n) for n in names)
        for name, names in groups.items()
    }


def measure(name: str, hot: int = 0) -> tuple[Report, ranks.Step, ranks.Ran, Artefact]:
    """Run our kernel of a build."""
    step, made = ranks.step_of(name, hot=hot), api.build(BuildKey.parse(name), ranks.specs())
    ran = ranks.run(step, made.hsaco, made.kernel, step.buffers, stages=made.stage_ranges)
    figures = {n: getattr(made.resources, n) for n in ("vgprs", "lds_bytes", "instructions")}
    experts = len(set(step.ids.flatten().tolist()))
    counted = count_of(ran, made.hsaco)
    return Report(name, experts, figures, counted, requested_of(step, ran)), step, ran, made


def beside(report: Report, step: ranks.Step, ran: ranks.Ran, kernel: bytes) -> None:
    """The other implementation's counts for the same step, and whether its outputs are ours."""
    theirs = other.run(step, kernel)
    report.theirs = count_of(theirs, kernel)
    report.theirs_requested = requested_of(step, theirs)
    for name in ranks.OUTPUTS:
        pairs = zip(ran.given, theirs.given, strict=True)
        report.same_bits[name] = all(torch.equal(a[name], b[name]) for a, b in pairs)


def compile_ratio(name: str, command: list[str]) -> float:
    """Our compiler's processor time over the other's, both in new processes, in turn; the median of some."""
    key, ratios = BuildKey.parse(name), []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(TURNS):
            names = names_of(key) | {"out": str(Path(folder, f"other{turn}"))}
            theirs = other.compile_seconds(command, names)
            start = other.cpu_seconds()
            build(unit_of(ranks.specs(), key), Settings(Store(Path(folder, f"ours{turn}"))))
            ratios.append((other.cpu_seconds() - start) / theirs)
    return sorted(ratios)[TURNS // 2]


def names_of(key: BuildKey) -> dict[str, object]:
    """What path patterns and commands may name."""
    return {"kind": key.kind, "arch": key.arch, "tp": key.tp, "rows": key.rows, "ratio": key.ratio}


# ------------------------------------------------------------------ tables


def show(report: Report, console: Console) -> bool:
    """Print a build's tables; False if a figure is above its mark."""
    rows = figures_of(report)
    table = Table(
        "figure",
        "ours",
        "mark",
        "ratio",
        title=f"{report.build}, {report.experts} experts",
        title_justify="left",
    )
    for name, ours, mark in rows:
        table.add_row(
            name, f"{ours:,.6g}", f"{mark:,.6g}" if mark else "", f"{ours / mark:.3f}" if mark else ""
        )
    console.print(table)
    stages = Table("stage", "ours", "other", "ratio", title_justify="left")
    there = report.theirs.stages if report.theirs else {}
    for name in dict.fromkeys([*report.ours.stages, *there]):
        a, b = report.ours.stages.get(name, 0), there.get(name, 0)
        stages.add_row(name, f"{a:,}", f"{b:,}" if b else "", f"{a / b:.3f}" if a and b else "")
    console.print(stages)
    for name, same in report.same_bits.items():
        console.print(f"{name}: {'the same bits' if same else 'other bits'} on every rank")
    return all(not mark or ours <= mark for _, ours, mark in rows)


def figures_of(report: Report) -> list[tuple[str, float, float | None]]:
    """(figure, ours, mark or None)."""
    rows: list[tuple[str, float, float | None]] = []
    marks: tuple[float | None, ...] = MARKS.get(report.build, (None,) * len(report.resources))
    rows += [(n, v, mark) for (n, v), mark in zip(report.resources.items(), marks, strict=True)]
    theirs = AIM * report.theirs.work if report.theirs else None
    rows.append((f"executed wave instructions; mark {AIM} x the other's", report.ours.work, theirs))
    looks = report.ours.waiting
    rows.append(("looks in vain; mark the other's", looks, report.theirs.waiting if report.theirs else None))
    for name, ratio in report.requested.items():
        there = report.theirs_requested.get(name)
        rows.append((f"{name}: asked over held" + (f", other {there:.3f}" if there else ""), ratio, ONCE))
    if report.compile_ratio is not None:
        rows.append(("compiler's processor time over the other's", report.compile_ratio, COMPILE_AIM))
    return rows


def main() -> int:
    """Measure the builds and compare with the marks; 1 if one is above."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("builds", nargs="*", default=BUILDS)
    parser.add_argument(
        "--hot", type=int, default=0, help="experts that take all picks; 0: as the router has them"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--other", default="")
    parser.add_argument("--compile", default="")
    args = parser.parse_args()
    torch.set_num_threads(1)
    good, data = True, []
    for name in args.builds:
        report = one(name, args)
        good &= args.json or show(report, Console())
        data.append(asdict(report))
    if args.json:
        print(json.dumps(data, indent=2))
    return 0 if good else 1


def one(name: str, args: Any) -> Report:
    """Everything that is asked about one build."""
    names = names_of(BuildKey.parse(name))
    report, step, ran, _ = measure(name, args.hot)
    kernel = other.code_object(args.other, names) if args.other else None
    if kernel is not None:
        beside(report, step, ran, kernel)
    if args.compile:
        report.compile_ratio = compile_ratio(name, shlex.split(args.compile))
    return report


if __name__ == "__main__":
    sys.exit(main())
