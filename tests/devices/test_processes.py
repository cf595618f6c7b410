"""Ranks in processes of their own: the same bits as side by side in one process, and an end when one dies."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rank as rank_script
import torch
from benches import bench, real, specs
from rank import digests

from flymono.runtime.devices.gpu import GpuError
from flymono.runtime.devices.processes import ProcessGpu, process_gpu

BUILD = "dsv41_ffn-gfx950-tp2-s1"


class Rank:
    """A rank's process; its lines are kept as they come."""

    def __init__(self, folder: Path, rank: int, build: str, kind: str) -> None:
        command = [sys.executable, rank_script.__file__, str(folder), str(rank), build, kind]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def close(self) -> None:
        """End it, if it has not ended."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def until(self, line: str, seconds: float = 300) -> None:
        """Wait for a line."""
        end = time.monotonic() + seconds
        while line not in self.lines:
            assert self.process.poll() is None and time.monotonic() < end, (line, self.lines)
            time.sleep(0.02)

    def result(self, seconds: float = 300) -> dict[str, Any]:
        """Its last line."""
        self.process.wait(seconds)
        self._reader.join(seconds)
        return dict(json.loads(self.lines[-1]))


@pytest.fixture
def ranks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Rank]]:
    """Two ranks of a kind (`rank.py`)."""
    real(bench(BUILD).plan)  # compiled before two processes ask for it
    started = [Rank(tmp_path, r, BUILD, getattr(request, "param", "emulator")) for r in range(2)]
    yield started
    for one in started:
        one.close()


@pytest.mark.slow
def test_two_processes_leave_the_bits_of_one(ranks: list[Rank]) -> None:
    one = bench(BUILD)
    ran = one.run(real(one.plan))
    want = [digests(d, one.plan, e) for d, e in zip(ran.done, ran.group.epoch, strict=True)]
    assert len(want[0]) > 1
    assert [r.result() for r in ranks] == want
    assert all(v.ok for v in one.judge(ran.done))


def killed_while_the_other_waits(ranks: list[Rank]) -> dict[str, Any]:
    """Stop rank 1 in its launch until rank 0 does nothing but wait for it, then kill it: what rank 0 says."""
    ranks[1].until("launched")
    ranks[1].process.send_signal(signal.SIGSTOP)
    ranks[0].until("waiting")
    ranks[1].process.kill()
    killed = time.monotonic()
    said = ranks[0].result()
    assert time.monotonic() - killed < 10
    return said


def test_a_killed_rank_ends_the_other(ranks: list[Rank]) -> None:
    """The launch is cut off where it stands."""
    error = killed_while_the_other_waits(ranks)["error"]
    assert f"rank 1 (process {ranks[1].process.pid}) has ended" in error


@pytest.mark.slow
@pytest.mark.parametrize("ranks", ["clock"], indirect=True)
def test_waits_for_a_killed_rank_give_up_with_a_report(ranks: list[Rank]) -> None:
    """As on a GPU: the bound passes, the kernel ends by itself and its fault words name what was missing."""
    said = killed_while_the_other_waits(ranks)
    assert list(said) == ["fault"], said
    (report,) = said["fault"]
    assert report.startswith("rank 0: a wait gave up on rank 0")
    assert "of rank 1 (site" in report and "look at rank 1: dead" in report


@pytest.fixture
def pair() -> Iterator[tuple[ProcessGpu, ProcessGpu]]:
    """Two ranks of this process."""
    gpus = process_gpu(specs(), "gfx950", 0), process_gpu(specs(), "gfx950", 1)
    yield gpus
    for gpu in gpus:
        gpu.close()


def test_memory_that_a_peer_opened_is_the_same_memory(pair: tuple[ProcessGpu, ProcessGpu]) -> None:
    mine = pair[0].allocate(5000, "peer")
    theirs = pair[1].open(pair[0].export(mine))
    mine.tensor[4999] = 7
    assert theirs.nbytes == 5000 and theirs.tensor[4999] == 7
    assert theirs.address != mine.address
    assert int(theirs.tensor.sum()) == 7


def test_memory_that_cannot_be_opened(pair: tuple[ProcessGpu, ProcessGpu]) -> None:
    mine = pair[0].allocate(4096, "peer")
    handle = pair[0].export(mine)
    for wrong in (b"", b"x" * len(handle), handle[:-1]):
        with pytest.raises(GpuError, match="this is no handle of it"):
            pair[1].open(wrong)
    with pytest.raises(GpuError, match="cannot be shared"):
        pair[0].export(pair[0].allocate(16, "device"))
    pair[0].free(mine)
    with pytest.raises(GpuError, match=r"process \d+ (does not show|has freed)"):
        pair[1].open(handle)


def test_nothing_is_mapped_in_a_capture(pair: tuple[ProcessGpu, ProcessGpu]) -> None:
    handle = pair[0].export(pair[0].allocate(64, "peer"))
    with pytest.raises(GpuError, match="inside a capture"), pair[1].capture():
        pair[1].open(handle)
    with pytest.raises(GpuError, match="inside a capture"), pair[1].capture():
        pair[1].allocate(64, "peer")
    assert not pair[1].is_capturing()


def test_host_code_between_launches_runs_in_their_order(pair: tuple[ProcessGpu, ProcessGpu]) -> None:
    seen = list[int]()
    with pair[0].capture() as graphs:
        pair[0].in_order(lambda: seen.append(1))
        pair[0].in_order(lambda: seen.append(2))
    assert seen == []
    graphs[0].replay()
    graphs[0].replay()
    pair[0].synchronise()
    assert seen == [1, 2, 1, 2]


def test_an_error_stays_and_the_rank_is_gone_for_others(pair: tuple[ProcessGpu, ProcessGpu]) -> None:
    def wrong() -> None:
        raise ValueError("no")

    with pair[0].capture() as graphs:
        pair[0].in_order(wrong)
    graphs[0].replay()
    for _ in range(2):
        with pytest.raises(GpuError, match="rank 0 stopped: ValueError"):
            pair[0].synchronise()
    with pytest.raises(GpuError, match="rank 0 stopped"):
        graphs[0].replay()
    words = pair[0].node.record.segment.tensor.view(torch.int32)
    assert words[1] == 3, "left"


def test_a_closed_gpu_takes_no_more(pair: tuple[ProcessGpu, ProcessGpu]) -> None:
    with pair[0].capture() as graphs:
        pair[0].in_order(lambda: None)
    pair[0].close()
    pair[0].close()
    with pytest.raises(GpuError, match="rank 0 is closed"):
        graphs[0].replay()
