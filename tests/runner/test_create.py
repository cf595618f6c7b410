"""A runner exists on every rank or on none: whatever fails on one, all fail alike and hold nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from serving import errors_on_ranks, on_ranks, specs

from flymono.runtime.devices.emulated import EmulatedGpu, EmulatedMemory, EmulatedNode
from flymono.runtime.devices.gpu import GpuError
from flymono.runtime.devices.null import NullGpu
from flymono.runtime.plan import KernelPlan, width_report
from flymono.runtime.plan.dims import dims_of
from flymono.runtime.plan.faults import fault_words
from flymono.runtime.plan.layout import peer_of
from flymono.runtime.plan.memory import memory_of, runner_bytes
from flymono.runtime.plan.placement import grid_of
from flymono.runtime.runner import LocalRanks, Place, Runner, RunnerError
from flymono.runtime.runner.buffers import STAND_IN
from flymono.specs.findings import UserError

ARCH, TP = "gfx950", 2


class NoCode:
    """Modules that are never asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def code(self, plan: KernelPlan) -> tuple[bytes, str]:
        self.asked.append(plan.key.id)
        raise UserError(f"no artefact for {plan.key.id}")


class Faulty:
    """A GPU of an emulated node on which one call fails."""

    def __init__(self, gpu: EmulatedGpu, call: str) -> None:
        self._gpu, self._call = gpu, call

    def __getattr__(self, name: str) -> Any:
        if name == self._call:
            return self._fail
        return getattr(self._gpu, name)

    def _fail(self, *_: object) -> EmulatedMemory:
        raise GpuError(f"{self._call} failed here")


def create(
    node: EmulatedNode, faulty: dict[int, str], modules: list[NoCode], **how: Any
) -> Callable[[int], Runner]:
    group = LocalRanks.make(len(node.gpus))
    how = {"widths": [1, 6], "seconds": 20} | how

    def work(rank: int) -> Runner:
        gpu: Any = Faulty(node.gpus[rank], faulty[rank]) if rank in faulty else node.gpus[rank]
        return Runner.create(
            gpu, specs(), Place(node.arch, len(node.gpus)), group[rank], modules[rank], **how
        )

    return work


@pytest.mark.parametrize(("arch", "tp"), [("gfx950", 2), ("gfx942", 4), ("gfx950", 4)])
@pytest.mark.parametrize(("bad", "call", "what"), [
    (1, "open", "opening peer memory"), (0, "allocate", "allocating"), (1, "export", "allocating"),
])  # fmt: skip
def test_one_ranks_failure_is_every_ranks_and_memory_is_given_back(
    arch: str, tp: int, bad: int, call: str, what: str
) -> None:
    node = EmulatedNode(specs(), arch, tp)
    modules = [NoCode() for _ in range(tp)]
    errors = errors_on_ranks(tp, create(node, {bad: call}, modules, whole=[3]))
    for error in errors:
        assert isinstance(error, RunnerError)
        assert [(r.rank, r.what) for r in error.reasons] == [(bad, what)]
        assert f"{call} failed here" in str(error)
    assert len({str(e) for e in errors}) == 1
    assert all(not gpu.memories and not gpu.functions for gpu in node.gpus)
    assert all(m.asked == [] for m in modules), "no kernel is looked for"
    runners = on_ranks(tp, create(node, {}, modules))
    assert all(gpu.memories for gpu in node.gpus), "without the failure the same ranks get their runners"
    for runner in runners:
        runner.close()


def test_a_missing_artefact_is_every_ranks_error() -> None:
    node = EmulatedNode(specs(), ARCH, TP)
    modules = [NoCode(), NoCode()]
    errors = errors_on_ranks(TP, create(node, {}, modules, whole=[3]))
    assert len({str(e) for e in errors}) == 1
    assert "no artefact for dsv41_k1-gfx950-tp2-s1-r2" in str(errors[0]) and "loading" in str(errors[0])
    assert all(not gpu.memories for gpu in node.gpus)


def test_ranks_that_differ_are_named_with_what_differs() -> None:
    node, group = EmulatedNode(specs(), ARCH, TP), LocalRanks.make(TP)

    def work(rank: int) -> Runner:
        place = Place(ARCH, TP)
        return Runner.create(
            node.gpus[rank], specs(), place, group[rank], NoCode(), widths=[6, 1][rank:], seconds=20
        )

    errors = errors_on_ranks(TP, work)
    assert len({str(e) for e in errors}) == 1
    assert "rank 1, planning: widths is (1,), on rank 0 (6, 1)" in str(errors[0])
    assert all(not gpu.memories for gpu in node.gpus)


