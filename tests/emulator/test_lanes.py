"""Lane traffic of the core against the oracle: every DPP control, SDWA select, swizzle mask and permlane
swap."""

import itertools

import pytest
from asm import EXEC, M0, Dpp, Inline, Ins, Sdwa, s, v
from cases import random_dpp
from differ import check, core, implemented
from oracle.lanes import dpp_lane
from states import exec_mask, random_state, rng_of

CONTROLS = [
    *range(0x100),
    *range(0x101, 0x110),
    *range(0x111, 0x120),
    *range(0x121, 0x130),
    0x130,
    0x134,
    0x138,
    0x13C,
    0x140,
    0x141,
    0x142,
    0x143,
    *range(0x150, 0x160),
]


@pytest.mark.parametrize("bound", [False, True])
def test_every_dpp_control(bound: bool) -> None:
    rng = rng_of("dpp", bound)
    state = random_state(rng, False)
    for ctrl in CONTROLS:
        for row, bank in ((15, 15), (rng.randrange(16), rng.randrange(16))):
            check("gfx942", Ins("v_mov_b32", (v(16),), (v(2),), dpp=Dpp(ctrl, row, bank, bound)), state)


def test_dpp_masks() -> None:
    """All 256 row/bank masks with the control pair that exchanges lanes 4 apart, source and destination one
    register."""
    state = random_state(rng_of("masks"), False)
    for row, bank in itertools.product(range(16), repeat=2):
        for ctrl in (0x104, 0x114):
            check("gfx950", Ins("v_mov_b32", (v(2),), (v(2),), dpp=Dpp(ctrl, row, bank)), state)


def test_dpp_in_arithmetic() -> None:
    """Only source 0 moves; source 1 stays in its lane; negation follows the fetch."""
    rng = rng_of("dpp arithmetic")
    state = random_state(rng, True)
    for _ in range(40):
        dpp = random_dpp(rng)
        check(
            "gfx942",
            Ins("v_add_f32", (v(16),), (v(2), v(4)), dpp=dpp, neg=rng.randrange(4), abs=rng.randrange(4)),
            state,
        )
        check("gfx950", Ins("v_max_i32", (v(16),), (v(2), v(4)), dpp=dpp), state)


def test_row_exchange_by_two_masked_moves() -> None:
    """shr:4 into odd banks and shl:4 into even banks swap neighbouring quads, as compiled reductions do."""
    state = random_state(rng_of("exchange"), False)
    for ctrl, bank in ((0x114, 0xA), (0x104, 0x5)):
        state = core(
            "gfx942",
            __import__("asm").encode(Ins("v_mov_b32", (v(16),), (v(2),), dpp=Dpp(ctrl, 15, bank))),
            state,
        )
    assert [int(x) for x in state.v[16]] == [int(state.v[2, lane ^ 4]) for lane in range(64)]


def test_oracle_rows_stay_in_rows() -> None:
    for ctrl in CONTROLS:
        for lane in range(64):
            source = dpp_lane(ctrl, lane)
            if source is not None and ctrl < 0x130:
                assert source // 16 == lane // 16


@pytest.mark.parametrize(
    "name", ["v_add_u32", "v_and_b32", "v_lshlrev_b32", "v_ashrrev_i32", "v_mul_lo_u16", "v_cndmask_b32"]
)
def test_sdwa_selects(name: str) -> None:
    """Every pair of source selects, with and without sign extension."""
    if not implemented(name):
        pytest.skip("the core does not implement it")
    state = random_state(rng_of("sdwa", name), False, "random")
    for sel in itertools.product(range(7), repeat=2):
        for sext in ((False, False), (True, True)) if name != "v_cndmask_b32" else ((False, False),):
            check("gfx942", Ins(name, (v(16),), (v(0), v(2)), sdwa=Sdwa(sel=sel, sext=sext)), state)


