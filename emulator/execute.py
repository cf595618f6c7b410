"""One wave, a few instructions, given registers: the entry for opcode tests.

``execute`` decodes ``code`` (raw bytes as an assembler emits them), runs it on one wave and returns
the new register state. It stops at ``s_endpgm`` or behind the last instruction. Nothing is shared
between calls. In a call without ``check`` memory is immediate; with ``check`` loads are asynchronous
and every register not given counts as uninitialised, so that findings can be tested too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

U32 = npt.NDArray[np.uint32]
ALL_LANES = 0xFFFF_FFFF_FFFF_FFFF


@dataclass(frozen=True)
class State:
    """Registers behind the last instruction.

    ``vgprs`` uint32 [rows, 64] (architectural VGPRs, as many rows as were asked for), ``agprs`` the same for
    AccVGPRs, ``sgprs`` uint32 [102], ``lds`` uint8 [bytes]; ``findings`` as in ``LaunchResult``.
    """

    vgprs: U32
    agprs: U32
    sgprs: U32
    exec: int
    vcc: int
    scc: int
    m0: int
    lds: npt.NDArray[np.uint8]
    instructions: int = 0
    findings: list[Any] = field(default_factory=list)


def execute(
    arch: str,
    code: bytes,
    *,
    vgprs: Mapping[int, Any] | npt.ArrayLike | None = None,
    agprs: Mapping[int, Any] | npt.ArrayLike | None = None,
    sgprs: Mapping[int, int] | Sequence[int] | None = None,
    exec: int = ALL_LANES,
    vcc: int = 0,
    scc: int = 0,
    m0: int = 0,
    lds: bytes | npt.NDArray[np.uint8] | int = 0,
    buffers: Sequence[tuple[str, Any]] = (),
    rows: int = 256,
    check: bool = False,
    mfma: str = "exact",
    trans: str = "exact",
    seed: int = 0,
) -> State:
    """Run ``code`` for ``arch`` ("gfx942", "gfx950") on one wave of 64 lanes.

    ``vgprs``/``agprs``: {row: 64 uint32 (or one int for all lanes)}, or an array [n, 64] from row 0.
    ``sgprs``: {index: u32} or a list from s0. ``lds``: initial bytes, or a size (zero filled).
    ``buffers``: (name, numpy or torch array) that the code may access at their host addresses.
    ``rows``: VGPR rows (and AccVGPR rows) of the wave. Registers not given are 0 (and, with ``check``,
    uninitialised). Raises ``ValueError`` for bytes that do not decode.
    """
    raise NotImplementedError("the core is not built yet")
