"""One of two vLLM processes of a TP2 server: `pair.py ARCH RANK FOLDER LAYER MODE EXPERTS`.

Both have vLLM's own group over gloo, build and load the real layer with their rank's weights, and run vLLM's
forward of it; peer memory is shared between the processes. MODE: `run`; `kill`: rank 1 dies in the middle of
its second launch; `closed`: rank 1 cannot open its peer's memory.
"""

import hashlib
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from harness import AnyBuild, Worker, answer, serve
from real_layer import builds_of, forward, made

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "runner"))
ARCH, RANK, FOLDER, LAYER, MODE, EXPERTS = sys.argv[1:]
RANK, LAYER, FOLDER = int(RANK), int(LAYER), Path(FOLDER)
KILLED = FOLDER / "killed"


class Pair:
    """Resources of a process: vLLM's own group, an emulated GPU whose peer memory others map, any kernel."""

    def __init__(self, specs: Any, gpu: Any, kernels: Any) -> None:
        self._specs, self._gpu, self._kernels = specs, gpu, kernels

    def ranks(self) -> Any:
        from flymono.runtime.vllm.resources import VllmResources

        return VllmResources().ranks()

    def gpu(self, specs: Any) -> Any:
        return self._gpu

    def kernels(self, specs: Any, arch: str, tp: int) -> Any:
        self._kernels.arch = arch
        return self._kernels


def main() -> None:
    from serving import Rank, specs

    from flymono.runtime.devices.processes import process_gpu
    from flymono.runtime.run.layer_command import prepare_layer
    from flymono.runtime.run.layer_options import LayerOptions
    from flymono.runtime.run.modules import Generated

    plain = {"check": False, "on_standstill": "clock"} if MODE == "kill" else {}
    gpu = process_gpu(specs(), ARCH, RANK, {"seed": 0} | plain)
    kernels = AnyBuild(Generated(specs()))
    kernels.builds = builds_of(specs(), ARCH, 2, 1)
    if RANK == 1 and MODE == "kill":
        die_later(gpu)
    if RANK == 1 and MODE == "closed":
        gpu.open = refused
    layer = prepare_layer(LayerOptions(arch=ARCH, tp=2, rows=1, layer=LAYER), specs())
    own = Rank.of(SimpleNamespace(layer=layer, weights=lambda rank: None), RANK)
    serve(Pair(specs(), gpu, kernels))
    with Worker(ARCH, 2, RANK, world=str(FOLDER / "store")) as worker, torch.no_grad():
        layers = made(worker, [(layer, [int(e) for e in EXPERTS.split(",")])])
        if MODE == "closed":
            answer(**declined(layers[0], own))
        else:
            answer(**ran(worker, layers, own, gpu))
    sys.stdout.flush()
    os._exit(0)  # gloo's threads wait for a peer that may have gone


def die_later(gpu: Any) -> None:
    """Kill this process when its second launch (K2) is under way: the core calls every two million executed
    instructions."""
    before, ended = gpu.node.device.progress, list[str]()
    gpu.node.on_done = lambda rank, kernel, counted: ended.append(kernel)

    def progress(instructions: int) -> None:
        if ended:
            KILLED.write_text(str(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)
        before(instructions)

    gpu.node.device.progress = progress


def refused(handle: bytes) -> Any:
    from flymono.runtime.devices.gpu import GpuError

    raise GpuError("hipIpcOpenMemHandle: hipErrorMapFailed: mapping failed")


def ran(worker: Any, layers: Any, own: Any, gpu: Any) -> dict[str, Any]:
    """Digests of the layer's outputs, or what a process is told whose peer has died."""
    from serving import bits

    from flymono.runtime.devices.gpu import GpuError
    from flymono.runtime.runner import Seam
    from flymono.runtime.runner.faults import FaultError
    from flymono.runtime.vllm.server import running

    said = list[str]()
    try:
        (outs,) = forward(worker, layers, [own])
        gpu.synchronise()
    except (GpuError, RuntimeError) as error:
        said.append(str(error))
        outs = None
    seconds = time.time() - float(KILLED.read_text()) if KILLED.exists() else None
    server, faults = running(), list[str]()
    for _ in range(2):  # the next host call says it, and the one after that
        try:
            server.after_step()
        except FaultError as error:
            faults.append(str(error))
    found = {} if outs is None or faults else {
        n: hashlib.sha256(b.numpy().tobytes()).hexdigest() for n, b in bits(Seam(*outs)).items()
    }  # fmt: skip
    counts = server.counts[layers[0].mono.draft].data()
    return {"digests": found, "counts": counts, "faults": faults, "said": said, "seconds": seconds}


def declined(layer: Any, own: Any) -> dict[str, Any]:
    """What the docking class says where no rank may launch: vLLM's path."""
    from flymono.runtime.vllm.server import running

    x, residual, post, comb, pre = own.given
    made = layer.mono(layer, x, own.case.k1.pos, residual, post, comb, pre)
    server = running()
    return {
        "declined": made is None, "reasons": [str(r.code) for r in server.faults],
        "runners": len(server.runners),
        "copies": sum(one.copies.nbytes for one in server.layers.values()),
    }  # fmt: skip


main()
