"""Litmus programs: outcomes that the order rules forbid must never appear, over orders and seeds.

Thread i of each workgroup works on words x[i] and y[i], so one launch is 256 tests. All accesses are agent
scope (sc1) and a wait stands where the rules need one: vmcnt(0) orders two accesses of one wave.
"""

import numpy as np
import pytest
from handwritten import END, PROLOGUE, A, B, C, assemble, constant, load, loop_until_one, role, store, wait
from programs import ARCHS, launch

_RUNS = (
    ("linear", 0, 4096, "late"),
    ("reversed", 0, 4096, "late"),
    ("linear", 0, 1, "early"),
    ("random", 1, 1, "late"),
    ("random", 2, 2, "random"),
    ("random", 3, 5, "random"),
    ("random", 4, 3, "early"),
)
SCHEDULES = [dict(zip(("order", "seed", "quantum", "sampling"), run, strict=True)) for run in _RUNS]
ROOM = 1024  # bytes of one result slot: 256 threads


def outcomes(arch: str, groups: int, *roles: tuple) -> tuple[set[tuple[int, ...]], np.ndarray, np.ndarray]:
    """All result tuples (two slots a reader, in c) of every thread over the schedules; x and y of the last
    run."""
    code = assemble(arch, *PROLOGUE, *(ins for body in roles for ins in body))
    seen: set[tuple[int, ...]] = set()
    finals = []
    for options in SCHEDULES:
        x, y, r = np.zeros(256, np.int32), np.zeros(256, np.int32), np.full(4 * 256, -1, np.int32)
        launch(arch, "blank", (x, y, r), 0, groups, code, **options)
        seen |= {tuple(int(value) for value in row) for row in r.reshape(4, 256).T}
        finals.append((x, y))
    return seen, *map(np.array, zip(*finals, strict=True))


def results(slot: int, *registers: int) -> tuple:
    return tuple(
        store(C, register, imm=0, sc1=False).but(imm=(slot + i) * ROOM)
        for i, register in enumerate(registers)
    )


ONE = constant(2, 1)
both = pytest.mark.parametrize("arch", ARCHS)


@both
def test_message_passing(arch: str) -> None:
    """A reader that saw the flag sees the data."""
    writer = role(0, ONE, store(A, 2), wait(), store(B, 2))
    reader = role(1, *loop_until_one(3, B), load(4, A), wait(), *results(0, 3, 4))
    seen, _, _ = outcomes(arch, 2, writer, reader)
    assert seen == {(1, 1, -1, -1)}


@both
def test_store_buffering(arch: str) -> None:
    """Both write, wait, read the other's word: at least one must see the other."""
    seen, _, _ = outcomes(
        arch,
        2,
        role(0, ONE, store(A, 2), wait(), load(3, B), wait(), *results(0, 3)),
        role(1, ONE, store(B, 2), wait(), load(3, A), wait(), *results(1, 3)),
    )
    assert seen and all(row[:2] != (0, 0) for row in seen)
    assert len(seen) > 1, "the orders never changed who came first"


@both
def test_load_buffering(arch: str) -> None:
    """Both read, wait, write the other's word: not both may see the other's later write."""
    seen, _, _ = outcomes(
        arch,
        2,
        role(0, ONE, load(3, A), wait(), store(B, 2), *results(0, 3)),
        role(1, ONE, load(3, B), wait(), store(A, 2), *results(1, 3)),
    )
    assert all(row[:2] != (1, 1) for row in seen)


@both
def test_coherence_of_reads(arch: str) -> None:
    """One word written 1 then 2 never goes back for a reader."""
    seen, x, _ = outcomes(
        arch,
        2,
        role(0, ONE, store(A, 2), wait(), constant(5, 2), store(A, 5)),
        role(1, load(3, A), wait(), load(4, A), wait(), *results(0, 3, 4)),
    )
    assert all(row[0] <= row[1] for row in seen)
    assert (x == 2).all()


@both
def test_independent_reads(arch: str) -> None:
    """Two readers agree on the order of two independent writes."""
    seen, _, _ = outcomes(
        arch,
        4,
        role(0, ONE, store(A, 2)),
        role(1, ONE, store(B, 2)),
        role(2, load(3, A), wait(), load(4, B), wait(), *results(0, 3, 4)),
        role(3, load(3, B), wait(), load(4, A), wait(), *results(2, 3, 4)),
    )
    assert all(row != (1, 0, 1, 0) for row in seen)


@both
def test_two_writes_each(arch: str) -> None:
    """x=1; y=2 against y=1; x=2: not both words may end at 1."""
    two = constant(3, 2)
    _, x, y = outcomes(
        arch,
        2,
        role(0, ONE, two, store(A, 2), wait(), store(B, 3)),
        role(1, ONE, two, store(B, 2), wait(), store(A, 3)),
    )
    assert not ((x == 1) & (y == 1)).any()


@both
def test_a_wave_sees_its_own_stores_in_order(arch: str) -> None:
    """Same wave, same address, no wait between: the load returns the younger store."""
    seen, _, _ = outcomes(
        arch, 1, role(0, ONE, constant(5, 2), store(A, 2), store(A, 5), load(3, A), wait(), *results(0, 3))
    )
    assert seen == {(2, -1, -1, -1)}


@both
def test_starved_workgroup(arch: str) -> None:
    """A producer that runs only when nobody else can: the pollers must not run for ever before it."""
    writer = role(0, ONE, store(A, 2), wait(), store(B, 2))
    reader = role(1, *loop_until_one(3, B), load(4, A), wait(), *results(0, 3, 4))
    code = assemble(arch, *PROLOGUE, *writer, *reader)
    x, y, r = np.zeros(256, np.int32), np.zeros(256, np.int32), np.full(1024, -1, np.int32)
    launch(arch, "blank", (x, y, r), 0, 2, code, order="starve:0")
    assert (r[:512] == 1).all()


def test_schedules_differ_between_seeds() -> None:
    """Random order is random: over a few seeds the pollers need different numbers of instructions."""
    code = assemble(
        "gfx942", *PROLOGUE, *role(3, ONE, store(A, 2), wait(), store(B, 2)), *loop_until_one(3, B), END
    )
    counts = set()
    for seed in range(6):
        x, y = np.zeros(256, np.int32), np.zeros(256, np.int32)
        counts.add(launch("gfx942", "blank", (x, y, 0), 0, 4, code, order="random", seed=seed).instructions)
    assert len(counts) > 1
