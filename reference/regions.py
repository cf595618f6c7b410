"""Scratch regions as the stages leave them: mailbox pairs, data and flags as tensors with names.

A mailbox pair is a 32-bit value and the launch's tag; data regions hold bytes and int32 codes; a flag is a
pair whose value is 1. Layouts: attention sheet 5.7 and 7. `pack` is the inverse of `unpack`, so outputs of
the reference can stand in for a kernel's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from .formats import F32, FLAVOURS
from .k1 import K1Outputs
from .quant import Blocks
from .sizes import K1Sizes, SumOrder

REGIONS = ("lin", "pmix", "x8", "x8s", "xrdy", "qkvp", "qx8", "qx8s", "qrdy")


@dataclass(frozen=True)
class Intermediates:
    """What a launch left in scratch, S rows."""

    lin: Tensor  # bf16 [S, D]
    lin_tags: Tensor  # int32 [S, D / 2]
    pmix: Tensor  # f32 [slices, S, mix + 1]
    pmix_tags: Tensor  # int32, as pmix
    x8: Blocks  # [S, D]
    xrdy: Tensor  # int32 [S, 2, 2]: (value, tag) of two flags a row
    qkvp: Tensor  # f32 [halves, S, rows]
    qkvp_tags: Tensor  # int32, as qkvp
    qx8: Blocks  # [S, q_rank]
    qrdy: Tensor  # int32 [S, 2]


def words_of(region: Tensor, *shape: int) -> Tensor:
    """A region's leading bytes as int32 words of `shape` (regions may be longer than a step needs)."""
    flat = region.contiguous().reshape(-1).view(torch.uint8)
    count = 4 * int(torch.tensor(shape).prod())
    if flat.numel() < count:
        raise ValueError(f"a region of {flat.numel()} bytes cannot hold {count} bytes of shape {shape}")
    return flat[:count].view(torch.int32).reshape(shape)


def _blocks(data: Tensor, codes: Tensor, rows: int, width: int, group: int, fp8: str) -> Blocks:
    octets = words_of(data, rows, width // 4).view(torch.uint8).reshape(rows, width)
    return Blocks(octets, words_of(codes, rows, width // group), FLAVOURS[fp8])


def unpack(
    regions: Mapping[str, Tensor], sizes: K1Sizes, order: SumOrder, rows: int, fp8: str
) -> Intermediates:
    """Named regions of any dtype (contiguous bytes from a region's start) as tensors.

    Raises KeyError with the names that are missing, ValueError for a region that is too short.
    """
    missing = [name for name in REGIONS if name not in regions]
    if missing:
        raise KeyError(f"scratch regions missing: {', '.join(missing)}")
    lin = words_of(regions["lin"], rows, sizes.hidden // 2, 2)
    pmix = words_of(regions["pmix"], order.slices(sizes), rows, sizes.mix + 1, 2)
    qkvp = words_of(regions["qkvp"], order.k_halves, rows, sizes.qkv_rows, 2)
    return Intermediates(
        lin=lin[..., 0].contiguous().view(torch.bfloat16).reshape(rows, sizes.hidden),
        lin_tags=lin[..., 1],
        pmix=pmix[..., 0].contiguous().view(F32),
        pmix_tags=pmix[..., 1],
        x8=_blocks(regions["x8"], regions["x8s"], rows, sizes.hidden, sizes.group, fp8),
        xrdy=words_of(regions["xrdy"], rows, 2, 2),
        qkvp=qkvp[..., 0].contiguous().view(F32),
        qkvp_tags=qkvp[..., 1],
        qx8=_blocks(regions["qx8"], regions["qx8s"], rows, sizes.q_rank, sizes.group, fp8),
        qrdy=words_of(regions["qrdy"], rows, 2),
    )


def pairs_of(value: Tensor, tag: int) -> Tensor:
    words = value.contiguous().view(torch.int32)
    return torch.stack([words, torch.full_like(words, tag)], -1).contiguous().view(torch.uint8).flatten()


def pack(outputs: K1Outputs, tag: int) -> dict[str, Tensor]:
    """Regions (flat uint8) that a kernel with these intermediates leaves under `tag`."""
    rows = outputs.lin.shape[0]
    flags = torch.ones(rows, 2, dtype=torch.int32)
    return {
        "lin": pairs_of(outputs.lin, tag),
        "pmix": pairs_of(outputs.pmix.to(F32), tag),
        "x8": outputs.x8.data.flatten().clone(),
        "x8s": outputs.x8.codes.to(torch.int32).flatten().view(torch.uint8).clone(),
        "xrdy": pairs_of(flags, tag),
        "qkvp": pairs_of(outputs.qkvp.to(F32), tag),
        "qx8": outputs.qx8.data.flatten().clone(),
        "qx8s": outputs.qx8.codes.to(torch.int32).flatten().view(torch.uint8).clone(),
        "qrdy": pairs_of(flags[:, 0], tag),
    }
