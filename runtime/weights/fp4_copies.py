"""What a device reads instead of the published routed experts: byte order, code order, and -0 where it hurts.

Two layouts (FFN math 4.2). `row_major` is what the serving framework holds after loading for a block-scaled
MFMA: 16-row tiles of gate and of up in turn, 32 columns of a row together, columns padded to 128, codes in
32-row x 8-column blocks. `tile_major` is an own copy for FP8 MFMAs: gate and up row by row, a 16-row x
128-column step as 1 KB in lane order, no padding. Values are kept: only -0 becomes +0 where bytes are turned
into FNUZ, which has no -0. A tensor is [experts, ...]; only the experts asked for are written, so the rest of
a buffer that is mapped on demand takes no memory.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping, Sequence
from math import prod

import torch
from torch import Tensor

from ...reference.fp4 import without_negative_zero
from ...reference.layer_sizes import LayerSizes, padded
from ...reference.layer_weights import Expert, Experts
from .copies import Flavour, Layout
from .errors import WeightFinding, WeightsError

TILE, STEP, GROUP, CHUNK = 16, 128, 32, 8
NAMES = ("w13", "w13_s", "w2", "w2_s")
# Exponent field of a product's scale on FNUZ: code + 7 + activation code (86 .. 254) - 127 must stay normal.
FNUZ_CODES = range(35, 248)
OCP_CODES = range(255)
SHOWN = 8


def shapes(sizes: LayerSizes, layout: Layout) -> dict[str, tuple[int, ...]]:
    """Name -> shape of the uint8 tensors."""
    experts, hidden, inter = sizes.experts, sizes.hidden, sizes.inter
    if layout == "tile_major":
        return {
            "w13": (experts, 2 * inter, hidden // 2),
            "w13_s": (experts, 2 * inter, hidden // GROUP),
            "w2": (experts, hidden, inter // 2),
            "w2_s": (experts, hidden, inter // GROUP),
        }
    wide = sizes.inter_padded
    return {
        "w13": (experts, 2 * wide, hidden // 2),
        "w13_s": (experts * 2 * wide, hidden // GROUP),
        "w2": (experts, hidden, wide // 2),
        "w2_s": (experts * hidden, padded(wide // GROUP, CHUNK)),
    }


def routed_bytes(sizes: LayerSizes, layout: Layout) -> int:
    """Bytes of all routed experts of a layer on one rank."""
    return sum(prod(shape) for shape in shapes(sizes, layout).values())


# ------------------------------------------------------------------ row_major: 16-row tiles, padded columns


def _tiles_16x32(data: Tensor) -> Tensor:
    """[N, K / 2] with 32 columns of a row together, 16 rows a tile: [tile][step][block][row][16 bytes]."""
    tiles = data.reshape(-1, TILE, data.shape[1] * 2 // STEP, STEP // GROUP, GROUP // 2)
    return tiles.permute(0, 2, 3, 1, 4).reshape(data.shape)


def shuffled_codes(codes: Tensor) -> Tensor:
    """[N, C] in blocks of 32 rows x 8 columns; N a multiple of 32 and C of 8."""
    rows, columns = codes.shape
    blocks = codes.reshape(rows // 32, 2, 16, columns // 8, 2, 4)
    return blocks.permute(0, 3, 5, 2, 4, 1).reshape(rows, columns)


def _padded(data: Tensor, rows: int, columns: int) -> Tensor:
    return torch.nn.functional.pad(data, (0, columns - data.shape[1], 0, rows - data.shape[0]))


def _interleaved_tiles(gate: Tensor, up: Tensor, rows: int) -> Tensor:
    """Gate and up, padded to `rows` each, in turn by tiles of 16 rows."""
    both = [_padded(t, rows, t.shape[1]).reshape(rows // TILE, TILE, -1) for t in (gate, up)]
    return torch.stack(both, 1).reshape(2 * rows, -1)


def _row_major(expert: Expert, sizes: LayerSizes) -> dict[str, Tensor]:
    wide, hidden = sizes.inter_padded, sizes.hidden
    columns = padded(wide // GROUP, CHUNK)
    return {
        "w13": _tiles_16x32(_interleaved_tiles(expert.w1, expert.w3, wide)),
        "w13_s": shuffled_codes(_interleaved_tiles(expert.w1_s, expert.w3_s, wide)),
        "w2": _tiles_16x32(_padded(expert.w2, hidden, wide // 2)),
        "w2_s": shuffled_codes(_padded(expert.w2_s, hidden, columns)),
    }


# ------------------------------------------------------------------ tile_major: lane order, rows interleaved


def tile_major_fp4(data: Tensor) -> Tensor:
    """[N, K / 2] as 16-row x 128-column steps in lane order, a last step of 64 columns likewise."""
    tiles, columns = data.reshape(-1, TILE, data.shape[1]), data.shape[1] * 2
    whole = columns // STEP * STEP
    parts = []
    for first, last, blocks in ((0, whole, 4), (whole, columns, 2)):
        if first == last:
            continue
        part = tiles[:, :, first // 2 : last // 2]
        steps = part.reshape(len(tiles), TILE, -1, blocks, GROUP // CHUNK, CHUNK // 2)
        parts.append(steps.permute(0, 2, 4, 1, 3, 5).flatten(1))
    return torch.cat(parts, 1).reshape(data.shape)


def _code_columns(codes: Tensor) -> Tensor:
    """[N, K / 32] with the 16 codes of a tile's block together: a dword is four rows of one block."""
    return codes.reshape(-1, TILE, codes.shape[1]).transpose(1, 2).reshape(codes.shape)


def _rows_in_turn(gate: Tensor, up: Tensor) -> Tensor:
    return torch.stack([gate, up], 1).flatten(0, 1)


