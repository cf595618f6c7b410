"""Kernels through the HIP device on the stand-in: the bits of the emulator device, captured and replayed
too."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import rank as rank_script
import torch
from benches import bench, real
from library import environment
from rank import digests, given, peer_memory, queue

from flymono.runtime.devices.base import Counters
from flymono.runtime.devices.emulator import EmulatorDevice
from flymono.runtime.devices.hip import HipGpu
from flymono.runtime.run.group import Group, Launched
from flymono.runtime.run.layer_options import LayerOptions
from flymono.runtime.run.results import digest
from flymono.specs import load

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


@pytest.fixture(scope="module")
def replays(request: pytest.FixtureRequest) -> ModuleType:
    """bench/replay.py."""
    path = Path(request.config.rootpath) / "bench" / "replay.py"
    spec = importlib.util.spec_from_file_location("flymono_bench_replay", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_a_captured_layer_replays_bit_by_bit(gpus: Pair, replays: ModuleType) -> None:
    """K1 and K2 of a layer on two ranks, captured once, replayed three times; then with a weight changed
    in place."""
    device = EmulatorDevice(load().arch["gfx950"], {"seed": 0})
    (track,) = replays.tracks_of(LayerOptions(arch="gfx950", tp=2, rows=1, layer=3), False, device)
    group = track.group
    peers = [peer_memory(gpu, group, r) for r, gpu in enumerate(gpus)]
    handles = [gpu.export(m) for gpu, m in zip(gpus, peers, strict=True)]
    graphs, bounds = [], []
    for r, gpu in enumerate(gpus):
        seen = [m if n == r else gpu.open(h) for n, (m, h) in enumerate(zip(peers, handles, strict=True))]
        functions = captured(gpu, track, r, seen)
        graphs.append(functions[0])
        bounds.append(functions[1])
    rounds = []
    for _ in range(3):
        for graph in graphs:
            graph.replay()
        for gpu in gpus:
            gpu.synchronise()
        rounds.append(bits(track, bounds))
    assert rounds[0] == list(track.bits(device))
    assert rounds == [rounds[0]] * 3
    weight = track.kernels[-1].given[0]["sgu"].view(torch.uint8).view(-1)
    weight[:4096] ^= 1
    for graph in graphs:
        graph.replay()
    for gpu in gpus:
        gpu.synchronise()
    changed = bits(track, bounds)
    assert changed != rounds[0] and changed == list(track.bits(device))


def captured(gpu: HipGpu, track: Any, rank: int, peers: Sequence[Any]) -> tuple[Any, list[Any]]:
    """A graph of the track's launches on one rank, and what they were bound to."""
    prepared = [arguments(track, kernel, rank, peers) for kernel in track.kernels]
    functions = [gpu.load(k.artefact.hsaco, k.artefact.kernel) for k in track.kernels]
    gpu.begin_capture()
    bounds = [
        queue(gpu, k.plan, k.artefact, values, peers, f)
        for k, values, f in zip(track.kernels, prepared, functions, strict=True)
    ]
    return gpu.end_capture(), bounds


def arguments(track: Any, kernel: Any, rank: int, peers: Sequence[Any]) -> Mapping[str, Any]:
    table = torch.tensor([m.address for m in peers], dtype=torch.int64)
    own = track.group.arguments(rank)
    own |= {"sym": peers[rank].address, "peers": table} if "sym" in own else {}
    return {**kernel.given[rank], **own}


def bits(track: Any, bounds: Sequence[Sequence[Any]]) -> list[str]:
    """Digests of all outputs in the order of `Track.bits`."""
    found = []
    for n, kernel in enumerate(track.kernels):
        for rank in bounds:
            found += [digest(v) for v in Launched(rank[n], Counters(), 0).outputs(kernel.plan).values()]
    return found


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
    assert started[1].wait(60) == 9
    assert error.startswith("hipStreamSynchronize: hipErrorLaunchFailure: rank-gone: rank 1 (process ")
