"""Memory that other processes and threads change while a launch runs, and waiting on it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import external_programs as programs
import numpy as np
import pytest
from external_programs import RESTING, ROUNDS, WORKING, Shared, make
from machine_asm import must_pass

SCRIPT = Path(programs.__file__)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    yield make(tmp_path / "shared")


def start(file: Path, rank: int, program: str) -> subprocess.Popen[str]:
    """A rank in a process of its own."""
    command = [sys.executable, str(SCRIPT), str(file), str(rank), program]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def counted(shared: Shared, rank: int) -> tuple[set[int], set[int]]:
    """What each lane found of the rounds: differing bits, and the rounds that it made."""
    pairs = shared.results[rank][: 64 * 8].view(np.uint32).reshape(64, 2)
    return set(pairs[:, 0].tolist()), set(pairs[:, 1].tolist())


def test_two_processes_hand_pairs_to_and_fro(file: Path) -> None:
    """Every round waits for the other rank: neither launch is stuck, and a word and its tag come together."""
    peer = start(file, 1, "rounds")
    mine = Shared(file, 0)
    must_pass(mine.run("rounds"))
    assert peer.communicate(timeout=120)[0].strip() == ""
    assert counted(mine, 0) == counted(mine, 1) == ({0}, {ROUNDS})


def test_two_threads_run_launches_at_a_time(file: Path) -> None:
    """A launch does not hold the interpreter's lock, or one thread would wait for the other for ever."""
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda rank: Shared(file, rank).run("rounds", check=bool(rank)), (0, 1)))
    for launch in done:
        must_pass(launch)
    shared = Shared(file, 0)
    assert counted(shared, 0) == counted(shared, 1) == ({0}, {ROUNDS})


def test_atomics_of_two_processes_lose_nothing(file: Path) -> None:
    peer = start(file, 1, "adds")
    mine = Shared(file, 0)
    must_pass(mine.run("adds"))
    assert peer.communicate(timeout=120)[0].strip() == ""
    assert [int(m[:4].view(np.uint32)[0]) for m in mine.mail] == [2 * 64 * ROUNDS] * 2


def test_a_killed_rank_ends_the_launch_that_waits_for_it(file: Path) -> None:
    """Also while its parent has not yet taken notice of its death."""
    peer = start(file, 1, "clocked")  # waits for this rank and would for ever
    shared, launches = Shared(file, 0), []
    waiting = threading.Thread(target=lambda: launches.append(shared.run("clocked")))
    waiting.start()
    while shared.records[1][1] != WORKING:
        time.sleep(0.05)
    time.sleep(0.5)
    assert waiting.is_alive()
    peer.kill()
    killed = time.monotonic()
    waiting.join(60)
    assert time.monotonic() - killed < 10
    peer.communicate()
    first = launches[0].findings[0]
    assert first.kind == "rank-gone" and f"rank 1 (process {peer.pid})" in first.message
    assert "theirs" not in first.message and launches[0].findings[1].buffer == "mine"


def clock_of_a_wait(file: Path, peer: int) -> int:
    """100 MHz ticks that a launch sees while it waits about a second for a rank that says `peer` of
    itself."""
    shared, done = Shared(file, 0), threading.Event()

    def other() -> None:
        shared.say(peer, 1)
        until = time.monotonic() + 1
        while time.monotonic() < until:
            shared.records[1][2] += 1
            time.sleep(0.01)
        shared.mail[0].view(np.uint32)[:128:2] = 1
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    must_pass(shared.run("clocked"))
    thread.join()
    assert done.is_set()
    return int(shared.results[0][:8].view(np.uint64)[0])


def test_the_clock_stands_still_while_a_peer_works(file: Path) -> None:
    assert clock_of_a_wait(file, WORKING) < 1_000_000


def test_the_clock_goes_on_while_no_peer_works(file: Path) -> None:
    assert clock_of_a_wait(file, RESTING) > 20_000_000


def test_a_wait_on_nobody_ends(file: Path) -> None:
    """No rank has work, so nobody will ever send."""
    shared = Shared(file, 0)
    shared.say(RESTING, 1)
    kinds = shared.run("clocked", patience=0.3).kinds
    assert kinds[:2] == ["all-resting", "all-waiting"]


def test_a_wait_on_own_memory_is_stuck_as_ever(file: Path) -> None:
    """External memory elsewhere in the launch does not hide it."""
    assert Shared(file, 0).run("clocked", external=("theirs",)).kinds == ["all-waiting"]
