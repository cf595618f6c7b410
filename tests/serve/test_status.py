"""`flymono status`: what ranks wrote, in words, and what is wrong with what they wrote."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from flymono.cli import main as cli
from flymono.cli.status import told
from flymono.cli.status_metrics import HELP, text


def state(rank: int, **other: Any) -> dict[str, Any]:
    """A rank's file as `runtime.vllm.watch.state_of` writes it."""
    return {
        "pid": os.getpid(), "rank": rank, "time": int(time.time()), "model": "dsv41", "arch": "gfx950",
        "tp": 2, "on": True, "faults": [], "paths": {"whole": 35, "ffn": 8, "stock": 0},
        "plan": "0123456789ab", "bundle": "gfx950-tp2", "limit": 48,
        "widths": {"target": [6, 12], "draft": []},
        "bytes": {"target": 1 << 30, "draft": 1 << 29}, "copies": 3 << 30,
        "steps": {"target": {"steps": 9, "taken": 7, "reasons": {"prefill-rows": 2}},
                  "draft": {"steps": 7, "taken": 7, "reasons": {}}}, "logits": 9,
    } | other  # fmt: skip


def write(folder: Path, *states: dict[str, Any]) -> Path:
    for one in states:
        (folder / f"rank{one['rank']}.json").write_text(json.dumps(one))
    return folder


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        cli.main(["status", *words])
    return int(end.value.code or 0)


def test_every_rank_is_told_by_its_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, *(state(n) for n in (10, 2, 0)))
    assert run(str(tmp_path)) == 0
    out = capsys.readouterr().out
    assert [line.split()[1] for line in out.splitlines() if line.startswith("rank")] == ["0", "2", "10"]
    assert "35 whole, 8 ffn; plan 0123456789ab, bundle gfx950-tp2" in out
    assert "7 of 9 decided steps taken, widths 6, 12; not: 2 prefill-rows" in out
    assert "copies 3.00 GiB, target runner 1.00 GiB, draft runner 0.50 GiB" in out


def test_the_folder_may_come_from_the_variable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYMONO_STATE", str(write(tmp_path, state(0))))
    assert run("--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["limit"] == 48


def test_a_server_that_is_off_ends_with_1_and_its_reasons(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, state(0), state(1, on=False, faults=["bundle-altered"], paths={"whole": 0}))
    assert run(str(tmp_path)) == 1
    out = capsys.readouterr().out
    assert "none on the kernels" in out and "bundle-altered" in out


def test_old_files_and_gone_processes_are_told() -> None:
    old = told(state(0, time=int(time.time()) - 500), time.time())[0]
    assert "it rests, or died" in old
    gone = told(state(0, pid=2**22 + 5), time.time())[0]
    assert "(gone)" in gone


@pytest.mark.parametrize(("text", "says"), [(None, "no rank has written"), ("{", "not a rank's state")])
def test_a_folder_that_is_no_servers_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, says: str
) -> None:
    if text is not None:
        (tmp_path / "rank0.json").write_text(text)
    assert run(str(tmp_path)) == 2
    assert says in capsys.readouterr().err


def test_without_a_folder_it_says_how_to_name_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLYMONO_STATE", raising=False)
    assert run() == 2
    assert "FLYMONO_STATE" in capsys.readouterr().err


METRICS = """\
# HELP flymono_on 1 where this rank's layers run on the kernels
# TYPE flymono_on gauge
flymono_on{rank="0",bundle="a \\"b\\" \\\\c",plan="0123456789ab"} 1
flymono_on{rank="1",bundle="gfx950-tp2",plan="0123456789ab"} 0
# HELP flymono_fault 1 for each reason that switched the kernels off
# TYPE flymono_fault gauge
flymono_fault{rank="1",code="bundle-altered"} 1
"""


def test_metrics_hold_what_every_rank_says() -> None:
    ranks = [state(0, bundle='a "b" \\c', time=100), state(1, on=False, faults=["bundle-altered"], time=90)]
    found = text(ranks, 130.5)
    assert found.startswith(METRICS)
    samples = dict(line.rsplit(" ", 1) for line in found.splitlines() if not line.startswith("#"))
    assert samples['flymono_state_age_seconds{rank="1"}'] == "40.5"
    assert samples['flymono_layers{rank="0",path="whole"}'] == "35"
    assert samples['flymono_steps_taken_total{rank="0",runner="target"}'] == "7"
    assert samples['flymono_steps_declined_total{rank="1",runner="target",code="prefill-rows"}'] == "2"
    assert samples['flymono_bytes{rank="0",use="copies"}'] == str(3 << 30)
    heads = [line.split()[2] for line in found.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads)) == len(HELP)


def test_metrics_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, state(0))
    assert run(str(tmp_path), "--prometheus") == 0
    assert capsys.readouterr().out.startswith("# HELP flymono_on ")
    assert run(str(tmp_path), "--prometheus", "--json") == 2
