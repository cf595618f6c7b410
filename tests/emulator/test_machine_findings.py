"""What the machine must report: each test has one mistake in it, and mostly its repaired twin."""

from __future__ import annotations

import numpy as np
import pytest
from machine_asm import (
    branch,
    code_of,
    const,
    ds_read,
    ds_write,
    global_load,
    global_store,
    must_pass,
    run,
    s_barrier,
    s_cmp_eq_u32,
    s_endpgm,
    s_load,
    s_memrealtime,
    s_mov,
    s_nop,
    s_sleep,
    s_trap,
    s_waitcnt,
    sop1,
    v,
    v_add_u32,
    v_and,
    v_cmp_eq_u32,
    v_lshlrev,
    v_mov,
    v_readfirstlane,
)
from test_machine_launch import pointer


@pytest.fixture
def memory() -> np.ndarray:
    return np.arange(1024, dtype=np.uint32)


def lanes(*body: list[int]) -> list[list[int]]:
    return [v_lshlrev(1, const(2), 0), *body]


def pc_of(code: bytes, instruction: list[int]) -> int:
    return code.index(code_of(instruction))


@pytest.mark.parametrize("sampling", ["late", "early", "random"])
def test_using_a_vector_load_too_early(memory: np.ndarray, sampling: str) -> None:
    load, use = global_load(2, 1, 4), v_add_u32(3, v(2), 2)

    def code(wait: list[int]) -> bytes:
        return code_of(
            pointer(4, memory),
            *lanes(load, wait, use, global_store(1, 3, 4, offset=1024), s_waitcnt(vm=0)),
            s_endpgm(),
        )

    must_pass(run(code(s_waitcnt(vm=0)), [("m", memory)], sampling=sampling))
    assert (memory[256:320] == 2 * np.arange(64)).all()
    bad = code(s_nop())
    (finding,) = run(bad, [("m", memory)], sampling=sampling).findings
    assert finding.kind == "missing-wait"
    assert (finding.pc, finding.other_pc) == (pc_of(bad, use), pc_of(bad, load))
    assert finding.text.startswith("v_add_u32") and finding.other_text.startswith("global_load_dword")


def test_overwriting_the_target_of_a_load(memory: np.ndarray) -> None:
    code = code_of(
        pointer(4, memory), *lanes(global_load(2, 1, 4), v_mov(2, const(0)), s_waitcnt(vm=0)), s_endpgm()
    )
    assert run(code, [("m", memory)]).kinds == ["missing-wait"]


def test_counts_of_waits_are_exact(memory: np.ndarray) -> None:
    """Loads return in order: vmcnt(1) retires the first of two; a younger store counts too."""

    def code(left: int) -> bytes:
        body = lanes(
            global_load(2, 1, 4), global_load(3, 1, 4), s_waitcnt(vm=left), v_mov(4, v(2)), s_waitcnt(vm=0)
        )
        return code_of(pointer(4, memory), *body, s_endpgm())

    must_pass(run(code(1), [("m", memory)]))
    assert run(code(2), [("m", memory)]).kinds == ["missing-wait"]


def test_a_younger_load_may_replace_an_older_one(memory: np.ndarray) -> None:
    body = lanes(
        global_load(2, 1, 4),
        global_load(2, 1, 4, offset=256),
        s_waitcnt(vm=0),
        global_store(1, 2, 4, offset=2048),
    )
    must_pass(run(code_of(pointer(4, memory), *body, s_endpgm()), [("m", memory)]))
    assert (memory[512:576] == np.arange(64, 128)).all()


def test_scalar_loads_return_in_any_order(memory: np.ndarray) -> None:
    def code(left: int) -> bytes:
        return code_of(
            pointer(4, memory),
            s_load(8, 4, 0),
            s_load(9, 4, 4),
            s_waitcnt(lgkm=left),
            v_mov(2, 8),
            s_waitcnt(lgkm=0),
            s_endpgm(),
        )

    must_pass(run(code(0), [("m", memory)]))
    assert run(code(1), [("m", memory)]).kinds == ["missing-wait"]


def test_lds_reads_need_lgkmcnt() -> None:
    def code(wait: list[int]) -> bytes:
        return code_of(
            *lanes(ds_write(1, 0), ds_read(2, 1), wait, v_mov(3, v(2)), s_waitcnt(lgkm=0)), s_endpgm()
        )

    must_pass(run(code(s_waitcnt(lgkm=0)), lds=256))
    assert run(code(s_nop()), lds=256).kinds == ["missing-wait"]
    assert run(code(s_waitcnt(lgkm=1)), lds=256).kinds == ["missing-wait"]


