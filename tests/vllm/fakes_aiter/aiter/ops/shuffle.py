"""The order of bytes of MXFP4 experts for block-scaled MFMAs, from the formulas of the FFN math sheet (4.2).

Only what is not zero is written: expert tensors of tests are mapped lazily and mostly zero. The codes of w2
are padded to a multiple of 8 columns, as the kernels' layout demands; FLYMONO_TEST_CODES=tight leaves them as
they are.
"""

import os

import torch
from lazy import lazy_zeros

TILE, GROUP_BYTES, STEP_BYTES = 16, 16, 64


def shuffle_weight(weight, is_guinterleave, gate_up):
    """[E, N, K / 2] FP4 pairs: tiles of 16 rows, gate and up in turn; in a tile K steps of 128, blocks of 32,
    rows."""
    experts, rows, row = weight.shape
    plain, out = weight.view(torch.uint8), lazy_zeros(weight.shape, torch.uint8)
    for e in range(experts):
        if plain[e].any():
            tiles = _in_turn(plain[e]) if gate_up and is_guinterleave else plain[e]
            steps = tiles.view(rows // TILE, TILE, row // STEP_BYTES, STEP_BYTES // GROUP_BYTES, GROUP_BYTES)
            out[e] = steps.permute(0, 2, 3, 1, 4).reshape(rows, row)
    return out.view(weight.dtype)


def shuffle_scale(codes, experts, is_guinterleave, gate_up):
    """[E * N, C] codes in blocks of 32 rows and 8 columns."""
    rows, columns = codes.shape[0] // experts, codes.shape[1]
    wide = columns if os.environ.get("FLYMONO_TEST_CODES") == "tight" else -(-columns // 8) * 8
    plain = codes.view(torch.uint8).view(experts, rows, columns)
    out = lazy_zeros((experts, rows, wide), torch.uint8)
    for e in range(experts):
        if plain[e].any():
            own = _in_turn(plain[e]) if gate_up and is_guinterleave else plain[e]
            own = torch.nn.functional.pad(own, (0, wide - columns))
            if wide % 8 == 0:
                blocks = own.view(rows // 32, 2, 16, wide // 8, 2, 4)
                own = blocks.permute(0, 3, 5, 2, 4, 1).reshape(rows, wide)
            out[e] = own
    return out.view(experts * rows, wide).view(codes.dtype)


def _in_turn(both):
    """Rows of gate and of up, in turn by tiles of 16."""
    half = both.shape[0] // 2
    return both.view(2, half // TILE, TILE, -1).transpose(0, 1).reshape(both.shape)
