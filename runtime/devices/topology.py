"""AMD GPUs of this machine as the kernel driver lists them (KFD's sysfs tree): no HIP, no torch.

Facts: `gfx_target_version` is major * 10000 + minor * 100 + stepping, of which the last two are hex digits of
the gfx name; a node without SIMDs is a CPU. A partitioned GPU shows as several nodes with fewer units each.
Source: the Linux kernel's amdkfd topology (`/sys/class/kfd/kfd/topology`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TOPOLOGY = Path("/sys/class/kfd/kfd/topology/nodes")
DEVICE_MEMORY = (1, 2)
"""Heap types of a memory bank that lies on the GPU: public and private frame buffer."""


@dataclass(frozen=True)
class Found:
    """One GPU: node number, gfx name, compute units, bytes of its own memory, its render device's minor."""

    node: int
    gfx: str
    compute_units: int
    memory: int
    render_minor: int


def gpus(root: Path = TOPOLOGY) -> list[Found]:
    """Every GPU below `root`, by node number; empty where there is no driver."""
    found = [_gpu(int(n.name), n) for n in root.glob("*") if n.name.isdigit()]
    return sorted((g for g in found if g is not None), key=lambda g: g.node)


def _gpu(number: int, node: Path) -> Found | None:
    said = _properties(node / "properties")
    simds, each = said.get("simd_count", 0), said.get("simd_per_cu", 0)
    if not simds or not each:
        return None
    banks = [_properties(b) for b in (node / "mem_banks").glob("*/properties")]
    memory = sum(b.get("size_in_bytes", 0) for b in banks if b.get("heap_type") in DEVICE_MEMORY)
    name = gfx_name(said.get("gfx_target_version", 0))
    return Found(number, name, simds // each, memory, said.get("drm_render_minor", -1))


def gfx_name(version: int) -> str:
    """`gfx942` for 90402."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def _properties(file: Path) -> dict[str, int]:
    """Lines of `name number`; what cannot be read is not there."""
    try:
        lines = [line.split() for line in file.read_text().splitlines()]
    except OSError:
        return {}
    return {w[0]: int(w[1]) for w in lines if len(w) == 2 and w[1].isdigit()}
