"""Run layers at every row count that matters and say which are right.

`python bench/every_layer.py --log FILE`: the full table takes hours of one core, so it is no test. What is in
FILE is not run again, and `--only gfx942` takes the cases whose name has a text. A line of FILE is the case,
`right` or `WRONG`, verdicts, and the wave instructions of each launch on all ranks.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch

from flymono.runtime.heap import give_back, keep_heap
from flymono.runtime.run.ffn_command import run_ffn
from flymono.runtime.run.layer_command import run_layers
from flymono.runtime.run.layer_options import LayerOptions
from flymono.runtime.run.result import Ran
from flymono.specs import Specs, UserError, load

PLACES = (
    ("gfx942", 4, (1, 6, 7, 24, 42)),
    ("gfx950", 2, (1, 6, 16, 17, 48)),
    ("gfx950", 4, (1, 6, 16, 17, 48)),
)
LAYERS = (0, 1, 2, 3, 20, 21, 39, 40)
"""First, engram, index and kv source of ratio 2, plain, index source of ratio 1, plain, last, draft."""


def cases() -> Iterator[tuple[str, LayerOptions]]:
    """(name, options) of every layer and FFN launch."""
    for arch, tp, counts in PLACES:
        for rows in counts:
            for layer in LAYERS:
                name = f"layer {layer} {arch} TP{tp} {rows} rows"
                yield name, LayerOptions(arch=arch, tp=tp, rows=rows, layer=layer)
            for draft in (False, True):
                name = f"ffn {'draft' if draft else 'target'} {arch} TP{tp} {rows} rows"
                yield name, LayerOptions(arch=arch, tp=tp, rows=rows, draft=draft)


def line_of(name: str, options: LayerOptions, specs: Specs) -> str:
    """Run one case; its line of the log."""
    try:
        (ran,) = (run_layers if name.startswith("layer") else run_ffn)(options, specs)
    except UserError as error:
        return f"{name}: WRONG, {error}"
    return f"{name}: {'right' if ran.ok else 'WRONG'}, {_counts(ran)}"


def _counts(ran: Ran) -> str:
    verdicts = sum(len(r.verdicts) for r in ran.results)
    done = ", ".join(f"{r.build.split('-')[0][6:]} {r.counters.instructions:,}" for r in ran.results)
    return f"{verdicts} verdicts, {done}"


def main() -> int:
    """Run what the log does not have; 1 if anything in it is wrong."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--log", type=Path, required=True)
    p.add_argument("--only", default="", help="cases whose name contains this")
    a = p.parse_args()
    torch.set_num_threads(1)
    keep_heap()
    specs = load()
    lines = a.log.read_text().splitlines() if a.log.is_file() else []
    known = {line.partition(":")[0] for line in lines}
    for name, options in cases():
        if name not in known and a.only in name:
            lines.append(line_of(name, options, specs))
            with a.log.open("a") as log:
                log.write(lines[-1] + "\n")
            print(lines[-1], flush=True)
            give_back()
    return 1 if any(": WRONG" in line for line in lines) else 0


if __name__ == "__main__":
    raise SystemExit(main())
