"""Scratch: regions that launches and workgroups hand to one another, in one buffer a step width.

Invariants
 - A region starts at a multiple of 256 bytes, so no two regions share a 128-byte line.
 - Regions are disjoint unless one declares that it shares another's place; the two then have the same kind.
   A word that is a tag in one launch must never be plain data in another: it could look like a tag.
 - Regions are laid out in the order of their declaration: appending K2's and the FFN half's after K1's
   moves nothing.
Sources: attention.md 5.7 and 7.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from .arith import align_up

ALIGN = 256
PAIR_BYTES = 8
"""A mailbox pair: a 32-bit value, then its tag."""

Kind = Literal["pairs", "data", "flags"]
Load = Literal["plain", "device"]
"""How readers load a region: through their L2 (the line rule of `lines` holds), or past it."""


@dataclass(frozen=True)
class Declared:
    """What a launch asks of the layout. `index` is the element index as a formula of the writer's loops,
    `reader` the stages that read it (of a flag: the first that waits for it)."""

    name: str
    bytes: int
    kind: Kind
    element: str
    writer: str
    reader: str
    lifetime: tuple[str, ...]
    index: str
    shares: str | None = None
    load: Load = "plain"
    launch: str = "k1"  # the first launch that writes it


@dataclass(frozen=True)
class Region:
    """A declared region with its place."""

    name: str
    offset: int
    bytes: int
    kind: Kind
    element: str
    writer: str
    reader: str
    lifetime: tuple[str, ...]
    index: str
    shares: str | None
    load: Load
    launch: str

    @property
    def end(self) -> int:
        """The first byte past the region."""
        return self.offset + self.bytes


@dataclass(frozen=True)
class Scratch:
    """The buffer of one step width."""

    regions: tuple[Region, ...]
    total: int
    align: int

    def __getitem__(self, name: str) -> Region:
        return {r.name: r for r in self.regions}[name]


def lay_out(declared: Iterable[Declared]) -> Scratch:
    """Place regions in order; a sharing region lies on the one it names. ValueError if that is unsound."""
    placed: dict[str, Region] = {}
    at = 0
    for one in declared:
        if one.name in placed:
            raise ValueError(f"scratch region {one.name!r} is declared twice; let the second share the first")
        offset = at if one.shares is None else _shared(placed, one).offset
        placed[one.name] = Region(
            one.name,
            offset,
            one.bytes,
            one.kind,
            one.element,
            one.writer,
            one.reader,
            one.lifetime,
            one.index,
            one.shares,
            one.load if one.kind == "data" else "device",
            one.launch,
        )
        at = align_up(at + one.bytes, ALIGN) if one.shares is None else at
    return Scratch(tuple(placed.values()), at, ALIGN)


def _shared(placed: dict[str, Region], one: Declared) -> Region:
    """The region that `one` lies on, if that is sound."""
    base = placed.get(one.shares or "")
    if base is None:
        raise ValueError(
            f"scratch region {one.name!r} shares {one.shares!r}, which is not declared before it"
        )
    if base.kind != one.kind:
        raise ValueError(
            f"scratch region {one.name!r} ({one.kind}) cannot share {base.name!r} ({base.kind}): "
            "a tag of one launch would be data of another"
        )
    if one.bytes > base.bytes:
        raise ValueError(
            f"scratch region {one.name!r} needs {one.bytes} bytes, {base.name!r} has {base.bytes}"
        )
    return base


def misfits(layout: Scratch, needed: Iterable[Declared | Region]) -> list[str]:
    """Regions that a build needs and the layout it was given lacks, holds too small or of another kind, or
    elsewhere than a build that is laid out already."""
    held = {r.name: r for r in layout.regions}
    faults = []
    for one in needed:
        region = held.get(one.name)
        if region is None:
            faults.append(f"{one.name}: not in the layout")
        elif region.bytes < one.bytes:
            faults.append(
                f"{one.name}: needs {one.bytes} bytes, the layout has {region.bytes}"
                + _victims(layout, region, one.bytes)
            )
        elif region.kind != one.kind:
            faults.append(f"{one.name}: is {region.kind} in the layout and {one.kind} in the build")
        elif isinstance(one, Region) and one.offset != region.offset:
            faults.append(f"{one.name}: is at byte {region.offset} in the layout, {one.offset} in the build")
    return faults


def _victims(layout: Scratch, region: Region, needed: int) -> str:
    """Which other regions `needed` bytes at `region` would reach into, and how far."""
    end = region.offset + needed
    hit = [r for r in layout.regions if r.offset >= region.end and r.offset < end]
    return "".join(f"; would write {min(end, r.end) - r.offset} of {r.bytes} bytes of {r.name}" for r in hit)


def data_region(
    name: str,
    size: int,
    element: str,
    writer: str,
    reader: str,
    lifetime: tuple[str, ...],
    index: str,
    *,
    launch: str = "k1",
    load: Load = "plain",
) -> Declared:
    """A region of data without tags."""
    return Declared(name, size, "data", element, writer, reader, lifetime, index, load=load, launch=launch)


def load_of(unit: int, line: int) -> Load:
    """How units of so many bytes, each published on its own, may be loaded."""
    return "device" if unit % line else "plain"
