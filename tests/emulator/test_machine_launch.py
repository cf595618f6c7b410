"""Launches: what a wave finds in its registers, barriers, counters, orders, clocks, argument packing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from machine_asm import (
    branch,
    code_of,
    const,
    ds_read,
    ds_write,
    global_atomic_add,
    global_load,
    global_store,
    must_pass,
    run,
    s_barrier,
    s_cmp_eq_u32,
    s_endpgm,
    s_getreg,
    s_load,
    s_memtime,
    s_mov,
    s_sleep,
    s_waitcnt,
    sop2,
    v,
    v_add_u32,
    v_and,
    v_lshlrev,
    v_mov,
    v_readfirstlane,
)

from flymono.emulator import Emulator, _core
from flymono.emulator.device import pack_arguments, span_of

S_LSHL, S_ADD = 28, 0  # SOP2 opcodes


def store_at_lane(data: int, base: int = 4) -> list[list[int]]:
    """v1 = 4 * v0 + (workgroup << 10); store ``data`` at s[base:base+1] + v1."""
    return [
        v_lshlrev(1, const(2), 0),
        sop2(S_LSHL, 3, 2, const(10)),
        v_add_u32(1, 3, 1),
        global_store(1, data, base),
    ]


def test_registers_at_entry_follow_the_launch_abi() -> None:
    out = np.zeros((2, 256), np.uint32)
    args = np.array([out.ctypes.data], np.uint64)
    code = code_of(
        s_load(4, 0, 0, 2),
        s_waitcnt(lgkm=0),
        v_mov(2, 2),
        v_add_u32(2, v(0), 2),
        *store_at_lane(2),
        s_endpgm(),
    )
    must_pass(run(code, [("out", out), ("args", args)], grid=2, waves=4, kernarg=args.ctypes.data))
    assert (out == np.arange(256) + np.arange(2)[:, None]).all()


def test_lanes_beyond_the_work_items_are_off() -> None:
    out = np.zeros(64, np.uint32)
    code = code_of(v_mov(2, const(7)), *store_at_lane(2), s_endpgm())
    address, nbytes = span_of(out)
    program = code_of(s_mov(4, address & 0xFFFFFFFF), s_mov(5, address >> 32)) + code
    spec = {"kernel": "t", "text": program, "workgroups": 1, "workitems": 10, "vgprs": 8, "accum_offset": 8}
    raw = _core.run("gfx942", {}, [("out", address, nbytes, True, [])], [spec], None)
    assert not raw["findings"]
    assert out.sum() == 7 * 10


def pointer(register: int, array: np.ndarray) -> list[int]:
    address = array.ctypes.data
    return s_mov(register, address & 0xFFFFFFFF) + s_mov(register + 1, address >> 32)


def test_barrier_orders_lds_between_waves() -> None:
    """Each wave writes its lanes to LDS and reads those of the next wave."""
    out = np.zeros(256, np.uint32)
    code = code_of(
        pointer(4, out),
        v_lshlrev(1, const(2), 0),
        ds_write(1, 0),
        s_waitcnt(lgkm=0),
        s_barrier(),
        s_mov(6, 256),
        v_add_u32(3, 6, 1),
        s_mov(6, 1023),
        v_and(3, 6, 3),
        ds_read(4, 3),
        s_waitcnt(lgkm=0),
        *store_at_lane(4),
        s_endpgm(),
    )
    for order in ("linear", "reversed", "random"):
        must_pass(run(code, [("out", out)], waves=4, lds=1024, order=order, lds_race=True))
        assert (out == (np.arange(256) + 64) % 256).all()


def test_a_missing_barrier_is_a_race() -> None:
    out = np.zeros(256, np.uint32)
    code = code_of(
        pointer(4, out),
        v_lshlrev(1, const(2), 0),
        ds_write(1, 0),
        s_waitcnt(lgkm=0),
        s_mov(6, 256),
        v_add_u32(3, 6, 1),
        s_mov(6, 1023),
        v_and(3, 6, 3),
        ds_read(4, 3),
        s_waitcnt(lgkm=0),
        *store_at_lane(4),
        s_endpgm(),
    )
    launch = run(code, [("out", out)], waves=4, lds=1024, lds_race=True)
    assert "lds-race" in launch.kinds


def ticket_code(counter: np.ndarray, out: np.ndarray) -> bytes:
    """Every workgroup draws a ticket and stores its number at the ticket's place."""
    return code_of(
        pointer(4, counter),
        pointer(6, out),
        s_mov(126, 1),
        s_mov(127, 0),
        v_mov(1, const(0)),
        v_mov(2, const(1)),
        global_atomic_add(3, 1, 2, 4),
        s_waitcnt(vm=0),
        v_lshlrev(3, const(2), 3),
        v_mov(4, 2),
        global_store(3, 4, 6),
        s_endpgm(),
    )


@pytest.mark.parametrize(
    ("options", "first"),
    [({"order": "linear"}, 0), ({"order": "reversed"}, 7), ({"order": "starve", "starved": 0}, 1)],
)
def test_orders_of_workgroups(options: dict[str, object], first: int) -> None:
    counter, out = np.zeros(1, np.uint32), np.zeros(8, np.uint32)
    must_pass(run(ticket_code(counter, out), [("counter", counter), ("out", out)], grid=8, **options))
    assert sorted(out) == list(range(8))
    assert out[0] == first
    if "starved" in options:
        assert out[-1] == options["starved"]


