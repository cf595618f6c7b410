"""The decoder against instructions that LLVM encoded and printed (decode_golden.tsv), bit by bit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from decode_corpus import canonical

from flymono.emulator import _core

ENCODINGS = [
    *("sop1", "sop2", "sopk", "sopc", "sopp", "smem", "vop1", "vop2", "vopc", "vop3a", "vop3b", "vop3p"),
    *("mai", "mai_scale", "ds", "mubuf", "global", "flat", "scratch"),
]
DST, DST2, SRC0, SRC1, SRC2, SRC3 = range(6)
AFTER = bytes(16)  # what follows an instruction must not matter


class Golden(NamedTuple):
    archs: tuple[str, ...]
    code: bytes
    text: str


def _golden() -> list[Golden]:
    rows = []
    for line in (Path(__file__).parent / "decode_golden.tsv").read_text().splitlines():
        archs, code, text = line.split("\t")
        rows.append(Golden(("gfx942", "gfx950") if archs == "both" else (archs,), bytes.fromhex(code), text))
    return rows


GOLDEN = _golden()


def test_every_operation_has_a_row_and_the_archs_differ_as_documented() -> None:
    core = Path(__file__).parents[2] / "emulator" / "core"
    named = re.findall(r'^FLYMONO_OP\((\w+), "(\w+)"\)', (core / "ops.def").read_text(), re.MULTILINE)
    names = [enumerator for enumerator, text in named if enumerator == text]
    assert len(names) == len(named) and names[1:] == sorted(set(names[1:])) and names[0] == "unknown"
    ours, theirs = set(_core.decode_known("gfx942")), set(_core.decode_known("gfx950"))
    assert ours | theirs == set(names[1:])
    # XF32 matrices went; all else is new on gfx950
    assert ours - theirs == {"v_mfma_f32_16x16x8_xf32", "v_mfma_f32_32x32x4_xf32"}
    assert {
        "v_bitop3_b32",
        "v_permlane32_swap_b32",
        "v_cvt_pk_bf16_f32",
        "ds_read_b64_tr_b8",
    } <= theirs - ours


def test_the_golden_file_covers_every_encoding() -> None:
    seen = {ENCODINGS[_core.decode_first(g.archs[-1], g.code + AFTER)["encoding"]] for g in GOLDEN}
    assert seen == set(ENCODINGS)


def test_text_and_size_are_llvms() -> None:
    wrong = []
    for g in GOLDEN:
        for arch in g.archs:
            _, size, mnemonic, text, error = _core.decode_listing(arch, g.code + AFTER)[0]
            if (
                error
                or size != len(g.code)
                or mnemonic != g.text.split()[0]
                or canonical(text) != canonical(g.text)
            ):
                wrong.append(
                    f"{arch} {g.code.hex()}: {g.text!r} decoded as {text!r} ({size} bytes) {error or ''}"
                )
    assert not wrong, "\n".join(wrong)


def test_an_operation_that_the_arch_lacks_is_refused_by_name() -> None:
    """Only the opcode decides: of what LLVM emits for one arch alone, some is merely better code there."""
    refused = 0
    for g in GOLDEN:
        for arch in {"gfx942", "gfx950"} - set(g.archs):
            operation = _core.decode_first(g.archs[0], g.code + AFTER)["op"]
            if operation not in _core.decode_known(arch):
                error = _core.decode_listing(arch, g.code + AFTER)[0][4]
                assert error.startswith(f"{operation} does not exist on {arch}"), (g.text, error)
                refused += 1
    assert refused > 50


def _bits(*spans: tuple[int, int]) -> set[int]:
    """Bits first..last of each span."""
    return {bit for first, last in spans for bit in range(first, last + 1)}


def _unused_bits(g: Golden, fields: dict[str, Any]) -> set[int]:
    """Bits that the manuals call reserved, and fields of operands that this operation lacks."""
    encoding = ENCODINGS[fields["encoding"]]
    present = [operand[0] != 0 for operand in fields["operands"]]
    if encoding in ("ds", "mubuf", "flat", "global", "scratch", "smem"):
        return _unused_in_memory(encoding, g, present)
    if encoding in ("sop1", "sopk", "sopp"):
        unused = {
            "sop1": _bits((0, 7)) if not present[SRC0] else set(),
            "sopk": set(),
            "sopp": _bits((0, 15)),
        }[encoding]
        return unused | (set() if present[DST] or encoding == "sopp" else _bits((16, 22)))
    if fields["sdwa"][0]:
        return {54, 62} | (_bits((56, 63)) if encoding == "vop1" else set())
    if fields["dpp"][0]:
        return {49, 50} | ({54, 55} if encoding == "vop1" else set())
    if encoding == "mai":
        return _bits((8, 15), (41, 63)) if "accvgpr" in g.text else set()
    if encoding == "mai_scale":
        return _bits((0, 10), (15, 15), (50, 58), (61, 63))
    return _unused_in_vop3(fields, present) if encoding.startswith("vop3") else set()


def _unused_in_vop3(fields: dict[str, Any], present: list[bool]) -> set[int]:
    tied = (
        "fmac" in fields["op"]
        or "dot2c" in fields["op"]
        or "dot4c" in fields["op"]
        or "dot8c" in fields["op"]
    )
    sources = sum(present[SRC0:SRC3]) - tied
    unused = {15} if "bitop3" in fields["op"] else set()
    mask_third = present[SRC3] and not present[SRC2]
    for i in range(sources, 3):
        unused |= {8 + i, 61 + i} | (set() if mask_third and i == 2 else _bits((32 + 9 * i, 40 + 9 * i)))
    return unused


def _unused_in_memory(encoding: str, g: Golden, present: list[bool]) -> set[int]:
    data = present[SRC1]
    absent = {
        "ds": [(DST, (56, 63)), (SRC0, (32, 39)), (SRC1, (40, 47)), (SRC2, (48, 55))],
        "mubuf": [(SRC0, (32, 39)), (SRC2, (0, 13)), (SRC2, (16, 16)), (SRC2, (48, 52)), (SRC2, (56, 63))],
        "smem": [(SRC2, (0, 5)), (SRC2, (14, 14)), (SRC2, (16, 17)), (SRC2, (32, 63))],
    }.get(encoding, [(DST, (56, 63)), (SRC0, (32, 39)), (SRC1, (40, 47))])
    reserved = {
        "ds": set(),
        "mubuf": {25, 53, 54},
        "flat": {12, 13} | _bits((48, 54)),
        "global": {13},
        "scratch": set(),
        "smem": {13, 15} | _bits((53, 56)),
    }[encoding]
    unused = reserved | {bit for operand, span in absent if not present[operand] for bit in _bits(span)}
    if encoding == "smem":
        if not present[DST]:
            unused |= _bits((6, 12))
        if not present[SRC3]:
            unused |= _bits((57, 63))  # no soffset
        return unused | ({17} if present[SRC3] else set())  # an offset of 0 beside soffset
    if not present[DST] and not data:
        unused |= _bits((40, 47)) | ({25} if encoding == "ds" else {55})
    return unused


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_used_bit_changes_the_instruction(encoding: str) -> None:
    """Flipping any bit gives another instruction or none, unless the manuals leave the bit unused here."""
    silent = []
    for g in GOLDEN:
        arch = g.archs[-1]
        fields = _core.decode_first(arch, g.code + AFTER)
        if ENCODINGS[fields["encoding"]] != encoding:
            continue
        for bit in sorted(set(range(8 * len(g.code))) - _unused_bits(g, fields)):
            flipped = bytearray(g.code + AFTER)
            flipped[bit // 8] ^= 1 << bit % 8
            if _core.decode_first(arch, bytes(flipped)) == fields:
                silent.append(f"bit {bit} of {g.text}")
    assert not silent, "\n".join(silent[:40])
