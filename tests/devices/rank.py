"""One rank of a build's launch in a process of its own: `python rank.py FOLDER RANK BUILD`.

Handles are exchanged as files of FOLDER. On stdout: "launched", "waiting" each time the launch is seen to do nothing
else, and at last one JSON object: digests of what the launch wrote, or the error.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "layer"))
from benches import Bench, bench, fresh, real, specs

from flymono.emulator import pack_arguments
from flymono.runtime.devices.base import Touched
from flymono.runtime.devices.gpu import Gpu, GpuError, Memory
from flymono.runtime.devices.processes import process_gpu
from flymono.runtime.run.bind import Bound, bind
from flymono.runtime.run.group import Group, Launched

SECONDS = 120


def exchange(folder: Path, rank: int, ranks: int, mine: bytes) -> list[bytes]:
    """All ranks' handles, this one's among them."""
    ready = folder / f"handle.{rank}"
    ready.with_suffix(".new").write_bytes(mine)
    ready.with_suffix(".new").rename(folder / f"handle-of-{rank}")
    until = time.monotonic() + SECONDS
    for path in (paths := [folder / f"handle-of-{r}" for r in range(ranks)]):
        while not path.exists():
            assert time.monotonic() < until, f"{path.name} never came"
            time.sleep(0.02)
    return [path.read_bytes() for path in paths]


def digests(done: Launched, plan: Any, epoch: torch.Tensor) -> dict[str, str]:
    """What a launch wrote, by name."""
    wrote = done.outputs(plan) | {"epoch": epoch[:4]}
    as_bytes = {n: v.contiguous().reshape(-1).view(torch.uint8) for n, v in wrote.items()}
    return {n: hashlib.sha256(v.numpy().tobytes()).hexdigest() for n, v in as_bytes.items()}


def touched(bound: Bound, peers: Sequence[Memory]) -> list[Touched]:
    """What the launch may touch."""
    tensors = {n: v for n, v in bound.values.items() if isinstance(v, torch.Tensor)}
    own = [Touched(n, v.data_ptr(), v.nbytes, n in bound.writable, keep=v) for n, v in tensors.items() if v.numel()]
    return own + [Touched(f"peer {r}", m.address, m.nbytes, True, True) for r, m in enumerate(peers)]


def launch(gpu: Gpu, one: Bench, group: Group, rank: int, peers: Sequence[Memory]) -> Bound:
    """Queue the rank's launch on a group whose peer buffers are `peers`."""
    code, plan = real(one.plan), one.plan
    table = torch.tensor([m.address for m in peers], dtype=torch.int64)
    own = group.arguments(rank) | {"sym": peers[rank].address, "peers": table}
    bound = bind(plan, {**fresh(plan, one.given[rank]), **own})
    function = gpu.load(code.hsaco, code.kernel)
    described = function.code.kernels[code.kernel]  # type: ignore[attr-defined]
    block = (described.workgroup_size or (described.max_workgroup_size,))[0]
    kernarg = pack_arguments(described, list(bound.values.values()))
    gpu.launch(function, plan.grid, block, kernarg, 0, lambda: touched(bound, peers))
    return bound


def main(folder: Path, rank: int, build: str) -> dict[str, Any]:
    one = bench(build)
    plan, ranks = one.plan, len(one.given)
    group = Group.of([plan], ranks)
    gpu = process_gpu(specs(), plan.key.arch, rank, {"seed": 0})
    last = [0]

    def progress(instructions: int) -> None:
        if instructions - last[0] < 1_000_000:
            print("waiting", flush=True)
        last[0] = instructions
        gpu.node._go_on(instructions)

    gpu.node.device.progress = progress
    mine = gpu.allocate(group.peer[rank].nbytes, "peer")
    mine.tensor.copy_(group.peer[rank])
    handles = exchange(folder, rank, ranks, gpu.export(mine))
    peers = [mine if r == rank else gpu.open(h) for r, h in enumerate(handles)]
    bound = launch(gpu, one, group, rank, peers)
    print("launched", flush=True)
    try:
        gpu.synchronise()
    except GpuError as error:
        return {"error": str(error)}
    finally:
        gpu.close()
    return digests(Launched(bound, None, 0), plan, group.epoch[rank])  # type: ignore[arg-type]


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])), flush=True)
