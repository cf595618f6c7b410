"""The state file of a rank and `flymono status`."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flymono.cli.status import read, told
from flymono.runtime.plan.layers import Counts, Host, StepFacts, decide, model_plan
from flymono.runtime.vllm import watch
from flymono.specs import load
from flymono.specs.findings import UserError


@pytest.fixture
def server() -> Any:
    """What `watch` reads of a server, on the plan of one without MXFP4 indexers."""
    plan = model_plan(load(), Host("gfx950", 2, 256, capture=(6,)))
    counts = {False: Counts(), True: Counts()}
    for facts in (StepFacts(6), StepFacts(6, prefills=1), StepFacts(6, graph="piecewise")):
        counts[False].add(decide(plan, facts))
    runner = SimpleNamespace(buffers=SimpleNamespace(widths={6: None, 12: None}), nbytes=3 << 20)
    return SimpleNamespace(
        plan=plan, ranks=SimpleNamespace(rank=1), on=True, faults=(), kernels=SimpleNamespace(id="abc"),
        runners={False: runner}, layers={}, counts=counts, epoch_steps=3,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_written", -watch.EVERY_SECONDS)


def test_a_rank_writes_at_most_every_ten_seconds(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert watch.save_state(server, 0.0) is None
    monkeypatch.setenv(watch.STATE, str(tmp_path / "state"))
    path = watch.save_state(server, 0.0)
    assert path is not None and json.loads(path.read_text())["steps"]["target"]["reasons"] == {
        "piecewise": 1, "prefills": 1,
    }  # fmt: skip
    assert watch.save_state(server, 9.0) is None and watch.save_state(server, 10.5) == path


def test_a_folder_that_cannot_be_written_costs_nothing(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(watch.STATE, str(tmp_path / "file"))
    assert watch.save_state(server, 0.0) is None


def test_status_says_it_in_words(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(watch.STATE, str(tmp_path))
    watch.save_state(server, 0.0)
    (one,) = read(tmp_path)
    text = "\n".join(told(one, one["time"] + 61))
    assert "rank 1 of TP2 on gfx950" in text and "61 s ago: it rests, or died" in text
    assert "35 whole, 8 ffn" in text and "bundle abc" in text
    assert "1 of 3 decided steps taken, widths 6, 12; not: 1 piecewise, 1 prefills" in text


def test_no_state_is_a_message(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no rank has written"):
        read(tmp_path)
    (tmp_path / "rank0.json").write_text("{")
    with pytest.raises(UserError, match="is not a rank's state"):
        read(tmp_path)