def test_a_rank_that_does_not_come_is_named() -> None:
    node, group = EmulatedNode(specs(), "gfx942", 4), LocalRanks.make(4)

    def work(rank: int) -> Runner:
        if rank == 2:
            raise RuntimeError("this rank is gone")
        return Runner.create(node.gpus[rank], specs(), Place("gfx942", 4), group[rank], NoCode(), seconds=1)

    errors = errors_on_ranks(4, work)
    for rank in (0, 1, 3):
        assert "rank 2, planning: no answer" in str(errors[rank])
    assert all(not gpu.memories for gpu in node.gpus)


class Alone:
    """The one rank of a group of any size: everybody says the same."""

    def __init__(self, size: int) -> None:
        self.rank, self.size = 0, size

    def all_gather(self, value: object, seconds: float) -> list[Any]:
        return [value] * self.size


REFUSED = (
    (NullGpu("gfx942"), Place("gfx950", 2), 2, "on a GPU that is gfx942"),
    (NullGpu("gfx950", compute_units=32), Place("gfx950", 2), 2, "32 compute units for 256 workgroups"),
    (NullGpu("gfx942"), Place("gfx942", 2), 4, "no kernels for dsv41 on gfx942 TP2"),
    (NullGpu("gfx950"), Place("gfx950", 2), 4, "a group of 4 ranks for kernels of TP2"),
    (NullGpu("gfx950"), Place("gfx950", 3), 3, "no kernels for"),
    (NullGpu("gfx950"), Place("gfx950", 2, "other"), 2, "no kernels for"),
)


@pytest.mark.parametrize(("gpu", "place", "size", "text"), REFUSED)
def test_what_the_kernels_are_not_planned_for_is_refused(
    gpu: NullGpu, place: Place, size: int, text: str
) -> None:
    with pytest.raises(RunnerError, match=text):
        Runner.create(gpu, specs(), place, Alone(size), NoCode())


def test_widths_that_no_step_has_are_refused() -> None:
    with pytest.raises(RunnerError, match="steps of 0, 49 rows: gfx950 takes 1 to 48 rows"):
        Runner.create(NullGpu("gfx950"), specs(), Place("gfx950", 2), Alone(2), NoCode(), widths=[0, 6, 49])


def test_nothing_is_made_ready_inside_a_capture_and_the_width_is_named() -> None:
    gpu = NullGpu("gfx950")
    runner = Runner.create(gpu, specs(), Place("gfx950", 2), Alone(2), NoCode(), widths=[6])
    gpu.capturing = True
    with pytest.raises(RunnerError, match="steps of 12 rows would be made ready inside a graph capture"):
        runner.prepare([12])
    gpu.capturing = False
    runner.prepare([12])
    assert sorted(runner.buffers.widths) == [6, 12]


def test_close_may_be_called_again_and_ends_the_runner() -> None:
    node = EmulatedNode(specs(), ARCH, TP)
    runners = on_ranks(TP, create(node, {}, [NoCode(), NoCode()]))
    for runner in [*runners, *runners]:
        runner.close()
    assert all(not gpu.memories for gpu in node.gpus)
    assert runners[0].nbytes == 0
    with pytest.raises(RunnerError, match="closed"):
        runners[0].prepare([6])


@pytest.mark.parametrize(("arch", "tp"), [("gfx950", 2), ("gfx942", 4)])
@pytest.mark.parametrize("draft", [False, True])
def test_what_is_allocated_is_what_the_memory_statement_says(arch: str, tp: int, draft: bool) -> None:
    """Beside the statement: the table of peers, what stands in for absent inputs, fault words."""
    (model,) = specs().model.values()
    spec, widths = specs().arch[arch], [1, 6, 42]
    report, d = width_report(model, spec), dims_of(model, tp, draft=draft)
    node = EmulatedNode(specs(), arch, tp)
    runners = on_ranks(tp, create(node, {}, [NoCode()] * tp, widths=widths, draft=draft))
    stated = memory_of(model, spec, tp, report, widths)
    scratch = stated.draft_scratch if draft else stated.scratch
    peer = peer_of(d, report.limit.rows, report.limit.rows).total
    extra = 8 * tp + STAND_IN + fault_words().words * 4
    want = (
        sum(n for _, n in scratch)
        + peer
        + runner_bytes(d, report.limit.rows, grid_of(spec).workgroups)
        + extra
    )
    assert runners[0].nbytes == want
    own = [m for m in node.gpus[0].memories.values() if m.own]
    assert sum(m.nbytes for m in own) == want
