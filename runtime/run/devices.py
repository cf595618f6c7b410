"""What a run executes on, by its option `--device`."""

from __future__ import annotations

from collections.abc import Callable

from flymono.runtime.devices.base import Device
from flymono.runtime.devices.emulator import EmulatorDevice
from flymono.runtime.plan.placement import grid_of
from flymono.runtime.run.options import RunOptions
from flymono.specs import Specs, UserError
from flymono.specs.findings import near

DEVICES = ("emulator", "hip")


def device_of(
    options: RunOptions, specs: Specs, ranks: int, progress: Callable[[int], None] | None = None
) -> Device:
    """The emulator, or the first `ranks` GPUs of this process. GpuError says what of them is missing."""
    if options.device == "emulator":
        return EmulatorDevice(specs.arch[options.arch], options.emulator(), progress=progress)
    from flymono.runtime.devices.gpus import HipDevice

    return HipDevice.of(specs, options.arch, ranks)


def check_device(options: RunOptions, specs: Specs) -> None:
    """Raise everything that is wrong with the device's options; GPUs are looked for when they are needed."""
    if options.device not in DEVICES:
        raise UserError(f"there is no device {options.device!r}", fix=near(options.device, DEVICES))
    arch = specs.arch.get(options.arch)
    if options.device == "emulator" and arch is not None:
        EmulatorDevice(arch, options.emulator()).check(grid_of(arch).workgroups)
    given = options.emulator_options()
    if options.device != "emulator" and given:
        stated = ", ".join(f"--{name}" for name in given)
        raise UserError(f"{stated}: options of the emulator, and the device is {options.device}",
                        fix="leave them out")  # fmt: skip