def _tile_major(expert: Expert, fp8: Flavour) -> dict[str, Tensor]:
    def clean(data: Tensor) -> Tensor:
        return without_negative_zero(data) if fp8 == "fnuz" else data

    return {
        "w13": tile_major_fp4(_rows_in_turn(clean(expert.w1), clean(expert.w3))),
        "w13_s": _code_columns(_rows_in_turn(expert.w1_s, expert.w3_s)),
        "w2": tile_major_fp4(clean(expert.w2)),
        "w2_s": _code_columns(expert.w2_s),
    }


# ------------------------------------------------------------------ refusals and copies


def _refusals(number: int, expert: Expert, fp8: Flavour) -> list[WeightFinding]:
    """Codes that have no exact product on the device, by tensor and block."""
    allowed = FNUZ_CODES if fp8 == "fnuz" else OCP_CODES
    found = []
    for leaf in ("w1", "w3", "w2"):
        codes = getattr(expert, f"{leaf}_s").to(torch.int64)
        bad = torch.nonzero((codes < allowed.start) | (codes >= allowed.stop)).tolist()
        what = f"has a scale code outside {allowed.start} .. {allowed.stop - 1}"
        fix = "use experts whose codes lie in that range, as in the release (115 .. 127)"
        name = f"experts.{number}.{leaf}.scale"
        found += [WeightFinding("weight copy", name, f"block [{r}, {c}] {what}", fix) for r, c in bad[:SHOWN]]
        if len(bad) > SHOWN:
            more = f"{len(bad) - SHOWN} more blocks {what.replace('has', 'have')}"
            found.append(WeightFinding("weight copy", name, more, fix))
    return found


def _shape_refusals(sizes: LayerSizes, layout: Layout) -> list[WeightFinding]:
    found = []
    fix = "use a TP size whose share of the intermediate width is a multiple of 64 columns"
    if sizes.inter % 64 or sizes.inter % TILE:
        what = f"{sizes.inter} columns a rank do not end in a step of 128 or 64"
        found.append(WeightFinding("weight copy", "experts.*.w2", what, fix))
    if layout == "tile_major" and sizes.hidden // GROUP % CHUNK:
        what = f"{sizes.hidden // GROUP} codes a row are not a multiple of {CHUNK}"
        found.append(WeightFinding("weight copy", "experts.*.w1.scale", what, "use a hidden size of 256 n"))
    return found


def lazily_zero(shape: tuple[int, ...]) -> Tensor:
    """uint8 zeros in fresh pages, mapped when they are written: of gigabytes a step writes few."""
    pages = mmap.mmap(-1, prod(shape), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(pages, dtype=torch.uint8).view(shape)


def routed_refusals(
    experts: Experts, selected: Iterable[int], sizes: LayerSizes, fp8: Flavour, layout: Layout
) -> list[WeightFinding]:
    """Why the selected experts have no exact copy (nothing if they have); absent ones are findings too."""
    findings = _shape_refusals(sizes, layout)
    for number in sorted(set(selected)):
        try:
            findings += _refusals(number, experts.expert(number), fp8)
        except WeightsError as absent:
            findings += absent.findings
    return findings


def empty_routed(sizes: LayerSizes, layout: Layout, device: torch.device | None = None) -> dict[str, Tensor]:
    """w13, w13_s, w2, w2_s of no expert; in host memory their pages are mapped on demand."""
    if device is None or device.type == "cpu":
        return {name: lazily_zero(shape) for name, shape in shapes(sizes, layout).items()}
    made = shapes(sizes, layout).items()
    return {name: torch.zeros(shape, dtype=torch.uint8, device=device) for name, shape in made}


def write_routed(
    out: Mapping[str, Tensor], experts: Experts, selected: Iterable[int], sizes: LayerSizes, fp8: Flavour,
    layout: Layout,
) -> None:  # fmt: skip
    """Put the selected experts in place; `routed_refusals` must have found nothing."""
    for number in sorted(set(selected)):
        expert = experts.expert(number)
        parts = _tile_major(expert, fp8) if layout == "tile_major" else _row_major(expert, sizes)
        for name, part in parts.items():
            out[name].reshape(sizes.experts, *part.shape)[number].copy_(part)


def routed_of_ranks(
    ranks: Sequence[Experts], selected: Iterable[int], sizes: LayerSizes, fp8: Flavour, layout: Layout
) -> tuple[list[dict[str, Tensor]], list[WeightFinding]]:
    """`routed_copies` of all ranks, an expert at a time on all of them, since a rank's share is cut from the
    whole expert; with the findings, under which the copies are worth nothing."""
    out, findings = [empty_routed(sizes, layout) for _ in ranks], _shape_refusals(sizes, layout)
    for number in sorted(set(selected)):
        for experts, copies in zip(ranks, out, strict=True):
            found = routed_refusals(experts, [number], sizes, fp8, layout) if not findings else []
            findings += found
            if not findings:
                write_routed(copies, experts, [number], sizes, fp8, layout)
    return out, findings


def routed_copies(
    experts: Experts, selected: Iterable[int], sizes: LayerSizes, fp8: Flavour, layout: Layout
) -> dict[str, Tensor]:
    """w13, w13_s, w2, w2_s of a rank with the selected experts in place.

    Raises WeightsError for codes or shapes that have no exact copy, with every finding and nothing written.
    """
    numbers = sorted(set(selected))
    findings = routed_refusals(experts, numbers, sizes, fp8, layout)
    if findings:
        raise WeightsError(findings)
    out = empty_routed(sizes, layout)
    write_routed(out, experts, numbers, sizes, fp8, layout)
    return out
