"""A wait that guards a use cannot be removed unnoticed: the emulator names both instructions.

The sample comes from the waits that guarded something in a clean run (`LaunchResult.guards`); each is
replaced by `s_nop` (the same four bytes) in the code object that was linked.
"""

from __future__ import annotations

import random

import pytest
from running import build_id, device_of, launch, options, specs

from flymono.emulator import CodeObject
from flymono.gen import api
from flymono.runtime.devices.emulator import DeviceError
from flymono.runtime.run import k1
from flymono.runtime.run.bind import bind, to_launch
from flymono.runtime.run.command import prepare
from flymono.runtime.run.group import Group

S_NOP = 0xBF800000
SAMPLE = 20


@pytest.mark.parametrize(("arch", "tp"), [("gfx942", 4), ("gfx950", 2)])
def test_removed_waits_are_reported(arch: str, tp: int) -> None:
    ready = prepare(options(build_id(arch, tp, 2)), specs())
    artefact = api.build(ready.plan.key, ready.specs)
    clean = device_of(ready, trace_guards=True)
    given = k1.arguments_of(ready.plan, ready.case, ready.weights)
    k1.launch(ready.plan, artefact, clean, given)
    guards = sorted(clean.last.guards)
    assert len(guards) >= SAMPLE
    code = CodeObject(artefact.hsaco)
    silent = []
    for pc in random.Random(0).sample(guards, SAMPLE):
        found = _findings(ready, artefact, code.patched(pc, [S_NOP]).data)
        hits = [f for f in found if f.kind == "missing-wait" and f.other_pc >= 0]
        if not hits:
            silent.append(hex(pc))
    assert silent == []


def _findings(ready, artefact, data: bytes) -> list:
    given = k1.arguments_of(ready.plan, ready.case, ready.weights)
    bound = bind(ready.plan, {**given, **Group.of([ready.plan], 1).arguments(0)})
    job = to_launch(ready.plan, bound, data, artefact.kernel, artefact.stage_ranges, {})
    try:
        device_of(ready).launch(job)
    except DeviceError as error:
        return list(error.findings)
    return []


def test_the_unpatched_kernel_is_clean() -> None:
    launch(prepare(options(build_id("gfx942", 4, 2)), specs()))
