"""The device: buffers, launches, and what a launch did.

A launch packs its arguments from the kernel's metadata, hands the code object and every registered buffer to
the C++ core, and returns a ``LaunchResult`` or raises ``EmulationError`` with all findings. Addresses are
host addresses: a CPU tensor is device memory the moment it is registered, and it has to stay alive (and in
place) until ``forget``.

An ``Emulator`` has no state but its buffers and options; the same seed, order and inputs give the same run.
"""

from __future__ import annotations

import ctypes
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _core
from .codeobject import Argument, CodeObject, Kernel

SCOPES = ("wave", "workgroup", "agent", "system")
"""Names of the scope bits sc0 + 2 * sc1; the nt bit is counted apart."""

StageRange = tuple[str, int, int]
_PAD = 256  # readable bytes behind the kernel arguments: compilers widen scalar loads


@dataclass(frozen=True)
class Finding:
    """Something the kernel must not do. ``pc`` and ``other_pc`` are byte offsets in .text (-1: none)."""

    kind: str
    message: str
    kernel: str = ""
    workgroup: int = -1
    wave: int = -1
    lane: int = -1
    pc: int = -1
    other_pc: int = -1
    text: str = ""
    other_text: str = ""
    buffer: str = ""
    region: str = ""
    count: int = 1

    def __str__(self) -> str:
        place = f"workgroup {self.workgroup} wave {self.wave}" + (
            f" lane {self.lane}" if self.lane >= 0 else ""
        )
        lines = [f"{self.kind}: {self.message}", f"  {self.kernel}, {place}, pc {self.pc:#x}: {self.text}"]
        if self.other_pc >= 0:
            lines.append(f"  and pc {self.other_pc:#x}: {self.other_text}")
        if self.region:
            lines.append(f"  in {self.buffer}, region {self.region}")
        if self.count > 1:
            lines.append(f"  {self.count} times")
        return "\n".join(lines)


class EmulationError(RuntimeError):
    """A launch with findings; ``.findings`` has them all, ``.result`` what ran until then."""

    def __init__(
        self, findings: Sequence[Finding], result: LaunchResult | None = None, dropped: int = 0
    ) -> None:
        self.findings = list(findings)
        self.result = result
        self.dropped = dropped
        more = [f"({dropped} more not kept)"] if dropped else []
        super().__init__("\n".join([f"{len(self.findings)} finding(s)", *map(str, self.findings), *more]))


@dataclass(frozen=True)
class Access:
    """Bytes one kind of access asked of a buffer: in all, by scope, with the nt hint; and lane accesses."""

    bytes: int
    by_scope: Mapping[str, int]
    nt_bytes: int
    lanes: int


@dataclass(frozen=True)
class Traffic:
    """What a launch asked of one buffer. ``unique*``: distinct bytes loaded, stored, touched at all."""

    load: Access
    store: Access
    atomic: Access
    unique_loaded: int
    unique_stored: int
    unique: int

    @property
    def requested(self) -> int:
        return self.load.bytes + self.store.bytes + self.atomic.bytes


@dataclass(frozen=True)
class StageCount:
    """Instructions executed in one PC range."""

    instructions: int
    by_opcode: Mapping[str, int]


@dataclass(frozen=True)
class StageSpan:
    """One workgroup in one stage: first and last tick (executed instructions of the whole device)."""

    workgroup: int
    stage: str
    first: int
    last: int


@dataclass(frozen=True)
class LaunchResult:
    """Counts of one launch. ``by_pc``: {pc: executions}; ``by_stage`` has "" for code outside all ranges.

    ``guards`` (with ``trace_guards``): PCs of waits that retired a load whose register was used before the
    next wait.
    """

    instructions: int
    by_opcode: Mapping[str, int]
    by_stage: Mapping[str, StageCount]
    by_pc: Mapping[int, int]
    traffic: Mapping[str, Traffic]
    spans: Sequence[StageSpan] = field(repr=False, default=())
    guards: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Job:
    """One launch of a queue: what ``Emulator.launch`` takes."""

    code: CodeObject
    kernel: str
    grid: int
    args: Sequence[Any] | bytes
    block: int | None = None
    stages: tuple[StageRange, ...] = ()


