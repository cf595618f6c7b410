"""Types of the C++ core (core/module.cpp, core/decode_bind.cpp)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_U32 = npt.NDArray[np.uint32]
_U8 = npt.NDArray[np.uint8]
_Regions = list[tuple[str, int, int]]
# name, address, bytes, writable, regions, external
_Buffer = tuple[str, int, int, bool, _Regions] | tuple[str, int, int, bool, _Regions, bool]

def decode_listing(arch: str, text: bytes) -> list[tuple[int, int, str, str, str | None]]: ...
def decode_first(arch: str, text: bytes) -> dict[str, Any] | None: ...
def decode_known(arch: str) -> list[str]: ...
def implemented_ops() -> list[str]: ...
def run(
    arch: str,
    options: dict[str, Any],
    buffers: Sequence[_Buffer],
    launches: list[dict[str, Any]],
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]: ...
def execute(
    arch: str,
    code: bytes,
    options: dict[str, Any],
    buffers: Sequence[_Buffer],
    vgprs: _U32,
    agprs: _U32,
    scalars: _U32,
    lds: _U8,
    given: _U8,
    scc: int,
) -> dict[str, Any]: ...
