"""One wave, a few instructions, given registers: the entry for opcode tests.

``execute`` decodes ``code`` (raw bytes as an assembler emits them), runs it on one wave and returns the new
register state. It stops at ``s_endpgm`` or behind the last instruction. Nothing is shared between calls. In
a call without ``check`` memory is immediate; with ``check`` loads are asynchronous and every register not
given counts as uninitialised, so that findings can be tested too (VCC, M0, EXEC and SCC count as given).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _core
from .device import Finding, span_of

U32 = npt.NDArray[np.uint32]
ALL_LANES = 0xFFFF_FFFF_FFFF_FFFF
_SGPRS, _VCC, _M0, _EXEC, _SCALARS = (
    102,
    106,
    124,
    126,
    128,
)  # the unified scalar file: index = source code of the ISA


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
    findings: list[Finding] = field(default_factory=list)


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
    lds_array = (
        np.zeros(lds, np.uint8) if isinstance(lds, int) else np.frombuffer(bytes(lds), np.uint8).copy()
    )
    given = np.zeros(2 * rows + _SCALARS + 2, np.uint8)
    vector = _vector_file(vgprs, rows, given[:rows])
    acc = _vector_file(agprs, rows, given[rows : 2 * rows])
    scalars = _scalar_file(sgprs, given[2 * rows :])
    for at, value in ((_VCC, vcc), (_EXEC, exec)):
        scalars[at], scalars[at + 1] = value & 0xFFFF_FFFF, value >> 32
    scalars[_M0] = m0
    given[2 * rows + _SCALARS + 1] = not isinstance(lds, int)
    spans: list[tuple[str, int, int, bool, list[tuple[str, int, int]]]]
    spans = [(name, *span_of(memory), True, []) for name, memory in buffers]
    options = {"check": check, "mfma": mfma, "trans": trans, "seed": seed}
    raw = _core.execute(arch, code, options, spans, vector, acc, scalars, lds_array, given, scc)
    return State(
        vgprs=vector,
        agprs=acc,
        sgprs=scalars[:_SGPRS].copy(),
        exec=int(scalars[_EXEC]) | int(scalars[_EXEC + 1]) << 32,
        vcc=int(scalars[_VCC]) | int(scalars[_VCC + 1]) << 32,
        scc=raw["scc"],
        m0=int(scalars[_M0]),
        lds=lds_array,
        instructions=raw["instructions"],
        findings=[Finding(**f) for f in raw["findings"]],
    )


def _vector_file(
    values: Mapping[int, Any] | npt.ArrayLike | None, rows: int, given: npt.NDArray[np.uint8]
) -> U32:
    file = np.zeros((rows, 64), np.uint32)
    if values is None:
        return file
    if isinstance(values, Mapping):
        for row, value in values.items():
            file[row] = np.asarray(value, np.uint32)
            given[row] = 1
    else:
        array = np.asarray(values, np.uint32)
        file[: len(array)] = array
        given[: len(array)] = 1
    return file


def _scalar_file(values: Mapping[int, int] | Sequence[int] | None, given: npt.NDArray[np.uint8]) -> U32:
    file = np.zeros(_SCALARS, np.uint32)
    given[[_VCC, _VCC + 1, _M0, _EXEC, _EXEC + 1, _SCALARS]] = 1
    items = values.items() if isinstance(values, Mapping) else enumerate(values or ())
    for index, value in items:
        file[index] = value & 0xFFFF_FFFF
        given[index] = 1
    return file
