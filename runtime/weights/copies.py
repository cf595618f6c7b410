"""What a device reads instead of the published linears: FP8 flavour and byte order, exact or refused.

Two independent choices of the plan's strategy. `fp8`: FNUZ keeps the OCP bytes (-0 becomes +0), which then
mean half as much, and adds 1 to every code. `layout`: tile-major stores a 16-row x 128-column step as 2 KB so
that a wave's two 16-byte loads a lane are contiguous (attention sheet 2.3). Either way a weight keeps its
value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from ...reference.formats import FNUZ, OCP, decode_table, to_fnuz
from ...reference.weights import K1Weights
from .errors import WeightFinding, WeightsError

Flavour = Literal["ocp", "fnuz"]
Layout = Literal["row_major", "tile_major"]

LINEARS = ("wqkv", "wqb")
TILE_ROWS, STEP_K, BLOCK_K, CHUNK_K = 16, 128, 32, 8
CODE_LIMIT = 250  # codes from here on leave no room for the shift and for a kernel's code arithmetic
SHOWN = 8  # blocks named a tensor; the rest is counted


def blocks_with(bad: Tensor, block: int) -> list[tuple[int, int]]:
    """(row, column) of the blocks of a boolean [N, K] that hold a True."""
    rows, columns = (-n % block for n in bad.shape)
    padded = torch.nn.functional.pad(bad, (0, columns, 0, rows))
    grid = torch.unflatten(torch.unflatten(padded, 1, (-1, block)), 0, (-1, block)).any(-1).any(1)
    return [(int(r), int(c)) for r, c in torch.nonzero(grid)]


def named_blocks(tensor: str, blocks: list[tuple[int, int]], what: str) -> list[WeightFinding]:
    """A finding for each of the first blocks, and one that counts the others."""
    fix = "use weights whose dense linears are finite and whose codes are below 250, as in the release"
    named = [
        WeightFinding("weight copy", tensor, f"block [{row}, {column}] {what}", fix)
        for row, column in blocks[:SHOWN]
    ]
    more = len(blocks) - SHOWN
    return (
        named
        if more <= 0
        else [*named, WeightFinding("weight copy", tensor, f"{more} more blocks {what}", fix)]
    )


def fnuz_refusals(
    name: str, data: Tensor, codes: Tensor, block: int, codes_name: str = ""
) -> list[WeightFinding]:
    """Why a linear of OCP bytes [N, K] and codes [N / block, K / block] has no exact FNUZ form."""
    nan = (data & 0x7F) == OCP.nan
    high = [(int(r), int(c)) for r, c in torch.nonzero(codes >= CODE_LIMIT)]
    nan_text = "holds an OCP NaN byte (0x7F or 0xFF), which FNUZ would read as a number"
    high_text = f"has a scale code of {CODE_LIMIT} or more: code > {CODE_LIMIT - 1} cannot be raised by 1"
    found = named_blocks(name, blocks_with(nan, block), nan_text)
    return found + named_blocks(codes_name or f"{name}_s", high, high_text)


def recode(data: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """FNUZ bytes and codes with the values of OCP bytes and codes (finite, codes below the limit)."""
    return to_fnuz(data), codes + 1


def recoding_is_exact() -> bool:
    """Every finite OCP byte, read as FNUZ after the recoding, is half its value."""
    every = torch.arange(256, dtype=torch.uint8)
    finite = (every & 0x7F) != OCP.nan
    halves = decode_table(FNUZ)[to_fnuz(every).to(torch.int64)]
    return bool((halves[finite] * 2 == decode_table(OCP)[finite]).all())


def tile_major(data: Tensor) -> Tensor:
    """Bytes [N, K] in tile-major order, same shape with K padded with zeros to whole steps.

    Row 16 T + r, column 128 st + 32 (2 hf + b) + 8 j + e goes to byte
    T * 16 * K + st * 2048 + hf * 1024 + j * 256 + r * 16 + b * 8 + e.
    """
    padded = torch.nn.functional.pad(data, (0, -data.shape[1] % STEP_K))
    tiles = padded.reshape(-1, TILE_ROWS, padded.shape[1] // STEP_K, 2, 2, BLOCK_K // CHUNK_K, CHUNK_K)
    return tiles.permute(0, 2, 3, 5, 1, 4, 6).reshape(padded.shape).contiguous()


def row_major(tiled: Tensor, columns: int) -> Tensor:
    """The inverse of `tile_major`: bytes [N, columns]."""
    steps = tiled.shape[1] // STEP_K
    tiles = tiled.reshape(-1, steps, 2, BLOCK_K // CHUNK_K, TILE_ROWS, 2, CHUNK_K)
    return tiles.permute(0, 4, 1, 2, 5, 3, 6).reshape(tiled.shape)[:, :columns].contiguous()


def _laid_out(data: Tensor, codes: Tensor, neutral: int) -> tuple[Tensor, Tensor]:
    """Tile-major bytes, and codes padded to whole steps with a code of scale one."""
    tiled = tile_major(data)
    missing = tiled.shape[1] // BLOCK_K - codes.shape[1]
    return tiled, torch.nn.functional.pad(codes, (0, missing), value=neutral)


def dense_copies(
    linears: Mapping[str, tuple[Tensor, Tensor]], block: int, fp8: Flavour, layout: Layout
) -> dict[str, Tensor]:
    """Name and name_s -> tensors of MXFP8 linears as a device of this strategy reads them.

    Tensors that need no change are the ones passed in. Raises WeightsError naming tensor, block and reason
    where a copy would not hold the same values.
    """
    if fp8 == "fnuz":
        refusals = [f for name, pair in linears.items() for f in fnuz_refusals(name, *pair, block)]
        if refusals:
            raise WeightsError(refusals)
    return encoded(linears, fp8, layout)


def encoded(linears: Mapping[str, tuple[Tensor, Tensor]], fp8: Flavour, layout: Layout) -> dict[str, Tensor]:
    """As `dense_copies`, of linears that `fnuz_refusals` has nothing against."""
    if fp8 == "fnuz":
        linears = {name: recode(*pair) for name, pair in linears.items()}
    if layout == "tile_major":
        neutral = 127 + (fp8 == "fnuz")
        linears = {name: _laid_out(*pair, neutral) for name, pair in linears.items()}
    return {f"{n}{end}": t for n, pair in linears.items() for end, t in zip(("", "_s"), pair, strict=True)}


def device_copies(weights: K1Weights, fp8: Flavour, layout: Layout) -> dict[str, Tensor]:
    """Launch-argument name -> tensor for every weight of K1, as a device of this strategy reads it."""
    out = weights.tensors()
    linears = {name: (out[name], out[f"{name}_s"]) for name in LINEARS}
    return out | dense_copies(linears, weights.block, fp8, layout)


def misfits(existing: Mapping[str, Tensor], copies: Mapping[str, Tensor]) -> list[WeightFinding]:
    """Tensors that cannot be overwritten by their copies: missing, or of another shape or dtype."""
    fix = "pass the tensors that an earlier copy of the same layer and strategy returned"
    findings = []
    for name, new in copies.items():
        old = existing.get(name)
        if old is None or (old.shape, old.dtype) != (new.shape, new.dtype):
            kind = "missing" if old is None else f"{old.dtype} {list(old.shape)}"
            what = f"{kind}, expected {new.dtype} {list(new.shape)}"
            findings.append(WeightFinding("weight copy", name, what, fix))
    return findings


def copy_into(existing: Mapping[str, Tensor], copies: Mapping[str, Tensor]) -> None:
    """Overwrite tensors in place (a reload: captured graphs hold their addresses).

    Raises WeightsError, with nothing written, for every tensor that does not fit.
    """
    findings = misfits(existing, copies)
    if findings:
        raise WeightsError(findings)
    for name, new in copies.items():
        existing[name].copy_(new)
