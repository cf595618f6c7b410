"""One rank of a build's launch in a process of its own: `python rank.py FOLDER RANK BUILD [KIND]`.

KIND is `emulator`; `clock`, the same with a clock that goes on where nobody else does; `hip`, GPU 0 of the
HIP runtime that the environment names; `hip-dying`, which ends, with code 9, when all ranks have mapped each
other's memory. Handles are exchanged as files of FOLDER. On stdout:
"launched", "waiting" each time the launch is seen to do nothing else, and at last one JSON object: digests
of what the launch wrote, or the error.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("layer", "hipemu")]
from benches import Bench, bench, fresh, real, specs

from flymono.emulator import CodeObject, pack_arguments
from flymono.runtime.devices.base import Counters, Touched
from flymono.runtime.devices.gpu import Gpu, GpuError, Memory
from flymono.runtime.devices.processes import ProcessGpu, process_gpu
from flymono.runtime.plan import KernelPlan
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
    own = [
        Touched(n, v.data_ptr(), v.nbytes, n in bound.writable, keep=v)
        for n, v in tensors.items()
        if v.numel()
    ]
    return own + [Touched(f"peer {r}", m.address, m.nbytes, True, True) for r, m in enumerate(peers)]


def queue(
    gpu: Gpu, plan: KernelPlan, code: Any, values: Mapping[str, Any], peers: Sequence[Memory], function: Any
    = None
) -> Bound:  # fmt: skip
    """Queue the launch of a build with these arguments; `function` is its kernel if that is loaded
    already."""
    bound = bind(plan, values)
    described = CodeObject(code.hsaco).kernels[code.kernel]
    block = (described.workgroup_size or (described.max_workgroup_size,))[0]
    kernarg = pack_arguments(described, list(bound.values.values()))
    function = function or gpu.load(code.hsaco, code.kernel)
    gpu.launch(function, plan.grid, block, kernarg, gpu.current_stream(), lambda: touched(bound, peers))
    return bound


def peer_memory(gpu: Gpu, group: Group, rank: int) -> Memory:
    """The rank's peer buffer, with what the group holds there."""
    memory = gpu.allocate(group.peer[rank].nbytes, "peer")
    memory.tensor.copy_(group.peer[rank])
    return memory


def given(one: Bench, group: Group, rank: int, peers: Sequence[Memory]) -> dict[str, Any]:
    """What the rank's launch is given on a group whose peer buffers are `peers`."""
    table = torch.tensor([m.address for m in peers], dtype=torch.int64)
    own = group.arguments(rank) | ({"sym": peers[rank].address, "peers": table} if peers else {})
    return {**fresh(one.plan, one.given[rank]), **own}


def waiting_said(gpu: ProcessGpu) -> None:
    """Print when the core calls without having run much: then the launch waits."""
    last, before = [0], gpu.node.device.progress
    assert before is not None

    def progress(instructions: int) -> None:
        if instructions - last[0] < 1_000_000:
            print("waiting", flush=True)
        last[0] = instructions
        before(instructions)

    gpu.node.device.progress = progress


def make_gpu(kind: str, arch: str, rank: int) -> Any:
    """An emulated GPU, or one of HIP."""
    if kind.startswith("hip"):
        from torch_on_cpu import CpuTorch

        from flymono.runtime.devices.hip import HipGpu

        return HipGpu(specs(), 0, CpuTorch(0))
    options: dict[str, Any] = {"seed": 0}
    if kind == "clock":  # registers of a wait that ended hold nothing: no finding
        options |= {"check": False, "on_standstill": "clock"}
    gpu = process_gpu(specs(), arch, rank, options)
    waiting_said(gpu)
    return gpu


def main(folder: Path, rank: int, build: str, kind: str = "emulator") -> dict[str, Any]:
    one = bench(build)
    plan, ranks = one.plan, len(one.given)
    group = Group.of([plan], ranks)
    gpu = make_gpu(kind, plan.key.arch, rank)
    mine = peer_memory(gpu, group, rank)
    handles = exchange(folder, rank, ranks, gpu.export(mine))
    peers = [mine if r == rank else gpu.open(h) for r, h in enumerate(handles)]
    if kind.endswith("-dying"):
        exchange(folder / "seen", rank, ranks, b"mapped")
        os._exit(9)
    if kind == "hip" and (folder / "seen").exists():
        exchange(folder / "seen", rank, ranks, b"mapped")
    bound = queue(gpu, plan, real(plan), given(one, group, rank, peers), peers)
    print("launched", flush=True)
    try:
        gpu.synchronise()
    except GpuError as error:
        return {"error": str(error)}
    finally:
        gpu.close()
    if reports := group.faults([plan]):
        return {"fault": [r.render() for r in reports]}
    return digests(Launched(bound, Counters(), 0), plan, group.epoch[rank])


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])), flush=True)
