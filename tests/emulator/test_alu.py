"""Every scalar and vector ALU operation of the core against the oracle, both archs, random modifiers and
EXEC."""

import pytest
from asm import EXEC, Ins, Literal, s, v
from cases import (
    CMPX_NAMES,
    PACKED16_NAMES,
    PACKED_NAMES,
    SCALAR_NAMES,
    VECTOR_NAMES,
    packed16_cases,
    packed_cases,
    scalar_cases,
    vector_cases,
)
from differ import check, check_all, core, gfx950_only, implemented
from oracle.valu_float import TRANSCENDENTAL
from states import random_state, rng_of

from flymono.emulator.execute import execute

ARCHS = ("gfx942", "gfx950")


SIGNALLING_F16 = ("v_min_f16", "v_max_f16", "v_pk_min_f16", "v_pk_max_f16")


def matrix(names: list[str]) -> list[object]:
    """name x arch: gfx950's additions only there; both archs where FP8 bytes are read or written."""
    out = []
    for i, name in enumerate(names):
        if name in SIGNALLING_F16:
            reason = "min and max of f16 do not quiet a signalling NaN; f16 is in no decode kernel"
            out.append(pytest.param(name, ARCHS[i % 2], marks=pytest.mark.xfail(strict=True, reason=reason)))
        elif not implemented(name):
            out.append(
                pytest.param(name, "gfx942", marks=pytest.mark.skip(reason="the core does not implement it"))
            )
        elif gfx950_only(name):
            out.append((name, "gfx950"))
        elif "8" in name.split("_cvt_")[-1]:
            out += [(name, arch) for arch in ARCHS]
        else:
            out.append((name, ARCHS[i % 2]))
    return out


@pytest.mark.parametrize(("name", "arch"), matrix(SCALAR_NAMES))
def test_scalar(name: str, arch: str) -> None:
    check_all(arch, scalar_cases(name))


@pytest.mark.parametrize(("name", "arch"), matrix(VECTOR_NAMES + CMPX_NAMES))
def test_vector(name: str, arch: str) -> None:
    check_all(arch, vector_cases(name))


@pytest.mark.parametrize(("name", "arch"), matrix(PACKED_NAMES))
def test_packed(name: str, arch: str) -> None:
    check_all(arch, packed_cases(name))


@pytest.mark.parametrize(("name", "arch"), matrix(PACKED16_NAMES))
def test_packed16(name: str, arch: str) -> None:
    check_all(arch, packed16_cases(name))


@pytest.mark.parametrize("name", [n for n in TRANSCENDENTAL if implemented(n)])
def test_transcendental_exact_model_is_correctly_rounded(name: str) -> None:
    """The oracle rounds the exact value once; the default model must give those bits (a wider sweep of
    arguments)."""
    rng = rng_of("sweep", name)
    state = random_state(rng, True)
    for row in range(8):
        state.v[row] = [rng.randrange(1, 255) << 23 | rng.getrandbits(23) for _ in range(64)]
        check("gfx942", Ins(name, (v(16),), (v(row),)), state)


def test_all_bitop3_tables() -> None:
    state = random_state(rng_of("bitop3"), False)
    for table in range(256):
        check("gfx950", Ins("v_bitop3_b32", (v(16),), (v(0), v(1), v(2)), bitop3=table), state)


def test_perm_selectors() -> None:
    """All 256 codes of a selector byte, in every position."""
    state = random_state(rng_of("perm"), False)
    for base in range(0, 256, 16):
        for lane in range(64):
            code = base + lane % 16
            state.v[2, lane] = (code << 8 * (lane // 16)) | (0x03020100 & ~(0xFF << 8 * (lane // 16)))
        check("gfx942", Ins("v_perm_b32", (v(16),), (v(0), v(1), v(2))), state)


def test_inline_float_in_integer_operand_is_its_f32_pattern() -> None:
    state = random_state(rng_of("inline"), False)
    got = core("gfx942", bytes.fromhex("f2020c68"), state)  # v_add_u32 v6, 1.0, v1
    assert (got.v[6] == state.v[1] + 0x3F800000).all()


def test_unknown_opcode_is_an_error() -> None:
    """An unallocated number (VOP1 120) is refused with its bytes, never skipped."""
    with pytest.raises(ValueError, match=r"(?i)no operation has opcode.*7e08f100"):
        execute("gfx942", bytes.fromhex("00f1087e"))


def test_gfx950_operations_are_refused_on_gfx942() -> None:
    from asm import encode

    for ins in (
        Ins("v_bitop3_b32", (v(16),), (v(0), v(1), v(2)), bitop3=0xC8),
        Ins("v_maximum3_f32", (v(16),), (v(0), v(1), v(2))),
        Ins("v_cvt_pk_bf16_f32", (v(16),), (v(0), v(1))),
        Ins("v_permlane32_swap_b32", (v(16),), (v(0),)),
    ):
        with pytest.raises(Exception, match=r"(?i)gfx942|implement|unknown"):
            execute("gfx942", encode(ins))


def test_exec_zero_writes_nothing() -> None:
    state = random_state(rng_of("zero"), False)
    state.set_scalar(EXEC, 0)
    check("gfx942", Ins("v_mov_b32", (v(3),), (Literal(7),)), state)
    check("gfx942", Ins("v_readfirstlane_b32", (s(7),), (v(3),)), state)