def test_lds_writes_have_to_land_before_the_barrier() -> None:
    """Waves read each other's bytes: lgkmcnt(0) belongs before the barrier, not behind it."""
    write = ds_write(1, 0)

    def code(before: list[int], behind: list[int]) -> bytes:
        turn = [s_mov(6, 256), v_add_u32(3, 6, 1), s_mov(6, 511), v_and(3, 6, 3)]
        return code_of(
            *lanes(write, before, s_barrier(), behind, *turn, ds_read(4, 3), s_waitcnt(lgkm=0)), s_endpgm()
        )

    must_pass(run(code(s_waitcnt(lgkm=0), s_nop()), waves=2, lds=512))
    for behind in (s_nop(), s_waitcnt(lgkm=0)):
        bad = code(s_nop(), behind)
        findings = run(bad, waves=2, lds=512).findings
        assert {f.kind for f in findings} == {"missing-wait"}
        assert findings[0].other_pc == pc_of(bad, write)
        assert findings[0].text.startswith("ds_read_b32")


def test_a_full_counter_retires_the_oldest_load(memory: np.ndarray) -> None:
    """The 64th VM operation cannot issue before the first has returned: no wait is needed then."""
    body = lanes(global_load(2, 1, 4), *[global_load(3, 1, 4)] * 63, v_mov(4, v(2)), s_waitcnt(vm=0))
    must_pass(run(code_of(pointer(4, memory), *body, s_endpgm()), [("m", memory)]))


def test_a_late_load_sees_stores_of_others_but_not_the_own_younger_one(memory: np.ndarray) -> None:
    body = lanes(
        global_load(2, 1, 4),
        v_mov(3, const(5)),
        global_store(1, 3, 4),
        s_waitcnt(vm=0),
        global_store(1, 2, 4, offset=1024),
    )
    must_pass(run(code_of(pointer(4, memory), *body, s_endpgm()), [("m", memory)], sampling="late"))
    assert (memory[256:320] == np.arange(64)).all()


def test_access_outside_the_buffers(memory: np.ndarray) -> None:
    code = code_of(
        pointer(4, memory),
        s_mov(6, 4096 - 128),
        v_lshlrev(1, const(2), 0),
        v_add_u32(1, 6, 1),
        global_load(2, 1, 4),
        s_waitcnt(vm=0),
        s_endpgm(),
    )
    (finding,) = run(code, [("m", memory)]).findings
    assert (finding.kind, finding.lane, finding.buffer) == ("out-of-bounds", 32, "m")
    assert "m (4096 bytes), 4096 bytes behind its start" in finding.message
    assert run(code, [("m", memory)], check=False).kinds == ["out-of-bounds"]


def test_store_to_a_read_only_buffer(memory: np.ndarray) -> None:
    before = memory.copy()
    code = code_of(pointer(4, memory), *lanes(global_store(1, 0, 4)), s_endpgm())
    assert run(code, [("m", memory)], read_only=["m"]).kinds == ["read-only"]
    assert (memory == before).all()


def test_access_outside_lds() -> None:
    code = code_of(*lanes(ds_write(1, 0, offset=16), s_waitcnt(lgkm=0)), s_endpgm())
    must_pass(run(code, lds=272))
    (finding,) = run(code, lds=256).findings
    assert (finding.kind, finding.lane) == ("lds-out-of-bounds", 60)


def test_uninitialised_data_address_branch_and_exec(memory: np.ndarray) -> None:
    base = [("m", memory)]
    stored = code_of(pointer(4, memory), *lanes(global_store(1, 9, 4)), s_endpgm())
    address = code_of(
        pointer(4, memory),
        v_and(9, const(0), 9),
        v_and(8, const(63), 8),
        global_load(2, 8, 4),
        s_waitcnt(vm=0),
        s_endpgm(),
    )
    scc = code_of(s_cmp_eq_u32(20, const(0)), branch("scc1", 0), s_endpgm())
    vcc = code_of(v_cmp_eq_u32(v(9), 0), branch("vccz", 0), s_endpgm())
    exec_ = code_of(sop1(1, 126, 20), s_endpgm())
    for code, word in (
        (stored, "stored"),
        (address, "address"),
        (scc, "branch"),
        (vcc, "branch"),
        (exec_, "EXEC"),
    ):
        findings = run(code, base).findings
        assert findings[0].kind == "uninitialised" and word in findings[0].message, (word, findings)


