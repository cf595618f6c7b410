"""MXFP8 linears as the host holds them after loading, back in their published form; exact or refused.

A host without an MXFP8 matrix instruction multiplies every byte by its scale when it loads a linear, keeps
the product as bf16, and keeps the scales (attention.md 2.3). bf16 has 8 significant bits and e4m3 has 4, so
each product stands for one byte; a value that is not e4m3 times 2^(code - 127) was changed since, and is
refused by its block. Scales may come with one code a row: the rows of a block must then agree.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from ...reference.formats import OCP, decode, encode
from .copies import CODE_LIMIT, blocks_with, named_blocks
from .errors import WeightFinding

LOWEST_CODE = 10  # below it the smallest e4m3 value is subnormal in bf16, and may have been flushed
CHUNK = 1 << 22  # elements at a time: products and table places take 14 bytes each
FIX = "load the published checkpoint again, with the host's MXFP8 linears unchanged"
Recovered = tuple[Tensor, Tensor]


@cache
def _byte_of() -> Tensor:
    """int16 [65536]: the e4m3 byte of every bf16 pattern, -1 where it is no e4m3 value."""
    value = torch.arange(1 << 16).to(torch.int16).view(torch.bfloat16).to(torch.float64)
    byte = encode(value, OCP)
    return torch.where(decode(byte, OCP) == value, byte.to(torch.int16), -1)


def bytes_of(weight: Tensor, codes: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """(uint8 [N, K], bool [N, K]: a value without a byte) of bf16 [N, K] and codes [N / block, K / block]."""
    out = torch.empty(weight.shape, dtype=torch.uint8, device=weight.device)
    bad = torch.zeros(weight.shape, dtype=torch.bool, device=weight.device)
    table, rows = _byte_of().to(weight.device), max(CHUNK // weight.shape[1] // block, 1) * block
    for first in range(0, len(weight), rows):
        part = weight[first : first + rows]
        own = codes[first // block : (first + rows) // block].to(torch.int32).clamp(LOWEST_CODE, 253)
        factor = ((254 - own) << 23).view(torch.float32)  # 2^(127 - code), exact
        spread = factor.repeat_interleave(block, 0).repeat_interleave(block, 1)
        scaled = (part.to(torch.float32) * spread).to(torch.bfloat16)
        byte = table[scaled.view(torch.int16).to(torch.int64) & 0xFFFF]
        out[first : first + rows] = byte.to(torch.uint8)
        lost = (part != 0) & ((byte & 0x7F) == 0)  # the product underflowed
        bad[first : first + rows] = (byte < 0) | lost
    return out, bad


def as_bytes(scale: Tensor) -> Tensor:
    """E8M0 codes as uint8, without a copy."""
    return scale.view(torch.uint8) if scale.dtype == torch.float8_e8m0fnu else scale


def _block_codes(name: str, scale: Tensor, block: int, rows: int) -> tuple[Tensor, list[WeightFinding]]:
    """uint8 [N / block, K / block] of codes with one line a block or one a row."""
    if len(scale) != rows or rows == rows // block:
        return scale, []
    lines = scale.reshape(rows // block, block, -1)
    same = (lines == lines[:, :1]).all(1)
    bad = [(int(r), int(c)) for r, c in torch.nonzero(~same)]
    what = f"has codes that differ over its {block} rows: it is no {block} x {block} block"
    return lines[:, 0].contiguous(), named_blocks(name, bad, what)


def _faults(
    name: str, weight: Tensor, scale: Tensor, shape: tuple[int, int], block: int
) -> list[WeightFinding]:
    """What is wrong with dtypes and shapes."""
    rows, columns = shape
    found = []
    if weight.dtype not in (torch.bfloat16, torch.float8_e4m3fn):
        what = f"dtype {weight.dtype}: published bytes are float8_e4m3fn, dequantised ones bfloat16"
        found.append(WeightFinding("held weights", f"{name}.weight", what, FIX))
    if tuple(weight.shape) != shape:
        what = f"shape {list(weight.shape)}, expected {list(shape)}"
        found.append(WeightFinding("held weights", f"{name}.weight", what, "check the TP size and the model"))
    if scale.dtype != torch.uint8:
        what = f"dtype {scale.dtype}: codes are uint8 or float8_e8m0fnu"
        found.append(WeightFinding("held weights", f"{name}.weight_scale", what, FIX))
    allowed = [(rows // block, columns // block), (rows, columns // block)]
    if tuple(scale.shape) not in allowed:
        what = f"shape {list(scale.shape)}, expected {list(allowed[0])}, or {list(allowed[1])} (a code a row)"
        found.append(WeightFinding("held weights", f"{name}.weight_scale", what, FIX))
    return found


def published_form(
    name: str, weight: Tensor, scale: Tensor, shape: tuple[int, int], block: int
) -> tuple[Recovered | None, list[WeightFinding]]:
    """(OCP bytes [N, K] and codes [N / block, K / block]) of a held linear `name`, or all that is wrong.

    bf16 weights are dequantised ones; e4m3 weights are passed on as bytes. Nothing is changed.
    """
    scale = as_bytes(scale)
    found = _faults(name, weight, scale, shape, block)
    if found:
        return None, found
    codes, found = _block_codes(f"{name}.weight_scale", scale, block, shape[0])
    if weight.dtype == torch.float8_e4m3fn:
        return (None if found else (weight.view(torch.uint8), codes)), found
    odd = (codes < LOWEST_CODE) | (codes >= CODE_LIMIT)
    what = f"has a code outside {LOWEST_CODE} .. {CODE_LIMIT - 1}: bf16 may not hold its values"
    places = [(int(r), int(c)) for r, c in torch.nonzero(odd)]
    found += named_blocks(f"{name}.weight_scale", places, what)
    data, bad = bytes_of(weight, codes, block)
    what = "holds a bf16 value that is not e4m3 times 2^(code - 127)"
    found += named_blocks(f"{name}.weight", blocks_with(bad, block), what)
    return (None if found else (data, codes)), found
