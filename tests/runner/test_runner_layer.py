"""Whole layers through runners on emulated GPUs: the bits of `run layer`, right by the reference."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from serving import (
    Rank,
    Server,
    bits,
    ground,
    ground_after,
    judged,
    on_ranks,
    reload,
    same_bits,
    wanted,
)

from flymono.runtime.devices.gpu import GpuError
from flymono.runtime.runner import RunnerError, Seam

PLAIN = ("gfx950", 2, 1, 3)  # ratio 2, folds
LAYERS = (
    ("gfx950", 2, 1, 0),  # first: nothing folded, the constant pre gate, no compressed cache
    ("gfx942", 4, 1, 2),  # index and kv source: selection between the launches, key list
    ("gfx950", 2, 1, 20),  # index and kv source, keys made in K2
    ("gfx950", 2, 6, 3),
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Runners of the plain layer's ranks."""
    arch, tp, rows, _ = PLAIN
    server = Server.start(arch, tp, [rows])
    yield server
    server.close()


def ranks_of(at: object = None) -> list[Rank]:
    at = at or ground(*PLAIN)
    return [Rank.of(at, r) for r in range(at.tp)]  # type: ignore[attr-defined, arg-type]


def test_a_layer_has_the_bits_of_run_layer(server: Server) -> None:
    at, ranks = ground(*PLAIN), ranks_of()
    epoch = server.runners[0].epoch()
    outs = server.run(ranks)
    for r, rank in enumerate(ranks):
        assert same_bits(bits(outs[r]), wanted(at, r)) == [], f"rank {r}"
        swa = at.done.steps[0].done[r].bound.tensor("swa")
        assert torch.equal(rank.step.swa.as_strided((swa.numel(),), (1,)), swa), "the window cache"
    assert [r.epoch() for r in server.runners] == [epoch + 1] * server.tp
    assert outs[0].post is not None and outs[0].post.shape == (1, 4, 1)


def test_a_capture_replays_what_was_launched_on_what_memory_holds_then(server: Server) -> None:
    at, ranks = ground(*PLAIN), ranks_of()

    def record(rank: int) -> tuple[object, Seam]:
        with server.node.gpus[rank].capture() as graphs:
            made = ranks[rank].run(server.runners[rank])
        return graphs[0], made

    recorded = on_ranks(server.tp, record)
    before = [bits(made) for _, made in recorded]
    server.finish()
    assert all(same_bits(bits(made), was) == [] for (_, made), was in zip(recorded, before, strict=True))
    first = [t.clone() for t in ranks[0].given if t is not None]
    for change in (False, True, False):
        for rank in ranks:
            for own, was in zip((t for t in rank.given if t is not None), first, strict=True):
                own.copy_(was * 0.5 if change else was)
            rank.step.swa.copy_(Rank.of(at, 0).step.swa)
        on_ranks(server.tp, lambda r: recorded[r][0].replay())  # type: ignore[attr-defined]
        server.finish()
        for r, (_, made) in enumerate(recorded):
            off = same_bits(bits(made), wanted(at, r))
            assert bool(off) is change, f"rank {r}: {off}"
        assert same_bits(bits(recorded[0][1]), bits(recorded[1][1])) == []
        if change:
            changed = [bits(made) for _, made in recorded]
            halved = Seam(*(None if t is None else t.clone() for t in ranks[0].given))
            eager = ranks_of()
            outs = on_ranks(server.tp, lambda r, e=eager, g=halved: e[r].run(server.runners[r], given=g))  # type: ignore[misc]
            server.finish()
            assert [same_bits(bits(o), c) for o, c in zip(outs, changed, strict=True)] == [[], []]


def test_a_width_that_was_never_made_ready_is_named_inside_a_capture(server: Server) -> None:
    at, gpu, runner = ground(*PLAIN), server.node.gpus[0], server.runners[0]
    rank = Rank.of(at, 0)
    wide = Seam(*(None if t is None else torch.cat([t] * 5) for t in rank.given))
    with pytest.raises(RunnerError, match="5 rows would be made ready inside a graph capture"), gpu.capture():
        rank.run(runner, given=wide)
    assert 5 not in runner.buffers.widths and not gpu.is_capturing()
    with pytest.raises(GpuError, match="inside a capture"), gpu.capture():
        gpu.allocate(16)