@dataclass(frozen=True)
class Roster:
    """Addresses of the records (``RANK_RECORD_BYTES`` each) of this rank and of those that run elsewhere.

    A launch that waits on external memory looks at the others' records: its clock stands still while one of
    them works, and it ends with a finding when one is gone.
    """

    own: int
    peers: tuple[int, ...]


RANK_RECORD_BYTES = 64
"""A record: u32 pid, u32 state (``RANK_STATES``), u64 count that grows while a launch gets on, u32 rank,
rest zero. The rank's process writes pid, state and rank, the core the count. Multiples of 8 bytes in
memory."""

RANK_STATES = ("absent", "resting", "working", "left")
"""What a rank says of itself: not there yet; no launch; a launch runs or is queued; closed."""


@dataclass
class _Buffer:
    address: int
    nbytes: int
    writable: bool
    owner: Any
    external: bool = False
    regions: list[tuple[str, int, int]] = field(default_factory=list)


class Emulator:
    """A device of one arch.

    ``order``: "linear", "reversed", "random" (by ``seed``) or "starve:N" (workgroup N runs only when nobody
    else can). ``check``: hazards, uninitialised values and missing waits are findings; without it only
    accesses outside buffers and LDS, unknown instructions and standstill are. ``mfma``: "exact", "fma",
    "cdna3", "perturb"; ``trans``: "exact", "ulp". ``sampling``: when a load looks at memory: "late" (when a
    wait retires it), "early" (at issue), "random". ``xcds`` and ``xcd_offset``: XCC_ID of workgroup w is (w +
    offset) % xcds. ``idle_rounds``: rounds of polling without any store after which a launch counts as stuck.
    ``on_standstill``: what becomes of it: "report" (a finding), or "clock": the 100 MHz clock jumps ahead, so
    that waits which the kernel bounds by it end; a finding only if none does. ``max_instructions``: 0 is no
    limit. ``lds_race``: report LDS bytes that two waves share with no barrier between. ``patience``: seconds
    that a launch waits on external memory while no rank that it watches has work, before it counts as stuck
    too.
    """

    def __init__(
        self,
        arch: str,
        *,
        seed: int = 0,
        order: str = "linear",
        check: bool = True,
        mfma: str = "exact",
        trans: str = "exact",
        sampling: str = "late",
        xcds: int = 8,
        xcd_offset: int = 0,
        quantum: int = 4096,
        idle_rounds: int = 64,
        on_standstill: str = "report",
        max_findings: int = 20,
        max_instructions: int = 0,
        lds_race: bool = False,
        trace_guards: bool = False,
        patience: float = 600,
    ) -> None:
        self.arch = arch
        kind, _, starved = order.partition(":")
        if kind == "starve" and not starved.isdigit():
            raise ValueError(f"order {order!r}: name the workgroup, for example 'starve:3'")
        self.options: dict[str, Any] = {
            "seed": seed,
            "order": kind,
            "starved": int(starved or 0),
            "check": check,
            "mfma": mfma,
            "trans": trans,
            "sampling": sampling,
            "xcds": xcds,
            "xcd_offset": xcd_offset,
            "quantum": quantum,
            "idle_rounds": idle_rounds,
            "on_standstill": on_standstill,
            "max_findings": max_findings,
            "max_instructions": max_instructions,
            "lds_race": lds_race,
            "trace_guards": trace_guards,
            "patience": float(patience),
        }
        self._buffers: dict[str, _Buffer] = {}

    def watch(self, roster: Roster) -> None:
        """Look at the records of ranks that run elsewhere while a launch waits on external memory."""
        self.options["roster"] = [roster.own, *roster.peers]

    def faults(self) -> list[str]:
        """What the core would refuse about arch and options, all of it; empty if a launch can be made."""
        found = []
        for asked in ({}, *({name: value} for name, value in self.options.items())):
            try:
                _core.run(self.arch, asked, [], [], None)
            except ValueError as error:  # a wrong name: the core lists the right ones
                found.append(str(error))
            except RuntimeError:  # a number that does not fit
                found += [f"{name} is {value!r}, which is out of range" for name, value in asked.items()]
            if found and not asked:
                return found  # an arch that it does not know hides everything else
        return found

    def register(self, name: str, memory: Any, writable: bool = True, external: bool = False) -> int:
        """Let kernels touch ``memory``: CPU tensor, numpy array, or (address, nbytes). Gives the address.

        ``external``: other processes or threads change it while a launch runs. Accesses are then atomic ones
        of the host, and a launch that only polls such memory waits instead of being stuck.
        """
        if name in self._buffers:
            raise ValueError(f"buffer {name!r} is registered already")
        address, nbytes = span_of(memory)
        self._buffers[name] = _Buffer(address, nbytes, writable, memory, external)
        return address

    def forget(self, name: str) -> None:
        """Take a buffer away again."""
        del self._buffers[name]

    def name_regions(self, buffer: str, regions: Iterable[tuple[str, int, int]]) -> None:
        """Names for parts of a buffer, (label, offset, nbytes), for findings."""
        self._buffers[buffer].regions = list(regions)

    def launch(
        self,
        code: CodeObject,
        kernel: str,
        grid: int,
        args: Sequence[Any] | bytes,
        *,
        block: int | None = None,
        stages: Sequence[StageRange] = (),
        progress: Callable[[int], None] | None = None,
    ) -> LaunchResult:
        """Run ``grid`` workgroups of ``kernel`` to their end.

        ``args``: values in the order of the kernel's explicit arguments (ints, floats, tensors for pointers),
        or the packed bytes. ``block``: work-items a group, by default what the code object requires.
        ``stages``: (name, first pc, end pc) for the counters. Raises ``EmulationError`` when there is any
        finding.
        """
        return self.launch_ranks([[Job(code, kernel, grid, args, block, tuple(stages))]], progress)[0][0]

    def launch_ranks(
        self, queues: Sequence[Sequence[Job]], progress: Callable[[int], None] | None = None
    ) -> list[list[LaunchResult]]:
        """Run one queue of launches a rank: a rank's launches one after the other, ranks side by side.

        Every rank sees every registered buffer, as peers do; ``traffic`` of each result is that of the whole
        run, so name buffers by rank to tell them apart. With order "random" ranks drift apart by up to a
        launch. Raises ``EmulationError`` when there is any finding.
        """
        buffers = [
            (n, b.address, b.nbytes, b.writable, b.regions, b.external) for n, b in self._buffers.items()
        ]
        kept, specs, jobs = [], [], [(rank, job) for rank, queue in enumerate(queues) for job in queue]
        for n, (rank, job) in enumerate(jobs):
            found = job.code.kernels[job.kernel]
            if job.code.arch != self.arch:
                raise ValueError(f"{job.kernel} is code for {job.code.arch}, this device is {self.arch}")
            packed = job.args if isinstance(job.args, bytes) else pack_arguments(found, job.args)
            kept.append(ctypes.create_string_buffer(packed, len(packed) + _PAD))
            at = ctypes.addressof(kept[-1])
            label = f"kernel arguments {n}".removesuffix(" 0")
            buffers.append((label, at, len(packed) + _PAD, False, [], False))
            specs.append(launch_spec(job.code, found, job.grid, job.block, at, job.stages) | {"rank": rank})
        raw = _core.run(self.arch, self.options, buffers, specs, progress)
        results = iter([_result(raw, grid, job) for grid, (_, job) in zip(raw["grids"], jobs, strict=True)])
        ordered = [[next(results) for _ in queue] for queue in queues]
        if raw["findings"]:
            findings = [Finding(**f) for f in raw["findings"]]
            raise EmulationError(findings, ordered[0][0], raw["dropped_findings"])
        return ordered


