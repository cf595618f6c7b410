"""`flymono doctor --serve`: what a server needs, checked before it loads half a terabyte of weights.

Needs neither a compiler nor a working torch: versions come from package metadata, GPUs from the driver's
list. The bundle is opened and compared with the specs as the server will do it.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .doctor import Line

VLLM = (0, 33)
"""The release series whose decoder layers the plugin knows."""
SHARED_BYTES = 1 << 30
"""Room in /dev/shm that vLLM's workers want for their own messages."""


@dataclass(frozen=True)
class Wanted:
    """What shall be served, and where this machine keeps what is looked at (another place in tests)."""

    tp: int
    bundle: str | None = None
    topology: Path | None = None
    devices: Path = Path("/dev")


def report(wanted: Wanted) -> list[tuple[str, Callable[[], list[Line]]]]:
    """(name, probe) of every check, in the order of the report."""
    return [
        ("vllm", _vllm),
        ("torch", _torch),
        ("hip", lambda: _hip(wanted)),
        ("gpus", lambda: _gpus(wanted)),
        ("access", lambda: _access(wanted)),
        ("shared memory", lambda: _shared(wanted)),
        ("bundle", lambda: _bundle(wanted)),
        ("memory", lambda: _memory(wanted)),
    ]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _vllm() -> list[Line]:
    found, series = _version("vllm"), ".".join(map(str, VLLM))
    if found is None:
        return [Line("vllm", "bad", "vLLM is not installed here", f"install vLLM {series} for ROCm first")]
    numbers = tuple(int(w) for w in found.split("+")[0].split(".")[:2] if w.isdigit())
    if numbers != VLLM:
        text = f"vLLM is {found}; the plugin knows {series} and leaves any other alone"
        return [Line("vllm", "bad", text, f"install vLLM {series}, or set FLYMONO_ANY_VLLM=1 to try")]
    return [Line("vllm", "ok", found)]


def _torch() -> list[Line]:
    found = _version("torch")
    if found is None:
        return [Line("torch", "bad", "torch is not installed here", "take the one that vLLM brings")]
    if "rocm" not in found and "hip" not in found:
        text = f"{found}: its version names no ROCm"
        return [Line("torch", "note", text, "if it is a CUDA or CPU build, reinstall the one vLLM brings")]
    return [Line("torch", "ok", found)]


def _hip(wanted: Wanted) -> list[Line]:
    found = _version("rocm-bindings-hip")
    if found is None:
        return [Line("hip", "bad", "rocm-bindings-hip is not installed", "pip install flymono[hip]")]
    return [Line("hip", "ok", f"rocm-bindings-hip {found}")]


def _gpus(wanted: Wanted) -> list[Line]:
    """As many GPUs of one arch as ranks, each with all of its compute units."""
    from ..runtime.devices.topology import TOPOLOGY, gpus
    from ..runtime.plan.placement import grid_of
    from ..specs.loader import load

    found, known = gpus(wanted.topology or TOPOLOGY), load().arch
    if not found:
        return [
            Line("gpus", "bad", "the driver lists no AMD GPU", "load amdgpu; in a container pass /dev/kfd")
        ]
    lines = list[Line]()
    for name in sorted({g.gfx for g in found}):
        ours = [g for g in found if g.gfx == name]
        units = ", ".join(map(str, sorted({g.compute_units for g in ours})))
        text = f"{len(ours)} x {name} with {units} compute units"
        if name not in known:
            lines.append(
                Line("gpus", "bad", f"{text}: no arch spec", f"there are specs for {', '.join(known)}")
            )
            continue
        grid = grid_of(known[name]).workgroups
        if small := [g.node for g in ours if g.compute_units < grid]:
            fault = f"{text}: nodes {', '.join(map(str, small))} cannot hold {grid} workgroups at once"
            lines.append(Line("gpus", "bad", fault, "set the GPU's compute partition to SPX"))
        elif len(ours) < wanted.tp:
            lines.append(
                Line("gpus", "bad", f"{text}: TP{wanted.tp} needs {wanted.tp}", "take a smaller TP size")
            )
        else:
            lines.append(Line("gpus", "ok", text))
        if wanted.tp not in known[name].tp:
            sizes = " and ".join(f"TP{t}" for t in known[name].tp)
            lines.append(Line("gpus", "bad", f"{name} has no kernels for TP{wanted.tp}", f"take {sizes}"))
    return lines


def _access(wanted: Wanted) -> list[Line]:
    """Reading and writing the driver's devices is what opening a peer's memory needs too."""
    from ..runtime.devices.topology import TOPOLOGY, gpus

    render = [wanted.devices / "dri" / f"renderD{g.render_minor}" for g in gpus(wanted.topology or TOPOLOGY)]
    closed = [p for p in (wanted.devices / "kfd", *render) if not os.access(p, os.R_OK | os.W_OK)]
    if closed:
        fix = "join the groups video and render; in a container pass the devices and --ipc=host"
        return [Line("access", "bad", f"cannot be opened: {', '.join(map(str, closed))}", fix)]
    return [Line("access", "ok", f"{1 + len(render)} devices can be opened")]


def _shared(wanted: Wanted) -> list[Line]:
    place = wanted.devices / "shm"
    if not place.is_dir():
        return [Line("shared memory", "bad", f"{place} is missing", "in a container: --ipc=host")]
    free = shutil.disk_usage(place).free
    fix = "" if free >= SHARED_BYTES else "in a container: --ipc=host or --shm-size"
    return [Line("shared memory", "note" if fix else "ok", f"{free / 1e9:.1f} GB free in {place}", fix)]


def _archs(wanted: Wanted) -> Sequence[str]:
    from ..runtime.devices.topology import TOPOLOGY, gpus
    from ..specs.loader import load

    return sorted({g.gfx for g in gpus(wanted.topology or TOPOLOGY)} & set(load().arch))


def _bundle(wanted: Wanted) -> list[Line]:
    from ..runtime.bundle import find_bundle
    from ..specs.loader import load

    lines = list[Line]()
    for arch in _archs(wanted):
        bundle = find_bundle(arch, wanted.tp, wanted.bundle)
        bundle.verify()
        bundle.check(load())
        lines.append(
            Line("bundle", "ok", f"{bundle.id}: {len(bundle.builds)} builds, whole and of these specs")
        )
    return lines or [Line("bundle", "note", "not looked for: no GPU that a spec describes")]


def _memory(wanted: Wanted) -> list[Line]:
    """Whether weights and copies fit, by the plan's own statement."""
    from ..runtime.devices.topology import TOPOLOGY, gpus
    from ..runtime.plan.memory import GIB, memory_of
    from ..runtime.plan.width import width_report
    from ..specs.loader import load

    specs, lines = load(), list[Line]()
    for arch in _archs(wanted):
        spec, model = specs.arch[arch], next(iter(specs.model.values()))
        if wanted.tp not in spec.tp:
            continue
        stated = memory_of(model, spec, wanted.tp, width_report(model, spec), (1, 6))
        held = min(g.memory for g in gpus(wanted.topology or TOPOLOGY) if g.gfx == arch)
        need = stated.total or stated.copied + stated.buffers
        text = f"{need / GIB:.1f} GiB of weights, copies and buffers a rank, {held / GIB:.1f} GiB on the GPU"
        fits = need < held
        fix = "" if fits else "take a larger TP size, or GPUs with more memory"
        lines.append(Line("memory", "ok" if fits else "bad", text, fix))
    return lines