@pytest.mark.slow
def test_layers_in_a_row_hand_on_and_use_both_peer_halves(server: Server) -> None:
    one, other = ground(*PLAIN), ground_after(*PLAIN)
    for _ in range(2):
        first = server.run(ranks_of())
        again = ranks_of(other)  # which has the second layer's experts in place
        outs = on_ranks(server.tp, lambda r, f=first, a=again: a[r].run(server.runners[r], given=f[r]))  # type: ignore[misc]
        server.finish()
        for r in range(server.tp):
            assert same_bits(bits(first[r]), wanted(one, r)) == []
            assert same_bits(bits(outs[r]), wanted(other, r)) == []


def test_a_reload_in_place_between_replays_gives_the_new_weights_result(server: Server) -> None:
    at, new = ground(*PLAIN), ground(*PLAIN, weights=5)
    ranks = ranks_of()

    def record(rank: int) -> tuple[object, Seam]:
        with server.node.gpus[rank].capture() as graphs:
            made = ranks[rank].run(server.runners[rank])
        return graphs[0], made

    recorded = on_ranks(server.tp, record)
    held = [(dict(r.weights.k1), dict(r.weights.ffn)) for r in ranks]
    addresses = [[t.data_ptr() for part in parts for t in part.values()] for parts in held]
    try:
        for weights, ground_ in ((at, at), (new, new)):
            for r, rank in enumerate(ranks):
                reload(rank, weights, r)
                rank.step.swa.copy_(Rank.of(at, 0).step.swa)
            on_ranks(server.tp, lambda r: recorded[r][0].replay())  # type: ignore[attr-defined]
            server.finish()
            for r, (_, made) in enumerate(recorded):
                assert same_bits(bits(made), wanted(ground_, r)) == [], f"rank {r}"
    finally:
        for r, rank in enumerate(ranks):
            reload(rank, at, r)
    assert addresses == [[t.data_ptr() for part in parts for t in part.values()] for parts in held]


def test_the_reference_judges_every_stage_of_a_runners_launches(server: Server) -> None:
    at, ranks = ground(*PLAIN), ranks_of()
    outs = server.run(ranks)
    wrong = [f"{v.stage} {v.output}: {v.worst}" for v in judged(at, server, ranks, outs) if not v.ok]
    assert wrong == []
    outs[1].residual.view(-1)[0] += 1
    assert any(not v.ok for v in judged(at, server, ranks, outs)), "the judge can say no"


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "tp", "rows", "number"), LAYERS)
def test_every_kind_of_layer_has_the_bits_of_run_layer(arch: str, tp: int, rows: int, number: int) -> None:
    at = ground(arch, tp, rows, number)
    server = Server.start(arch, tp, [rows])
    outs = server.run(ranks := ranks_of(at))
    for r in range(tp):
        assert same_bits(bits(outs[r]), wanted(at, r)) == [], f"rank {r}"
    if at.layer.plan.kind.index:
        with pytest.raises(RunnerError, match="give `select`"):
            server.runners[0].layer(ranks[0].weights, ranks[0].step, ranks[0].given)
        _captured(server, at)
    server.close()


def _captured(server: Server, at: object) -> None:
    """The selection is recorded between the launches and runs at each replay."""
    ranks = ranks_of(at)

    def record(rank: int) -> tuple[object, Seam]:
        with server.node.gpus[rank].capture() as graphs:
            made = ranks[rank].run(server.runners[rank])
        return graphs[0], made

    recorded = on_ranks(server.tp, record)
    on_ranks(server.tp, lambda r: recorded[r][0].replay())  # type: ignore[attr-defined]
    server.finish()
    for r, (_, made) in enumerate(recorded):
        assert same_bits(bits(made), wanted(at, r)) == []  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "tp"), [("gfx950", 2), ("gfx942", 4)])
def test_a_draft_layer_runs_on_its_own_runner(arch: str, tp: int) -> None:
    at = ground(arch, tp, 1, 40)
    server = Server.start(arch, tp, [1], draft=True)
    outs = server.run(ranks_of(at))
    for r in range(tp):
        assert same_bits(bits(outs[r]), wanted(at, r)) == [], f"rank {r}"
    target = Server.start(arch, tp, [1], node=server.node)
    with pytest.raises(RunnerError, match="layer 40 runs whole on the draft's runner only"):
        ranks_of(at)[0].run(target.runners[0])
    target.close()
    server.close()