@pytest.mark.parametrize("unused", [0, 1, 2])
def test_sdwa_destination(unused: int) -> None:
    """A destination select other than DWORD is right, or refused as not implemented; never silently wrong."""
    state = random_state(rng_of("sdwa dst"), False, "random")
    for dst_sel in range(6):
        ins = Ins("v_or_b32", (v(16),), (v(0), v(2)), sdwa=Sdwa(dst_sel, unused, (6, 6)))
        try:
            check("gfx942", ins, state)
        except AssertionError:
            raise
        except Exception as refused:
            assert "implement" in str(refused) or "support" in str(refused)


def test_readlane_and_writelane() -> None:
    rng = rng_of("readlane")
    for shape in ("all", "random", "one", "none"):
        state = random_state(rng, False, shape)
        for lane in (0, 1, 31, 32, 63):
            check("gfx942", Ins("v_readlane_b32", (s(7),), (v(2), Inline(lane)), enc="vop3"), state)
            check("gfx942", Ins("v_writelane_b32", (v(16),), (s(8), Inline(lane)), enc="vop3"), state)
        for index in (4, 8):
            check("gfx942", Ins("v_readlane_b32", (s(7),), (v(2), s(index)), enc="vop3"), state)
            check("gfx942", Ins("v_writelane_b32", (v(16),), (Inline(-3), s(index)), enc="vop3"), state)
        check("gfx942", Ins("v_readlane_b32", (M0,), (v(2), Inline(5)), enc="vop3"), state)
        check("gfx942", Ins("v_readfirstlane_b32", (s(7),), (v(2),)), state)


@pytest.mark.parametrize("name", ["v_permlane16_swap_b32", "v_permlane32_swap_b32"])
def test_permlane_swaps(name: str) -> None:
    state = random_state(rng_of(name), False)
    check("gfx950", Ins(name, (v(3),), (v(5),)), state)
    state.set_scalar(EXEC, 0xFFFF)
    with pytest.raises(Exception, match=r"(?i)exec"):
        check("gfx950", Ins(name, (v(3),), (v(5),)), state)


def test_swizzle_every_mask() -> None:
    """All xor masks alone, quad permutes, and random and/or/xor triples."""
    rng = rng_of("swizzle")
    state = random_state(rng, False)
    offsets = [x << 10 | 0x1F for x in range(32)] + [0x8000 | q for q in range(256)]
    offsets += [rng.randrange(0x8000) for _ in range(200)]
    for offset in offsets:
        check("gfx942", Ins("ds_swizzle_b32", (v(16),), (v(2),), imm=offset), state)


def test_swizzle_from_inactive_lanes_gives_zero() -> None:
    rng = rng_of("swizzle exec")
    for _ in range(10):
        state = random_state(rng, False, "random")
        check("gfx942", Ins("ds_swizzle_b32", (v(16),), (v(2),), imm=0x401F), state)


def test_bpermute() -> None:
    rng = rng_of("bpermute")
    for offset in (0, 4, 252, 1020):
        for shape in ("all", "random", "one"):
            state = random_state(rng, False, shape)
            state.v[0] = [4 * rng.randrange(64) for _ in range(64)]
            state.v[1] = [rng.getrandbits(32) for _ in range(64)]
            for address in (v(0), v(1)):
                check("gfx950", Ins("ds_bpermute_b32", (v(16),), (address, v(2)), imm=offset), state)


def test_mbcnt_counts_lanes_below() -> None:
    state = random_state(rng_of("mbcnt"), False)
    state.set_scalar(EXEC, exec_mask(rng_of("mbcnt"), "random"))
    for name in ("v_mbcnt_lo_u32_b32", "v_mbcnt_hi_u32_b32"):
        check("gfx942", Ins(name, (v(16),), (Inline(-1), Inline(0)), enc="vop3"), state)
        check("gfx942", Ins(name, (v(16),), (s(8), v(2)), enc="vop3"), state)
