"""vLLM's own `layer.forward` under its own metadata: rank 0 of a server whose kernels run on the emulator.

Ranks above 0 are runners of the project on the same node, a thread each. LAYER is one layer or two that
follow each other (2+3), which then run in one model step. Each step is compared with `flymono run layer`,
which the reference has judged.
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch
from harness import AnyBuild, FromBundle, Supplies, Worker, answer, serve, take_compiler_away
from real_layer import builds_of, forward, made

from flymono.runtime.plan.layers.host import needs_of
from flymono.specs import load

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "runner"))
ARCH, TP, ROWS, LAYER, *OPTIONS = sys.argv[1:]
TP, ROWS, LAYERS = int(TP), int(ROWS), [int(n) for n in LAYER.split("+")]
PADDED = 1 if "padded" in OPTIONS else 0
INDEXED = needs_of(load().arch[ARCH]).indexer == "mxfp4"


class Front:
    """Rank 0's end of the group; what the plan votes is what the others would vote."""

    def __init__(self, group: Any) -> None:
        self._group, self.rank, self.size = group, group.rank, group.size

    def all_gather(self, value: object, seconds: float) -> list[Any]:
        from flymono.runtime.plan.layers import Vote

        return [value] * self.size if isinstance(value, Vote) else self._group.all_gather(value, seconds)


def main() -> None:
    from serving import grounds, specs

    from flymono.runtime.devices.emulated import EmulatedNode
    from flymono.runtime.run.modules import Generated
    from flymono.runtime.runner import LocalRanks

    found = grounds(ARCH, TP, ROWS, tuple(LAYERS), PADDED)
    node, group = EmulatedNode(specs(), ARCH, TP), LocalRanks.make(TP)
    kernels: Any = AnyBuild(Generated(specs()))
    kernels.builds = builds_of(specs(), ARCH, TP, ROWS)
    supplies: Any = Supplies(Front(group[0]), node.gpus[0], kernels)
    if cache := os.environ.get("FLYMONO_TEST_NO_COMPILER"):
        take_compiler_away(Path(cache))
        supplies = FromBundle(Front(group[0]), node.gpus[0])
        kernels = supplies.kernels(specs(), ARCH, TP)
    node.code = kernels  # of the ranks above 0
    serve(supplies)
    indexer = {"attention_config": {"indexer_kv_dtype": "mxfp4"}} if INDEXED else {}
    bugs = [name for name in OPTIONS if name != "padded"]
    with Worker(ARCH, TP, **indexer) as worker, torch.no_grad():
        layers = made(worker, [(at.layer, at.experts) for at in found])
        results = {name: step(worker, layers, found, node, group, name) for name in ("", *bugs)}
    answer(experts=[list(at.experts) for at in found], **results)


def step(worker: Any, layers: Any, found: Any, node: Any, group: Any, bug: str) -> dict[str, Any]:
    """One step on all ranks; what differs from `run layer`, by layer and rank."""
    from serving import bits, on_ranks, ranks_of, run_chain, same_bits, specs, wanted

    from flymono.runtime.devices.gpu import GpuError
    from flymono.runtime.plan.layers import Path as LayerPath
    from flymono.runtime.runner import Place, Runner, Seam
    from flymono.runtime.vllm.server import running

    server, draft = running(), layers[0].mono.draft
    assert all(layer.mono.path is LayerPath.WHOLE for layer in layers)
    ranks = [ranks_of(found, r) for r in range(TP)]
    others: dict[int, Any] = getattr(node, "runners", {})
    widths = () if draft else (ROWS,)  # drafts are captured at other widths: made ready when they are met

    def work(rank: int) -> list[Any]:
        if rank == 0:
            return forward(worker, layers, ranks[0], bug)
        if rank not in others:
            others[rank] = Runner.create(
                node.gpus[rank], specs(), Place(ARCH, TP), group[rank], node.code, draft, widths,
                LAYERS, [], seconds=60,
            )  # fmt: skip
        return run_chain(others[rank], ranks[rank])

    try:
        outs = on_ranks(TP, work)
        node.runners = others
        on_ranks(TP, lambda r: node.gpus[r].synchronise())
    except (GpuError, ValueError) as error:
        return {"raised": str(error)}
    differs = [
        [same_bits(bits(Seam(*outs[r][i])), wanted(at, r)) for r in range(TP)] for i, at in enumerate(found)
    ]
    server.after_step()
    return {
        "differs": differs,
        "rope": max(layer.rope_differs for layer in layers),
        "counts": server.counts[draft].data(),
        "path": str(layers[0].mono.path),
        "selection": layers[0].selection,
        "engram": engram_of(layers[0]),
    }


def engram_of(layer: Any) -> dict[str, Any] | None:
    """Of an Engram layer: whether its lookup was given what vLLM's own path gives it."""
    if getattr(layer, "owed", None) is None:
        return None
    residual, hashes, mask = layer.engram.given
    settled = layer.mhc_post(*layer.owed)
    return {"settled": bool(torch.equal(residual, settled)), "hashes": hashes.tolist(), "mask": mask.tolist()}


main()
