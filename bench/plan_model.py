"""Planning a whole model and routing a step, beside what they would cost layer by layer.

python bench/plan_model.py [--json]

Processor time of one process, the best of some runs, in one run for all figures: a plan from nothing (each
distinct build asked once), a plan of the same server again (as while its layers come to be), the full plans
of all layers' launches one by one (`plan_layer`), and one decision of a step. The mark is a plan under a
second; the ratio to the layer-by-layer time depends on the machine less.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from flymono.runtime.plan import plan_layer
from flymono.runtime.plan.layers import Host, StepFacts, builds, decide, model_plan
from flymono.specs import Specs, load

HOSTS = (Host("gfx942", 4), Host("gfx950", 2), Host("gfx950", 4, indexer="mxfp4"))
ROWS = 6
MARK = 1.0  # seconds of a model's plan
DECISIONS = 1000


def seconds(work: Callable[[], object], times: int = 5) -> float:
    """Processor time of the fastest of some runs."""
    found = []
    for _ in range(times):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def fresh(specs: Specs, host: Host) -> None:
    """A plan with nothing known of its builds."""
    builds._KEPT.clear()
    model_plan(specs, host)


def figures(specs: Specs, host: Host) -> dict[str, float]:
    """Seconds of each kind of work."""
    plan = model_plan(specs, host)
    facts = StepFacts(ROWS, graph="full", window=128, entry_dims=2)

    def each_layer() -> None:
        for one in plan.layers:
            plan_layer(specs, host.arch, host.tp, ROWS, one.layer)

    def decided() -> None:
        for _ in range(DECISIONS):
            decide(plan, facts)

    return {
        "plan of the model": seconds(lambda: fresh(specs, host)),
        "the same server again": seconds(lambda: model_plan(specs, host)),
        "plan_layer of all layers": seconds(each_layer, 1),
        "one decision of a step": seconds(decided, 3) / DECISIONS,
    }


def main() -> int:
    """Print the figures of each server; 1 if a plan is above the mark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    specs = load()
    done = {f"{h.arch} TP{h.tp} {h.indexer}": figures(specs, h) for h in HOSTS}
    if args.json:
        print(json.dumps(done, indent=2))
    else:
        for name, found in done.items():
            whole = found["plan_layer of all layers"]
            table = Table("work", "seconds", "share of all layers", title=name, title_justify="left")
            for what, took in found.items():
                table.add_row(what, f"{took:.6f}", f"{took / whole:.4f}")
            Console().print(table)
    return 0 if all(found["plan of the model"] < MARK for found in done.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