def test_copying_undefined_values_is_harmless(memory: np.ndarray) -> None:
    """Copies, sums and masks of undefined bits do no harm while nobody acts on them; AND with 0 defines."""
    body = lanes(
        v_mov(3, v(9)),
        v_add_u32(4, v(9), 0),
        ds_write(1, 9),
        ds_read(6, 1),
        s_waitcnt(lgkm=0),
        v_and(5, const(0), 9),
        global_store(1, 5, 4),
    )
    must_pass(run(code_of(pointer(4, memory), *body, s_endpgm()), [("m", memory)], lds=256))
    leak = lanes(ds_write(1, 9), ds_read(6, 1), s_waitcnt(lgkm=0), global_store(1, 6, 4))
    assert run(code_of(pointer(4, memory), *leak, s_endpgm()), [("m", memory)], lds=256).kinds == [
        "uninitialised"
    ]


def test_unwritten_lds_is_undefined(memory: np.ndarray) -> None:
    body = lanes(ds_read(6, 1), s_waitcnt(lgkm=0), global_store(1, 6, 4))
    assert run(code_of(pointer(4, memory), *body, s_endpgm()), [("m", memory)], lds=256).kinds == [
        "uninitialised"
    ]


def test_unknown_instructions_stop_the_launch() -> None:
    (finding,) = run(code_of([0xBF800000 | 0x7F << 16], s_endpgm())).findings
    assert finding.kind == "unimplemented" and finding.pc == 0
    assert run(code_of(s_trap(2), s_endpgm())).kinds == ["trap"]
    assert run(code_of(s_nop())).kinds == ["ran-off"]


def test_all_waiting_names_the_flag_and_the_barrier(memory: np.ndarray) -> None:
    """Wave 0 of each workgroup polls word 5; the others are at the barrier behind it."""
    memory[:] = 0
    code = code_of(
        pointer(4, memory),
        v_mov(1, const(20)),
        v_readfirstlane(10, v(0)),
        s_cmp_eq_u32(10, const(0)),
        branch("scc0", 7),
        global_load(5, 1, 4),
        s_waitcnt(vm=0),
        v_readfirstlane(11, v(5)),
        s_cmp_eq_u32(11, const(0)),
        s_sleep(),
        branch("scc1", -7),
        s_barrier(),
        s_endpgm(),
    )
    findings = run(
        code, [("m", memory)], grid=3, waves=2, regions=[("pad", 0, 16), ("flags", 16, 32)]
    ).findings
    assert [f.kind for f in findings] == ["all-waiting"] * 2
    poll, barrier = sorted(findings, key=lambda f: "barrier" in f.message)
    assert (poll.count, poll.buffer, poll.region) == (3, "m", "flags")
    assert "m + 20 (flags + 4)" in poll.message and "waves 0.0 1.0 2.0" in poll.message
    assert poll.other_text.startswith("global_load_dword")
    assert barrier.count == 3 and barrier.text == "s_barrier"


@pytest.mark.parametrize("bounded", [True, False])
def test_a_wait_that_the_clock_bounds_ends_at_a_standstill(bounded: bool) -> None:
    """Waves sleep until 2^32 ticks (43 s) have passed, or for ever; the clock jumps for both."""
    loop = [
        s_memrealtime(12),
        s_waitcnt(lgkm=0),
        s_cmp_eq_u32(13 if bounded else const(0), const(0)),
        s_sleep(),
    ]
    words = sum(len(one) for one in loop) + 1
    code = code_of(*loop, branch("scc1", -words), s_endpgm())
    assert run(code, grid=2, on_standstill="report").kinds == ["all-waiting"]
    found = run(code, grid=2, on_standstill="clock")
    assert found.kinds == ([] if bounded else ["all-waiting"])
    assert found.raw["instructions"] < 100_000


def test_findings_are_collected_and_bounded(memory: np.ndarray) -> None:
    body = [global_store(1, 10 + i, 4) for i in range(6)]
    code = code_of(pointer(4, memory), *lanes(*body), s_endpgm())
    launch = run(code, [("m", memory)], grid=2)
    assert launch.kinds == ["uninitialised"] * 6 and launch.findings[0].count == 2
    assert len(run(code, [("m", memory)], max_findings=3).findings) == 3