def span_of(memory: Any) -> tuple[int, int]:
    """(address, nbytes) of a contiguous CPU tensor or numpy array, or of an (address, nbytes) pair."""
    if isinstance(memory, tuple):
        address, nbytes = memory
        return int(address), int(nbytes)
    if hasattr(memory, "data_ptr"):
        if memory.device.type != "cpu" or not memory.is_contiguous():
            raise ValueError("a tensor must be contiguous and on the CPU to be device memory")
        return int(memory.data_ptr()), int(memory.numel() * memory.element_size())
    if hasattr(memory, "__array_interface__"):
        if not memory.flags.c_contiguous:
            raise ValueError("an array must be contiguous to be device memory")
        return int(memory.__array_interface__["data"][0]), int(memory.nbytes)
    raise TypeError(
        f"{type(memory).__name__} is no device memory: give a CPU tensor, an array or (address, nbytes)"
    )


def pack_arguments(kernel: Kernel, values: Sequence[Any]) -> bytes:
    """Kernel argument bytes from values, by the metadata. ``ValueError`` lists all mismatches."""
    explicit = [a for a in kernel.args if not a.kind.startswith("hidden_")]
    if len(values) != len(explicit):
        raise ValueError(f"{kernel.name} takes {len(explicit)} arguments, {len(values)} were given")
    raw = bytearray(kernel.kernarg_bytes)
    wrong = []
    for index, (argument, value) in enumerate(zip(explicit, values, strict=True)):
        try:
            raw[argument.offset : argument.offset + argument.size] = _argument_bytes(argument, value)
        except (TypeError, ValueError, OverflowError, struct.error) as error:
            wrong.append(f"  argument {index} ({argument.size} bytes at {argument.offset}): {error}")
    if wrong:
        raise ValueError("\n".join([f"{kernel.name}: arguments that do not fit", *wrong]))
    return bytes(raw)


