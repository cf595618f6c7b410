"""Ranks that tell one another things: in one process, and over gloo between processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from serving import errors_on_ranks, on_ranks

from flymono.runtime.runner.agree import same, together
from flymono.runtime.runner.errors import Doing
from flymono.runtime.runner.ranks import LocalRanks, RanksError


def test_everybody_hears_everybody_in_order() -> None:
    ranks = LocalRanks.make(3)
    for n in range(3):
        assert on_ranks(3, lambda r, n=n: ranks[r].all_gather((r, n), 10)) == [[(0, n), (1, n), (2, n)]] * 3


def test_who_does_not_answer_is_named() -> None:
    ranks = LocalRanks.make(3)
    with pytest.raises(RanksError, match=r"ranks 1, 2 did not answer within 0.05 s"):
        ranks[0].all_gather(0, 0.05)


def test_an_error_of_one_rank_is_everybodys() -> None:
    ranks = LocalRanks.make(3)

    def work(rank: int) -> list[int]:
        def act() -> int:
            if rank:
                raise MemoryError(f"{rank} GiB are missing")
            return rank

        return together(ranks[rank], Doing.OPENING, act, 10)

    errors = errors_on_ranks(3, work)
    assert len({str(e) for e in errors}) == 1
    assert "rank 1, opening peer memory: 1 GiB are missing" in str(errors[0]) and "rank 2" in str(errors[0])
    assert errors[0].__cause__ is None and isinstance(errors[1].__cause__, MemoryError)


def test_facts_that_differ_are_shown() -> None:
    ranks = LocalRanks.make(2)
    errors = errors_on_ranks(2, lambda r: same(ranks[r], Doing.PLANNING, {"a": 1, f"only {r}": r}, 10))
    assert "only 0 is None, on rank 0 0" in str(errors[1]) and "only 1 is 1, on rank 0 None" in str(errors[1])


# ------------------------------------------------------------------ gloo, a process a rank

PROCESS = Path(__file__).with_name("gloo_process.py")


def test_a_process_that_died_is_named_by_those_that_live(tmp_path: Path) -> None:
    size, dead = 4, 1
    started = [
        subprocess.Popen([sys.executable, str(PROCESS), str(rank), str(size), str(dead), str(tmp_path)])
        for rank in range(size)
    ]
    try:
        assert [p.wait(400) for p in started] == [0] * size
    finally:
        for process in started:
            process.kill()
    said = {path.name: path.read_text().splitlines() for path in tmp_path.glob("*.txt")}
    assert set(said) == {"0.txt", "2.txt"}
    for first, *error in said.values():
        assert first == "[0, 1, 2]"
        assert len(error) == 2 and "rank 1, opening peer memory: no answer" in error[1]
