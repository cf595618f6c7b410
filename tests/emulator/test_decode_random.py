"""Bytes of any kind: the decoder neither crashes nor loses its place."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flymono.emulator import _core

ARCHS = st.sampled_from(["gfx942", "gfx950"])


@given(ARCHS, st.binary(max_size=400))
@example("gfx950", b"")
@example("gfx942", b"\x00\x00\x80")  # a ragged end
@example("gfx950", bytes.fromhex("0000acd3"))  # the first dword of four
def test_random_bytes_are_covered_without_gap_or_overlap(arch: str, text: bytes) -> None:
    at = 0
    for pc, size, mnemonic, shown, error in _core.decode_listing(arch, text):
        assert pc == at and size > 0
        assert (mnemonic == "unknown") == (error is not None)
        assert size in (4, 8, 16) or (error is not None and pc + size == len(text))
        assert shown
        at += size
    assert at == len(text)


@given(ARCHS, st.binary(min_size=16, max_size=16), st.binary(max_size=64))
def test_an_instruction_does_not_depend_on_what_follows(arch: str, code: bytes, rest: bytes) -> None:
    """Branches apart: whether a target is inside the code depends on how much code there is."""
    alone = _core.decode_listing(arch, code)[0]
    if alone[4] is None and not any(word in alone[3] for word in ("branch", "s_call")):
        assert _core.decode_listing(arch, code[: alone[1]] + rest)[0] == alone


@given(ARCHS, st.binary(min_size=16, max_size=16))
def test_a_cut_instruction_is_an_error_that_says_so(arch: str, code: bytes) -> None:
    _, size, _, _, error = _core.decode_listing(arch, code)[0]
    if error is None and size > 4:
        cut = _core.decode_listing(arch, code[: size - 4])[0]
        assert cut[4] is not None and "cut off by the end of the code" in cut[4]


@given(st.binary(min_size=16, max_size=16))
def test_the_archs_differ_only_in_operations_that_one_lacks(code: bytes) -> None:
    ours, theirs = (_core.decode_listing(arch, code)[0] for arch in ("gfx942", "gfx950"))
    if ours[4] is None and theirs[4] is None:
        assert ours == theirs
    elif ours[4] is None or theirs[4] is None:
        error = ours[4] or theirs[4]
        assert "does not exist on" in error or "cannot go to LDS" in error


def test_an_error_names_the_field_and_the_words() -> None:
    cases = {
        "0000fed9 00000001": "misaligned",  # ds_read_b128 to an odd register
        "0000fed9 000000fe": "past the last register",
        "000001d1 ff020000": "source field 255",  # VOP3 has no literals
        "fe7f82bf": "branch out of the code",
        "ffffffff": "no encoding",
    }
    for code, wanted in cases.items():
        raw = bytes.fromhex(code.replace(" ", ""))
        error = _core.decode_listing("gfx950", raw)[0][4]
        assert wanted in error, (code, error)
        assert f"0x{int.from_bytes(raw[:4], 'little'):08x}" in error


def test_an_unknown_arch_is_refused() -> None:
    with pytest.raises(ValueError, match="gfx90a"):
        _core.decode_listing("gfx90a", b"")
