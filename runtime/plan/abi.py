"""Launch arguments: what a table of them holds, and where each lies in the kernarg segment.

Planning, host and kernel all read this table, so it lives with the plan. Offsets follow the natural
alignment of each C type in the kernarg segment. A shape entry of -1 is decided at run time (cache blocks,
positions of a RoPE table, requests); `doc` names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .arith import align_up

CType = Literal["ptr", "int64", "int32"]
Owner = Literal["vllm", "runner", "layer"]
SIZES: dict[CType, int] = {"ptr": 8, "int64": 8, "int32": 4}
ITEM_BYTES = {"bf16": 2, "f32": 4, "i32": 4, "i64": 8, "u8": 1, "e4m3fn": 1, "e4m3fnuz": 1, "fp4x2": 1}
RUNTIME = -1


@dataclass(frozen=True)
class Argument:
    """One launch argument. An unused pointer is the runner's dummy buffer, never null; `tl` may be 0."""

    index: int
    name: str
    type: CType
    dtype: str
    shape: tuple[int, ...]
    owner: Owner
    read: bool
    written: bool
    offset: int
    doc: str

    @property
    def used(self) -> bool:
        """Whether this build touches what the argument points to (a scalar: whether it reads it)."""
        return self.read or self.written

    @property
    def bytes(self) -> int | None:
        """Bytes of the tensor, None if its size is known at run time only."""
        size = ITEM_BYTES[self.dtype]
        for extent in self.shape:
            size *= extent
        return None if RUNTIME in self.shape else size


@dataclass(frozen=True)
class Abi:
    """All arguments and the size of the kernarg segment."""

    arguments: tuple[Argument, ...]
    kernarg_bytes: int

    def __getitem__(self, name: str) -> Argument:
        return {a.name: a for a in self.arguments}[name]


Row = tuple[str, CType, str, tuple[int, ...], Owner, str, str]
"""(name, type, dtype, shape, owner, access as some of 'rw', doc)."""


def abi_of(rows: list[Row]) -> Abi:
    """Arguments in order, each at its natural alignment."""
    arguments, at = [], 0
    for i, (name, ctype, dtype, shape, owner, access, doc) in enumerate(rows):
        at = align_up(at, SIZES[ctype])
        arguments.append(
            Argument(i + 1, name, ctype, dtype, shape, owner, "r" in access, "w" in access, at, doc)
        )
        at += SIZES[ctype]
    return Abi(tuple(arguments), align_up(at, 8))
