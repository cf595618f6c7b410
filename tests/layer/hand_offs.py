"""Kernels whose hand-offs can be taken out one at a time, and the schedules that have to show it.

The plan gives every site a literal of its own for `hold`: such a wait is one as long as the literal stands in
the code object. Changed to 0, the site looks once and takes what it finds, as with a hold of 0
(`mono/mailbox`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from benches import Bench, Ran, specs

from flymono.emulator import CodeObject
from flymono.gen.build import Settings, build
from flymono.gen.compiler import Compiler
from flymono.gen.store import Artefact, Store
from flymono.gen.units import unit_of
from flymono.runtime.devices.emulator import DeviceError
from flymono.runtime.plan import KernelPlan
from flymono.runtime.plan.waits import Site

LITERAL = 1 << 24  # numbers that stand for nothing else in the code
S_MOV_LITERAL, S_MOV_MASK = 0xBE8000FF, 0xFF80FFFF  # s_mov_b32 sN, literal


@dataclass(frozen=True)
class Code:
    """What a launch needs of an artefact."""

    hsaco: bytes
    kernel: str
    stage_ranges: tuple[tuple[str, int, int], ...]


def with_holds(plan: KernelPlan, holds: dict[str, int]) -> KernelPlan:
    """The plan with other holds of its sites, by name."""
    return replace(plan, sites=tuple(replace(s, hold=holds.get(s.name, s.hold)) for s in plan.sites))


def switch(site: Site) -> int:
    """The hold of a site that the code object can lose."""
    return -LITERAL - site.id


def artefact_of(plan: KernelPlan, store: Store, compiler: Compiler) -> Artefact:
    """The kernel of a plan that was changed."""
    unit = unit_of(specs(), plan.key)
    return build(replace(unit, context={**unit.context, "plan": plan}), Settings(store), compiler)[0]


def code_of(made: Artefact) -> Code:
    return Code(made.hsaco, made.kernel, made.stage_ranges)


def without(code: Code, site: Site) -> Code:
    """The code with the site's hand-off taken out, wherever its wait stands."""
    parsed = CodeObject(code.hsaco)
    words = np.frombuffer(parsed.text, dtype="<u4")
    found = np.flatnonzero((words[:-1] & S_MOV_MASK == S_MOV_LITERAL) & (words[1:] == switch(site) % 2**32))
    assert len(found), f"{site.name}: no wait of it stands in the code"
    for at in found:
        parsed = parsed.patched(4 * (int(at) + 1), [0])
    return replace(code, hsaco=parsed.data)


def schedules(plan: KernelPlan, site: Site) -> Iterator[tuple[str, dict[str, Any]]]:
    """Named schedules, the same for every site: those in which a workgroup that the site waits for comes
    last, then ones that know nothing of the site."""
    producer = plan.stage(site.producer)
    workgroups = [w for w in range(plan.grid) if producer.tasks_of(w)]
    for where, one in (("first", workgroups[0]), ("last", workgroups[-1])):
        yield f"{where} producer starved", {"order": f"starve:{one}", "sampling": "early"}
    yield "linear", {}
    yield "reversed", {"order": "reversed", "sampling": "early"}
    yield "random", {"order": "random", "seed": 3, "sampling": "random"}


@dataclass(frozen=True)
class Seen:
    """What a launch showed: a digest of outputs, epochs and fault words of all ranks, and findings."""

    digest: str
    findings: tuple[str, ...] = ()


def observe(bench: Bench, code: Code, **how: Any) -> Seen:
    """Launch and look; bits decide, so the emulator's checks of the instruction stream are off."""
    try:
        ran = bench.run(code, check=False, idle_rounds=16, max_findings=1, **how)
    except DeviceError as error:
        return Seen("", tuple(f.kind for f in error.findings))
    return Seen(_digest(bench.plan, ran))


def _digest(plan: KernelPlan, ran: Ran) -> str:
    sha = hashlib.sha256()
    for done, epoch, fault in zip(ran.done, ran.group.epoch, ran.group.fault, strict=True):
        for value in (*done.outputs(plan).values(), epoch[:4], fault):
            sha.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()
