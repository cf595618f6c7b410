"""A second opinion on mnemonics and sizes: tinygrad's decoder, which is generated from AMD's own ISA tables.

Its one table is gfx950's, so only that arch is compared. It does not check registers and knows operations
that compilers do not emit for these archs; what both accept must have the same name and size.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from flymono.emulator import _core

amd = pytest.importorskip(
    "tinygrad.renderer.amd", reason="tinygrad (dev group, second decoder) is not installed"
)

# (bits that are fixed, their value): one random stream for each encoding
PREFIXES = [
    (0x80000000, 0x00000000),
    (0xFE000000, 0x7E000000),
    (0xFE000000, 0x7C000000),
    (0xFC000000, 0xD0000000),
    (0xFF800000, 0xD3800000),
    (0xFC010000, 0xD8000000),
    (0xFC020000, 0xE0000000),
    (0xFC00C000, 0xDC000000),
    (0xFC00C000, 0xDC004000),
    (0xFC00C000, 0xDC008000),
    (0xFC000000, 0xC0000000),
    (0xC0000000, 0x80000000),
    (0xF0000000, 0xB0000000),
    (0xFF800000, 0xBE800000),
    (0xFF800000, 0xBF000000),
    (0xFF800000, 0xBF800000),
]
# AMD's name -> LLVM's
RENAMED = {
    "v_mad_mix_f32": "v_fma_mix_f32",
    "v_mad_mixlo_f16": "v_fma_mixlo_f16",
    "v_mad_mixhi_f16": "v_fma_mixhi_f16",
    "v_accvgpr_read": "v_accvgpr_read_b32",
    "v_accvgpr_write": "v_accvgpr_write_b32",
}


def _random_code(seed: int, count: int) -> Iterator[bytes]:
    source = random.Random(seed)
    for i in range(count):
        mask, value = PREFIXES[i % len(PREFIXES)]
        words = [source.getrandbits(32) & ~1 for _ in range(4)]  # even registers are more often legal
        words[0] = words[0] & ~mask | value
        # tinygrad takes any VOP3P before such a dword for the first half of a scaled MFMA
        words[2] &= 0x7FFFFFFF
        yield b"".join(word.to_bytes(4, "little") for word in words)


def _operation(mnemonic: str) -> str:
    for suffix in ("_e32", "_e64", "_sdwa", "_dpp"):
        mnemonic = mnemonic.removesuffix(suffix)
    return RENAMED.get(mnemonic, mnemonic)


def test_what_both_decode_has_one_name_and_size() -> None:
    agreed = 0
    wrong = []
    for code in _random_code(seed=20, count=24_000):
        _, size, mnemonic, text, error = _core.decode_listing("gfx950", code)[0]
        if error is not None:
            continue
        other = amd.decode_inst(code, "cdna")  # raises for what it does not know: nothing is ours alone
        if (_operation(mnemonic), size) != (_operation(other.op_name.lower()), other.size()):
            wrong.append(
                f"{code[:size].hex()}: {text} ({size} bytes), tinygrad {other.op_name} ({other.size()})"
            )
        agreed += 1
    assert not wrong, "\n".join(wrong[:40])
    assert agreed > 5_000
