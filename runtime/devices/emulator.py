"""The emulator as a device: every buffer of a launch registered by its argument's name.

Invariant: what a launch may touch is what its arguments name, nothing else; a kernel that reads past
a buffer is a finding with the argument's name in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from flymono.emulator import CodeObject, EmulationError, Emulator, LaunchResult
from flymono.runtime.devices.base import Counters, Launch, Traffic
from flymono.specs.findings import UserError
from flymono.specs.schema import ArchSpec


class DeviceError(UserError):
    """A launch that the emulator found something wrong with, or options that it does not know."""

    def __init__(self, message: str, findings: tuple[Any, ...] = (), exit_code: int = 1) -> None:
        super().__init__(message)
        self.findings, self.exit_code = findings, exit_code


@dataclass
class EmulatorDevice:
    """One emulated GPU of `arch`; `options` are those of `flymono.emulator.Emulator`."""

    arch: ArchSpec
    options: dict[str, Any] = field(default_factory=dict)
    last: LaunchResult | None = None
    progress: Callable[[int], None] | None = None

    @property
    def name(self) -> str:
        """How reports name this device."""
        changed = ", ".join(f"{k} {v}" for k, v in self.options.items() if k != "seed")
        return f"the emulator of {self.arch.name}" + (f" ({changed})" if changed else "")

    def launch(self, launch: Launch) -> Counters:
        """Run to the end; DeviceError with every finding if the kernel did what it must not."""
        try:
            emulator = Emulator(self.arch.name, xcds=self.arch.machine.xcds, **self.options)
        except ValueError as error:
            raise DeviceError(str(error), exit_code=2) from error
        buffers = {n: v for n, v in launch.arguments if isinstance(v, torch.Tensor) and v.numel()}
        for name, tensor in buffers.items():
            emulator.register(name, tensor, writable=name in launch.writable)
        for name, regions in launch.regions.items():
            emulator.name_regions(name, regions)
        code = CodeObject(launch.code)
        values = [value for _, value in launch.arguments]
        start = time.process_time()
        try:
            result = emulator.launch(
                code, launch.kernel, launch.grid, values, stages=launch.stages, progress=self.progress
            )
        except EmulationError as error:
            self.last = error.result
            raise DeviceError(str(error), tuple(error.findings)) from error
        self.last = result
        return counters_of(result, time.process_time() - start)


def counters_of(result: LaunchResult, seconds: float) -> Counters:
    """The emulator's counts in the words of the device interface."""
    traffic = {
        name: Traffic(t.load.bytes, t.unique_loaded, t.store.bytes + t.atomic.bytes, t.unique_stored)
        for name, t in result.traffic.items()
    }
    return Counters(
        instructions=result.instructions,
        by_op=result.by_opcode,
        by_stage={name: stage.by_opcode for name, stage in result.by_stage.items() if stage.instructions},
        traffic=traffic,
        timeline=[(s.workgroup, s.stage, s.first, s.last) for s in result.spans],
        seconds=seconds,
    )
