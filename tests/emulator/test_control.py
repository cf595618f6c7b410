"""Scalar control flow: branches taken and not taken, both ways, and what an end or a nop leaves."""

import pytest
from asm import EXEC, VCC, Inline, Ins, program, s
from differ import core
from oracle.state import State
from states import random_state, rng_of

END = Ins("s_endpgm")
BRANCHES = {
    "s_cbranch_scc0": lambda st: not st.scc,
    "s_cbranch_scc1": lambda st: st.scc,
    "s_cbranch_vccz": lambda st: st.scalar(VCC) == 0,
    "s_cbranch_vccnz": lambda st: st.scalar(VCC) != 0,
    "s_cbranch_execz": lambda st: st.exec == 0,
    "s_cbranch_execnz": lambda st: st.exec != 0,
    "s_branch": lambda st: True,
}


def mark(value: int) -> Ins:
    return Ins("s_movk_i32", (s(50),), imm=value)


@pytest.mark.parametrize("name", BRANCHES)
def test_forward(name: str) -> None:
    """Taken: the instruction behind the branch does not run. VCC and EXEC are tested as whole 64 bits."""
    for vcc in (0, 1, 1 << 63, 1 << 32):
        for mask in (0, 1, 1 << 63):
            for scc in (0, 1):
                state = random_state(rng_of("branch"), False)
                state.set_scalar(VCC, vcc)
                state.set_scalar(EXEC, mask)
                state.scc = scc
                got = core("gfx942", program(mark(1), Ins(name, imm=1), mark(2), END), state)
                assert int(got.s[50]) == (1 if BRANCHES[name](state) else 2)


def test_backward_loop() -> None:
    """Sum 1..10 with a counted loop: a negative displacement counts from the next instruction."""
    state = State()
    state.s[51] = 10
    loop = (
        Ins("s_add_u32", (s(50),), (s(50), s(51))),
        Ins("s_sub_i32", (s(51),), (s(51), Inline(1))),
        Ins("s_cmp_lg_u32", (), (s(51), Inline(0))),
        Ins("s_cbranch_scc1", imm=-4 & 0xFFFF),
        END,
    )
    assert int(core("gfx950", program(*loop), state).s[50]) == 55


def test_end_stops() -> None:
    assert int(core("gfx942", program(mark(1), END, mark(2)), State()).s[50]) == 1


@pytest.mark.parametrize("imm", [0, 1, 7, 15])
def test_nops_sleep_and_waits_change_nothing(imm: int) -> None:
    state = random_state(rng_of("nop"), False)
    for name in ("s_nop", "s_sleep", "s_waitcnt"):
        got = core("gfx942", program(Ins(name, imm=imm), END), state)
        assert (got.s == state.s).all() and (got.v[:64] == state.v[:64]).all() and got.scc == state.scc


def test_barrier_of_one_wave_is_a_nop() -> None:
    assert int(core("gfx942", program(Ins("s_barrier"), mark(3), END), State()).s[50]) == 3


def test_branch_out_of_the_code_is_an_error() -> None:
    with pytest.raises(Exception, match=r"(?i)branch|outside|leaves|end of"):
        core("gfx942", program(Ins("s_branch", imm=0x100), END), State())
