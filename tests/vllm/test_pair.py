"""TP2 as two vLLM processes: the same bits on both, a rank that is killed, a rank that cannot reach the
other."""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from scenario import ended, needs_vllm, start

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "runner"))
pytestmark = [needs_vllm, pytest.mark.slow, pytest.mark.timeout(1500)]
ARCH, LAYER = "gfx950", 3


@cache
def wanted() -> tuple[str, list[dict[str, str]]]:
    """The step's experts, and digests of each rank's outputs in `run layer`, which the reference judged."""
    from serving import ground
    from serving import wanted as outputs

    at = ground(ARCH, 2, 1, LAYER)
    assert at.done.ok
    found = [
        {n: hashlib.sha256(b.numpy().tobytes()).hexdigest() for n, b in outputs(at, r).items()}
        for r in (0, 1)
    ]
    return ",".join(map(str, at.experts)), found


def both(folder: Path, mode: str) -> list[Any]:
    """The two processes, at work."""
    experts, _ = wanted()
    return [start("pair", ARCH, rank, folder, LAYER, mode, experts) for rank in (0, 1)]


def test_two_processes_end_with_the_bits_of_run_layer(tmp_path: Path) -> None:
    answers = [ended(p) for p in both(tmp_path, "run")]
    _, digests = wanted()
    for rank, one in enumerate(answers):
        assert one["counts"] == {"steps": 1, "taken": 1, "reasons": {}} and not one["faults"]
        assert one["digests"] == digests[rank], f"rank {rank}"
    assert answers[0]["digests"] == answers[1]["digests"]


def test_a_killed_rank_ends_the_other_with_the_report(tmp_path: Path) -> None:
    first, second = both(tmp_path, "kill")
    found = ended(first)
    second.communicate(timeout=60)
    assert second.returncode == -9
    assert found["seconds"] < 10
    assert len(found["faults"]) == 2, found["said"]
    for report in found["faults"]:
        assert "wave" in report and "rank 1" in report and "epoch" in report


def test_a_rank_that_cannot_open_its_peer_leaves_both_with_vllms_path(tmp_path: Path) -> None:
    answers = [ended(p) for p in both(tmp_path, "closed")]
    for rank, one in enumerate(answers):
        assert one["declined"] and one["reasons"] == ["peer-memory"]
        assert one["runners"] == 0 and one["copies"] == 0
        lines = [line for line in one["log"] if "no layer runs on the kernels" in line]
        assert len(lines) == 1, lines
        assert f"rank {rank}, no layer" in lines[0] and "rank 1" in lines[0].partition("no layer")[2]