def test_a_seed_gives_one_order_and_another_seed_another() -> None:
    def order(seed: int) -> list[int]:
        counter, out = np.zeros(1, np.uint32), np.zeros(32, np.uint32)
        must_pass(
            run(
                ticket_code(counter, out),
                [("counter", counter), ("out", out)],
                grid=32,
                order="random",
                seed=seed,
            )
        )
        return out.tolist()

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(4)}) == 4


def test_flag_between_workgroups_and_starvation() -> None:
    """Workgroup 0 sets a flag that all others wait for, sleeping."""
    flag, out = np.zeros(1, np.uint32), np.zeros(4, np.uint32)
    wait = [
        global_load(5, 1, 4, sc1=1),
        s_waitcnt(vm=0),
        v_readfirstlane(10, v(5)),
        s_cmp_eq_u32(10, const(0)),
        branch("scc0", 2),
        s_sleep(),
        branch("always", -8),
    ]
    body = code_of(
        pointer(4, flag),
        pointer(6, out),
        s_mov(126, 1),
        s_mov(127, 0),
        v_mov(1, const(0)),
        v_mov(2, const(9)),
        s_cmp_eq_u32(2, const(0)),
        branch("scc0", 2),
        global_store(1, 2, 4, sc1=1),
        *wait,
        v_mov(3, 2),
        v_lshlrev(3, const(2), 3),
        global_store(3, 5, 6),
        s_endpgm(),
    )
    for options in ({"order": "linear"}, {"order": "reversed"}, {"order": "starve", "starved": 0}):
        flag[:] = 0
        out[:] = 0
        must_pass(run(body, [("flag", flag), ("out", out)], grid=4, **options))
        assert (out == 9).all()


def test_counters_of_traffic_stages_and_instructions() -> None:
    src, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    head = code_of(pointer(4, out), pointer(6, src), v_lshlrev(1, const(2), 0))
    loads = code_of(global_load(2, 1, 6, sc1=1), global_load(3, 1, 6), s_waitcnt(vm=0))
    tail = code_of(global_store(1, 2, 4, sc0=1, sc1=1), s_endpgm())
    at = len(head)
    stages = [("load", at, at + len(loads)), ("store", at + len(loads), at + len(loads) + len(tail))]
    launch = must_pass(run(head + loads + tail, [("out", out), ("src", src)], stages=stages))
    raw = launch.raw
    requested, lanes = raw["traffic"]["src"]["load"]
    assert requested == [256, 0, 256, 0, 0, 0, 0, 0]  # plain, then sc1
    assert sum(lanes) == 128
    assert raw["traffic"]["src"]["unique_loaded"] == 256
    assert raw["traffic"]["out"]["store"][0][3] == 256
    assert raw["traffic"]["out"]["unique_stored"] == 256
    by_stage = dict.fromkeys(range(3), 0)
    for _, _, count, stage in raw["grids"][0]["counts"]:
        by_stage[stage] += count
    assert by_stage == {0: 5, 1: 3, 2: 2}
    assert raw["instructions"] == 10
    assert {(wg, stage) for wg, stage, _, _ in raw["grids"][0]["spans"]} == {(0, 0), (0, 1), (0, 2)}


def test_clocks_do_not_run_backwards_and_the_xcd_follows_the_workgroup() -> None:
    out = np.zeros((4, 256), np.uint32)
    code = code_of(
        pointer(4, out),
        s_memtime(8),
        s_waitcnt(lgkm=0),
        s_memtime(10),
        s_waitcnt(lgkm=0),
        sop2(1, 12, 10, 8),
        s_getreg(13, 20, 4),
        v_mov(2, 12),
        *store_at_lane(2),
        v_mov(3, 13),
        global_store(1, 3, 4, offset=256),
        s_endpgm(),
    )
    must_pass(run(code, [("out", out)], grid=4, xcds=2, xcd_offset=1))
    assert (out[:, 0] > 0).all()
    assert out[:, 64].tolist() == [1, 0, 1, 0]


def test_arguments_are_packed_by_the_metadata() -> None:
    @dataclass
    class Argument:
        offset: int
        size: int
        kind: str = "by_value"

    @dataclass
    class Kernel:
        name: str
        args: tuple[Argument, ...]
        kernarg_bytes: int

    kernel = Kernel(
        "k",
        (Argument(0, 8), Argument(8, 4), Argument(16, 8), Argument(24, 4), Argument(32, 4, "hidden_x")),
        40,
    )
    array = np.zeros(4, np.uint8)
    raw = pack_arguments(kernel, [array, -1, 5, 1.5])  # type: ignore[arg-type]
    assert raw[:8] == array.ctypes.data.to_bytes(8, "little")
    assert raw[8:12] == b"\xff" * 4
    assert raw[16:24] == (5).to_bytes(8, "little")
    assert np.frombuffer(raw[24:28], np.float32)[0] == 1.5
    with pytest.raises(ValueError, match=r"argument 1 .*\n.*argument 3"):
        pack_arguments(kernel, [array, 1 << 40, 5, "x"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="takes 4 arguments, 1"):
        pack_arguments(kernel, [array])  # type: ignore[arg-type]


def test_registering_twice_or_overlapping_is_refused() -> None:
    device = Emulator("gfx942")
    array = np.zeros(64, np.uint8)
    device.register("a", array)
    with pytest.raises(ValueError, match="registered already"):
        device.register("a", array)
    with pytest.raises(TypeError, match="no device memory"):
        device.register("b", "text")
    with pytest.raises(ValueError, match="name the workgroup"):
        Emulator("gfx942", order="starve")
