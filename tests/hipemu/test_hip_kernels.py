"""Kernels through the HIP device on the stand-in: the bits of the emulator device, captured and replayed
too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import rank as rank_script
import replays
from benches import bench, real
from library import environment
from rank import digests, given, queue
from replays import replayed

from flymono.runtime.devices.base import Counters
from flymono.runtime.devices.hip import HipGpu
from flymono.runtime.run.group import Group, Launched
from flymono.runtime.run.layer_options import LayerOptions

Pair = tuple[HipGpu, HipGpu]
K1, FFN = "dsv41_k1-gfx950-tp2-s1-r2", "dsv41_ffn-gfx950-tp2-s1"


def test_k1_leaves_the_bits_of_the_emulator_device(gpus: Pair) -> None:
    one = bench(K1)
    code = real(one.plan)
    want = one.run(code)
    group = Group.of([one.plan], 1)
    bound = queue(gpus[0], one.plan, code, given(one, group, 0, ()), ())
    gpus[0].synchronise()
    got = digests(Launched(bound, Counters(), 0), one.plan, group.epoch[0])
    assert got == digests(want.done[0], one.plan, want.group.epoch[0])


@pytest.mark.slow
def test_ranks_in_processes_leave_the_bits_of_one(built: Path, tmp_path: Path) -> None:
    one = bench(FFN)
    ran = one.run(real(one.plan))
    want = [digests(d, one.plan, e) for d, e in zip(ran.done, ran.group.epoch, strict=True)]
    started = []
    for r in range(2):
        command = [sys.executable, rank_script.__file__, str(tmp_path), str(r), FFN, "hip"]
        env = os.environ | environment(built, rank=r, devices=1)
        started.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True))
    lines = [process.communicate(timeout=600)[0].splitlines()[-1] for process in started]
    assert [json.loads(line) for line in lines] == want


def test_a_captured_layer_replays_bit_by_bit(gpus: Pair) -> None:
    """K1 and K2 of a layer on two ranks; its weights change in place between replays."""
    assert replayed(gpus, LayerOptions(arch="gfx950", tp=2, rows=1, layer=3), 3) == []


@pytest.mark.slow
def test_a_captured_layer_replays_on_four_ranks() -> None:
    command = [sys.executable, str(Path(replays.__file__)), "gfx942", "4", "1", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["wrong"] == []


@pytest.mark.slow
def test_a_rank_that_died_is_an_error_of_the_launch_that_waits(built: Path, tmp_path: Path) -> None:
    """Rank 1 shows its memory and dies before it launches anything."""
    (tmp_path / "seen").mkdir()
    started = []
    for r, kind in enumerate(("hip", "hip-dying")):
        command = [sys.executable, rank_script.__file__, str(tmp_path), str(r), FFN, kind]
        env = os.environ | environment(built, rank=r, devices=1)
        started.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True))
    error = json.loads(started[0].communicate(timeout=600)[0].splitlines()[-1])["error"]
    started[1].communicate(timeout=60)
    assert started[1].returncode == 9
    assert error.startswith("hipStreamSynchronize: hipErrorLaunchFailure: rank-gone: rank 1 (process ")
