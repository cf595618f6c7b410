"""The scratch of a whole layer, one buffer a step width, and the peer buffer: K1, K2 and FFN launch agree on
both.

Invariants
 - One layout a (arch, TP size, rows, mixture): a region's place does not depend on ratio, fold or index.
 - The FFN launch runs on the target's layout, whatever its own mixture: `fits` says whether it may.
 - A layout is made from the regions of builds, never from a second set of formulas.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...specs.schema import ArchSpec, ModelSpec
from .dims import Dims, dims_of
from .faults import MARK_BYTES
from .ffn.regions import ffn_regions, peer_regions
from .ffn.shape import FfnShape, shape_of
from .k1.regions import k1_regions
from .k2.lds import split_of
from .k2.regions import attention_regions, key_flags
from .k2.stages import AttentionShape, attention_shape
from .keys import BuildKey
from .placement import grid_of
from .scratch import Declared, Region, Scratch, lay_out, misfits
from .strategy import strategy_of
from .unsupported import Code, Reason, Unsupported

PARITIES = 2


@dataclass(frozen=True)
class Peer:
    """The peer buffer: the mark of a fault, then two halves, taken in turn by epochs. `regions` lie in a
    half, at this step's rows; a half is allocated for the widest step."""

    regions: Scratch
    mark_bytes: int
    half_bytes: int
    total: int
    pushed: int  # bytes that a rank stores into all peer buffers in one launch, its own included
    parity: str
    why: str

    def __getitem__(self, name: str) -> Region:
        """The region `name` of a half."""
        return self.regions[name]

    @property
    def attn_at(self) -> int:
        """Offset of `attn` from `mark_bytes` in front of a half, as kernels count."""
        return self.mark_bytes + self["attn"].offset

    @property
    def ffn_at(self) -> int:
        """The same of `ffn`."""
        return self.mark_bytes + self["ffn"].offset

    def half_at(self, epoch: int) -> int:
        """Offset of the half that `epoch` uses."""
        return self.mark_bytes + epoch % PARITIES * self.half_bytes


def is_draft(model: ModelSpec, key: BuildKey) -> bool:
    """Whether a key belongs to a draft layer: K1's are known by their window list."""
    return key.draft or key.window != model.attention.window


def ffn_shape(model: ModelSpec, arch: ArchSpec, d: Dims, rows: int, width: int) -> FfnShape:
    """The FFN half of a rank's sizes on an arch."""
    return shape_of(d, rows, width, grid_of(arch).workgroups, strategy_of(arch), arch)


def attention_of(d: Dims, key: BuildKey, arch: ArchSpec) -> AttentionShape:
    """K2's attention half on an arch."""
    grid = grid_of(arch).workgroups
    return attention_shape(d, key, split_of(d, key.rows, grid, arch.workgroup.lds_bytes), grid)


def layer_regions(d: Dims, a: AttentionShape, f: FfnShape) -> tuple[Declared, ...]:
    """Every region of a layer's launches, in the order of the layout."""
    return (
        *k1_regions(d, f.rows),
        *attention_regions(d, f.rows, a, f.line),
        *ffn_regions(d, f),
        key_flags(f.rows),
    )


def layer_layout(model: ModelSpec, arch: ArchSpec, key: BuildKey, width: int, *, draft: bool) -> Scratch:
    """The scratch of `key`'s width and TP size; `draft`: of the draft layers' own runner."""
    d = dims_of(model, key.tp, draft=draft)
    shape = ffn_shape(model, arch, d, key.rows, width)
    return lay_out(layer_regions(d, attention_of(d, key, arch), shape))


def peer_of(d: Dims, rows: int, limit: int) -> Peer:
    """The peer buffer of a step of `rows` rows, on a GPU whose steps have at most `limit`."""
    half, regions = lay_out(peer_regions(d, limit)).total, lay_out(peer_regions(d, rows))
    return Peer(
        regions=regions,
        mark_bytes=MARK_BYTES,
        half_bytes=half,
        total=MARK_BYTES + PARITIES * half,
        pushed=sum(r.bytes for r in regions.regions),
        parity="epoch mod 2",
        why="a rank can be one launch pair ahead of a peer that still reads, never two: each sum waits for "
        "every rank's push of its own pair",
    )


def fits(
    build: str, layout: Scratch, needed: Iterable[Declared | Region], what: str = "scratch layout"
) -> None:
    """Nothing if every region that a build touches is in `layout`, large enough and of its kind (and, of a
    `Region`, where the build has it).

    Raises Unsupported with all regions that are not, their bytes, and the region that would be written over.
    """
    faults = misfits(layout, needed)
    if faults:
        fix = "lay the buffer out for this build (its experts, picks and FP4 groups a task)"
        reasons = tuple(Reason(Code.LAYOUT_MISFIT, fault, fix) for fault in faults)
        raise Unsupported(f"{build} on this {what}", reasons)
