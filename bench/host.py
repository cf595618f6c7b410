"""What the host does for a layer's launches, without their kernels: `python bench/host.py [--rows 6]`.

On a null GPU: a whole layer's two launches through the runner, beside two empty launches of the same
interface
in the same run, and beside the least that any host path must do for such a layer (an address of each argument
tensor, an allocation of each output). Prints one JSON line; microseconds are of this machine, ratios travel.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from flymono.runtime.devices.null import NullGpu
from flymono.runtime.plan import KernelPlan, plan_of
from flymono.runtime.plan.layer import kind_of
from flymono.runtime.runner import LayerWeights, Place, Runner, Seam, Step
from flymono.runtime.runner.inputs import DTYPES
from flymono.runtime.runner.sizes import Sizes
from flymono.specs import Specs, load


class Symbols:
    """Modules of names: a null GPU loads no code."""

    def code(self, plan: KernelPlan) -> tuple[bytes, str]:
        """Nothing, and the id as a symbol."""
        return b"", plan.key.symbol


class Alone:
    """The one rank of a group of any size."""

    def __init__(self, size: int) -> None:
        self.rank, self.size = 0, size

    def all_gather(self, value: object, seconds: float) -> list[Any]:
        """The value, as if every rank had said it."""
        return [value] * self.size


def weights_of(specs: Specs, place: Place, layer: int, rows: int) -> LayerWeights:
    """Tensors of the right shapes over memory that is never touched."""
    keys = Sizes.of(specs, place, False).keys("layer", layer, rows, None)
    parts: dict[str, dict[str, torch.Tensor]] = {"k1": {}, "k2": {}}
    for key in (k for k in keys if k.kind in parts):
        for a in (a for a in plan_of(specs, key).abi.arguments if a.owner == "layer" and a.used):
            shape = tuple(64 if n < 0 else n for n in a.shape)
            parts[key.kind][a.name] = torch.empty(shape, dtype=DTYPES[a.dtype][0])
    return LayerWeights(layer, parts["k1"], {}, parts["k2"])


def step_of(runner: Runner, rows: int) -> tuple[Step, Seam]:
    """A step's metadata, caches and input."""
    d, blocks = runner.sizes.dims, 8
    ints, longs = torch.int32, torch.int64
    cache = torch.zeros(blocks, 32, d.record_bytes, dtype=torch.uint8)
    step = Step(
        torch.zeros(rows, dtype=longs), torch.zeros(rows, dtype=longs), cache,
        torch.zeros(rows, d.window, dtype=ints), torch.zeros(rows, dtype=ints), torch.zeros(rows, dtype=ints),
        cache.clone(), torch.zeros(rows, blocks, dtype=ints), torch.zeros(rows, d.topk, dtype=ints),
    )  # fmt: skip
    residual = torch.zeros(rows, d.streams, d.hidden, dtype=torch.bfloat16)
    gates = [torch.zeros(rows, d.streams, n) for n in (1, d.streams)]
    given = Seam(residual[:, 0].contiguous(), residual, gates[0], gates[1], torch.zeros(rows, d.streams))
    return step, given


def microseconds(work: Callable[[], object], times: int, repeats: int = 100) -> float:
    """The best of `repeats`, a call: what other work on the machine adds is not the host's cost."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(times):
            work()
        best = min(best, time.perf_counter() - start)
    return best / times * 1e6


def measure(arch: str, tp: int, layer: int, rows: int, times: int) -> dict[str, object]:
    """Figures of one layer."""
    specs, place, gpu = load(), Place(arch, tp), NullGpu(arch)
    runner = Runner.create(gpu, specs, place, Alone(tp), Symbols(), widths=[rows])
    weights = weights_of(specs, place, layer, rows)
    step, given = step_of(runner, rows)
    select = (lambda normed, qr: None) if kind_of(runner.sizes.model, layer).index else None
    run = partial(runner.layer, weights, step, given, select=select)
    outs = run()
    launches = gpu.launches
    function, kernarg = gpu.load(b"", "empty"), bytearray(512)
    tensors = [
        *weights.k1.values(),
        *weights.ffn.values(),
        *given,
        *(getattr(step, n) for n in step.__slots__),
    ]

    def empty() -> None:
        for _ in range(launches):
            gpu.launch(function, 256, 512, kernarg, 0, tuple)

    def least() -> None:
        for tensor in tensors:
            tensor.data_ptr()
        for o in outs:
            torch.empty(o.shape, dtype=o.dtype)
        empty()

    found = {
        "runner": microseconds(run, times),
        "runner, caller's outputs": microseconds(partial(run, outs=outs), times),
        "empty launches": microseconds(empty, times),
        "addresses and outputs alone": microseconds(least, times),
    }
    above = found["runner"] - found["empty launches"]
    return {
        "arch": arch, "tp": tp, "layer": layer, "rows": rows, "launches": launches,
        "microseconds": {n: round(v, 2) for n, v in found.items()}, "above empty": round(above, 2),
        "of addresses and outputs": round(found["runner"] / found["addresses and outputs alone"], 3),
    }  # fmt: skip


def main() -> int:
    """Parse, measure, print."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--arch", default="gfx950")
    p.add_argument("--tp", type=int, default=2)
    p.add_argument("--layer", type=int, default=3)
    p.add_argument("--rows", type=int, default=6)
    p.add_argument("--times", type=int, default=100)
    a = p.parse_args()
    torch.set_num_threads(1)
    print(json.dumps(measure(a.arch, a.tp, a.layer, a.rows, a.times)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