def _argument_bytes(argument: Argument, value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray)):
        if len(value) != argument.size:
            raise ValueError(f"{len(value)} bytes given")
        return bytes(value)
    if isinstance(value, float):
        return struct.pack("<d" if argument.size == 8 else "<f", value)
    if isinstance(value, int):
        return value.to_bytes(argument.size, "little", signed=value < 0)
    return span_of(value)[0].to_bytes(argument.size, "little")


def launch_spec(
    code: CodeObject, kernel: Kernel, grid: int, block: int | None, kernarg: int, stages: Sequence[StageRange]
) -> dict[str, Any]:
    """What the core needs to start a kernel, from its descriptor."""
    d = kernel.descriptor
    user = dict(d.user_sgprs)
    x, y, z = d.workgroup_ids
    items = block or (kernel.workgroup_size[0] if kernel.workgroup_size else kernel.max_workgroup_size)
    return {
        "kernel": kernel.name,
        "text": code.text,
        "entry": kernel.entry,
        "workgroups": grid,
        "workitems": items,
        "lds_bytes": kernel.lds_bytes,
        "vgprs": d.vgprs_allocated,
        "accum_offset": d.accum_offset,
        "kernarg": kernarg,
        "stages": list(stages),
        "id_x": x,
        "id_y": y,
        "id_z": z,
        "info": d.workgroup_info,
        "dispatch_ptr": "dispatch_ptr" in user,
        "queue_ptr": "queue_ptr" in user,
        "kernarg_ptr": "kernarg_ptr" in user,
        "dispatch_id": "dispatch_id" in user,
        "private_size": "private_segment_size" in user,
        "preload_dwords": user.get("kernarg_preload", 0),
        "preload_offset": d.preload_offset,
    }


def _access(raw: tuple[list[int], list[int]]) -> Access:
    requested, lanes = raw
    by_scope = {name: requested[i] + requested[i + 4] for i, name in enumerate(SCOPES)}
    return Access(sum(requested), by_scope, sum(requested[4:]), sum(lanes))


def _result(raw: dict[str, Any], grid: dict[str, Any], job: Job) -> LaunchResult:
    names = ["", *(stage[0] for stage in job.stages)]
    by_opcode: Counter[str] = Counter()
    stage_ops: dict[str, Counter[str]] = {name: Counter() for name in names}
    for _, op, count, stage in grid["counts"]:
        by_opcode[op] += count
        stage_ops[names[stage]][op] += count
    traffic = {
        name: Traffic(
            _access(t["load"]),
            _access(t["store"]),
            _access(t["atomic"]),
            t["unique_loaded"],
            t["unique_stored"],
            t["unique"],
        )
        for name, t in raw["traffic"].items()
    }
    return LaunchResult(
        instructions=by_opcode.total(),
        by_opcode=dict(by_opcode.most_common()),
        by_stage={n: StageCount(sum(c.values()), dict(c.most_common())) for n, c in stage_ops.items()},
        by_pc={pc: count for pc, _, count, _ in grid["counts"]},
        traffic=traffic,
        guards=frozenset(grid["guards"]),
        spans=tuple(StageSpan(wg, names[s], first, last) for wg, s, first, last in grid["spans"]),
    )
