"""A layer's launches captured on every rank through the HIP device, and replayed: `python replays.py ARCH TP
ROWS TIMES`.

The expected bits are those of the emulator device. Prints one line of JSON.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

if __name__ == "__main__":
    tests = Path(__file__).parents[1]
    sys.path[:0] = [str(tests / name) for name in ("hipemu", "devices", "layer")]
from library import environment
from rank import peer_memory, queue
from torch_on_cpu import CpuTorch

from flymono.runtime.devices.base import Counters
from flymono.runtime.devices.emulator import EmulatorDevice
from flymono.runtime.devices.hip import HipGpu
from flymono.runtime.run.bind import UNWRITTEN
from flymono.runtime.run.group import Launched
from flymono.runtime.run.layer_options import LayerOptions
from flymono.runtime.run.results import digest
from flymono.specs import load

RESULTS = ("q", "out", "res_out")  # written whole by a launch, and read by nobody before


def bench() -> Any:
    """bench/replay.py."""
    path = Path(__file__).parents[2] / "bench" / "replay.py"
    spec = importlib.util.spec_from_file_location("flymono_bench_replay", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


class Captured:
    """A graph a rank."""

    def __init__(self, gpus: Sequence[HipGpu], track: Any) -> None:
        self.gpus, self.track = gpus, track
        peers = [peer_memory(gpu, track.group, r) for r, gpu in enumerate(gpus)]
        handles = [gpu.export(m) for gpu, m in zip(gpus, peers, strict=True)]
        self.graphs, self.bounds = [], []
        for r, gpu in enumerate(gpus):
            seen = [m if n == r else gpu.open(h) for n, (m, h) in enumerate(zip(peers, handles, strict=True))]
            self._capture(gpu, r, seen)

    def _capture(self, gpu: HipGpu, rank: int, peers: Sequence[Any]) -> None:
        kernels = self.track.kernels
        functions = [gpu.load(k.artefact.hsaco, k.artefact.kernel) for k in kernels]
        own = self.track.group.arguments(rank)
        own |= {"sym": peers[rank].address, "peers": torch.tensor([m.address for m in peers])}
        gpu.begin_capture()
        self.bounds.append(
            [
                queue(gpu, k.plan, k.artefact, {**k.given[rank], **own}, peers, f)
                for k, f in zip(kernels, functions, strict=True)
            ]
        )
        self.graphs.append(gpu.end_capture())

    def replay(self) -> list[str]:
        """Digests of all outputs of all ranks, in the order of `Track.bits`."""
        for bound in (b for rank in self.bounds for b in rank):
            for name in RESULTS:
                if isinstance(value := bound.values.get(name), torch.Tensor) and name in bound.writable:
                    value.view(torch.uint8).fill_(UNWRITTEN)
        for graph in self.graphs:
            graph.replay()
        for gpu in self.gpus:
            gpu.synchronise()
        ranks = [(k, rank[n]) for n, k in enumerate(self.track.kernels) for rank in self.bounds]
        return [digest(v) for k, b in ranks for v in Launched(b, Counters(), 0).outputs(k.plan).values()]


def replayed(gpus: Sequence[HipGpu], options: LayerOptions, times: int) -> list[str]:
    """What was wrong in `times` replays, and in one more after a weight was changed where it lies."""
    device, said = EmulatorDevice(load().arch[options.arch], {"seed": 0}), list[str]()
    (track,) = bench().tracks_of(options, False, device)
    captured, want = Captured(gpus, track), list(track.bits(device))
    for n in range(times):
        said += [f"replay {n}"] if captured.replay() != want else []
        if n % 10 == 9:
            print(f"{n + 1} of {times} replays, differing: {said or 'none'}", file=sys.stderr, flush=True)
    track.kernels[-1].given[0]["sgu"].view(torch.uint8).view(-1)[:4096] ^= 1
    changed = captured.replay()
    if changed == want:
        said.append("the changed weight was not seen")
    if changed != list(track.bits(device)):
        said.append("the replay after the change")
    return said


def main(arch: str, tp: int, rows: int, times: int) -> int:
    start = time.monotonic()
    units = min(load().arch[arch].machine.compute_units.values())
    cache = Path(__file__).parents[2] / ".pytest_cache" / "d" / "hipemu"
    os.environ |= environment(cache, arch=arch, devices=tp, compute_units=units)
    gpus = [HipGpu(load(), r, CpuTorch(r)) for r in range(tp)]
    wrong = replayed(gpus, LayerOptions(arch=arch, tp=tp, rows=rows, layer=3), times)
    seconds = round(time.monotonic() - start)
    print(
        json.dumps(
            {"arch": arch, "ranks": tp, "rows": rows, "replays": times, "wrong": wrong, "seconds": seconds}
        )
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    raise SystemExit(main(sys.argv[1], *map(int, sys.argv[2:5])))
