"""The runner on the HIP device: a captured layer, replayed, and after its weights changed where they lie."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from serving import Rank, Server, bits, ground, on_ranks, reload, same_bits, wanted

from flymono.runtime.devices.hip import HipGpu, HipGraph
from flymono.runtime.plan.faults import BOUND
from flymono.runtime.runner import Seam

Pair = tuple[HipGpu, HipGpu]
PLAIN = ("gfx950", 2, 1, 3)  # ratio 2, folds


@pytest.fixture
def server(gpus: Pair) -> Iterator[Server]:
    """Runners of both devices, a thread a rank, with the layer's kernels loaded before a capture."""
    arch, tp, rows, number = PLAIN
    server = Server.start(arch, tp, [rows], node=SimpleNamespace(gpus=gpus), whole=[number])
    yield server
    server.close()


def captured(server: Server, ranks: list[Rank]) -> list[tuple[HipGraph, Seam]]:
    """Each rank's launches as a graph, and the outputs that it writes."""

    def record(rank: int) -> tuple[HipGraph, Seam]:
        gpu = server.node.gpus[rank]
        gpu.begin_capture()
        made = ranks[rank].run(server.runners[rank])
        return gpu.end_capture(), made  # type: ignore[return-value]

    return on_ranks(server.tp, record)


def replayed(server: Server, ranks: list[Rank], recorded: list[tuple[HipGraph, Seam]]) -> list[Seam]:
    """Outputs of one more replay, which begin as what no kernel writes; the window cache as the step found
    it."""
    for rank, (_, made) in zip(ranks, recorded, strict=True):
        rank.step.swa.copy_(Rank.of(ground(*PLAIN), 0).step.swa)
        for output in made:
            assert output is not None
            output.view(torch.uint8).fill_(0xCB)
    for graph, _ in recorded:
        graph.replay()
    server.finish()
    return [made for _, made in recorded]


def test_a_reload_between_replays_changes_the_result_without_a_new_capture(server: Server) -> None:
    """Both results are those of `run layer` with the same weights, which the reference has found right."""
    old, new = ground(*PLAIN), ground(*PLAIN, weights=5)
    ranks = [Rank.of(old, r) for r in range(server.tp)]
    addresses = [[t.data_ptr() for t in (*r.weights.k1.values(), *r.weights.ffn.values())] for r in ranks]
    recorded = captured(server, ranks)
    assert [r.bound for r in server.runners] == [BOUND] * 2, "a captured launch waits as long as a server may"
    try:
        for weights in (old, old, new, new):
            for number, rank in enumerate(ranks):
                reload(rank, weights, number)
            for number, made in enumerate(replayed(server, ranks, recorded)):
                off = same_bits(bits(made), wanted(weights, number))
                assert off == [], f"rank {number}"
    finally:
        for number, rank in enumerate(ranks):
            reload(rank, old, number)
    assert same_bits(wanted(old, 0), wanted(new, 0)) != [], "the weights matter"
    assert addresses == [
        [t.data_ptr() for t in (*r.weights.k1.values(), *r.weights.ffn.values())] for r in ranks
    ]
    for runner in server.runners:
        runner.health(settled=True)
        assert runner.epoch() == 4 and bool(runner.sound())
