"""Random and corner states of a wave, for the differential tests: one seed, one state."""

from __future__ import annotations

import random
import zlib

import numpy as np
from asm import EXEC, INV_2PI, M0, VCC, s
from oracle.state import LANES, State

INTS = [
    0,
    1,
    2,
    3,
    5,
    7,
    8,
    15,
    16,
    31,
    32,
    33,
    63,
    64,
    0x7F,
    0x80,
    0xFF,
    0x100,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x10000,
    0x7FFFFF,
    0x800000,
    0xFFFFFF,
    0x1000000,
    0x7FFFFFFE,
    0x7FFFFFFF,
    0x80000000,
    0x80000001,
    0xFFFF8000,
    0xFFFFFFFE,
    0xFFFFFFFF,
]
FLOATS = [
    0x00000000,
    0x80000000,
    0x00000001,
    0x80000001,
    0x007FFFFF,
    0x807FFFFF,
    0x00800000,
    0x80800000,
    0x00800001,
    0x3F800000,
    0xBF800000,
    0x3F7FFFFF,
    0x3F800001,
    0x3F000000,
    0x40000000,
    0x3FC00000,
    0x40200000,
    0x4B000000,
    0x4B000001,
    0x4AFFFFFF,
    0x4F000000,
    0x4EFFFFFF,
    0xCF000000,
    0x4F7FFFFF,
    0x4F800000,
    0x7F7FFFFF,
    0xFF7FFFFF,
    0x7F000000,
    0x7F800000,
    0xFF800000,
    0x7FC00000,
    0xFFC00000,
    0x7F800001,
    0xFFA00000,
    0x43E00000,
    0x43E80000,
    0x43E80001,
    0x43700000,
    0x43780000,
    0x34000000,
    0x33FFFFFF,
    0x1A000000,
    0x5A000000,
    0x42FC0000,
    0xC2FC0000,
]
F16S = [
    0,
    0x8000,
    1,
    0x8001,
    0x3FF,
    0x400,
    0x3C00,
    0xBC00,
    0x3800,
    0x7BFF,
    0xFBFF,
    0x7C00,
    0xFC00,
    0x7E00,
    0x7D00,
]
# Upper dwords of f64 corners: zeros, denormals, one, two, largest, infinity, NaNs.
F64_TOPS = [
    0,
    1 << 31,
    1,
    0xFFFFF,
    0x100000,
    0x3FF00000,
    0xBFF00000,
    0x40000000,
    0x7FEFFFFF,
    0x7FF00000,
    0xFFF00000,
    0x7FF80000,
    0x7FF00001,
]
INLINES: list[int | float] = [0, 1, 5, 32, 64, -1, -16, 0.5, -0.5, 1.0, -1.0, 2.0, -4.0, INV_2PI]
EXECS = ["all", "random", "random", "sparse", "one", "none"]


def rng_of(*key: object) -> random.Random:
    return random.Random(zlib.crc32(repr(key).encode()))


def word(rng: random.Random, domain: str | bool) -> int:
    """A register value: corners, random bits, and values near each other. domain: int, f32, f16 (both
    halves), f64."""
    if domain == "f16":
        return half(rng) | half(rng) << 16
    floats = domain not in ("int", False)
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(F64_TOPS if domain == "f64" else FLOATS if floats else INTS)
    if floats and kind < 0.8:  # exponents near each other, so that sums cancel and round
        near = rng.randrange(1018, 1030) << 20 if domain == "f64" else rng.randrange(119, 137) << 23
        return rng.getrandbits(1) << 31 | near | rng.getrandbits(20) & rng.choice((-1, -4096))
    if not floats and kind < 0.6:
        return rng.randrange(64)
    return rng.getrandbits(32)


def half(rng: random.Random) -> int:
    if rng.random() < 0.4:
        return rng.choice(F16S)
    return rng.getrandbits(1) << 15 | rng.randrange(9, 20) << 10 | rng.getrandbits(10)


def exec_mask(rng: random.Random, shape: str) -> int:
    return {
        "all": (1 << 64) - 1,
        "random": rng.getrandbits(64),
        "sparse": rng.getrandbits(64) & rng.getrandbits(64),
        "one": 1 << rng.randrange(64),
        "none": 0,
    }[shape]


def random_state(
    rng: random.Random, floats: str | bool, shape: str = "all", rows: int = 24, lds: int = 0
) -> State:
    state = State()
    for row in range(rows):
        state.v[row] = [word(rng, floats) for _ in range(LANES)]
    for index in range(102):
        state.s[index] = word(rng, floats)
    state.set_scalar(VCC, rng.getrandbits(64))
    state.set_scalar(s(40, 2), rng.getrandbits(64))
    state.set_scalar(EXEC, exec_mask(rng, shape))
    state.set_scalar(M0, rng.getrandbits(32))
    state.scc = rng.getrandbits(1)
    state.lds = np.frombuffer(rng.randbytes(lds), np.uint8).copy()
    return state
