"""Scalar and vector memory of the core against the oracle: widths, offsets, bounds, atomics, cache bits."""

import numpy as np
import opcodes as oc
import pytest
from asm import EXEC, Inline, Ins, Operand, Reg, encode, s, v
from differ import ROWS, implemented
from oracle import vmem
from oracle.state import LANES, State
from states import random_state, rng_of

from flymono.emulator.execute import execute

BYTES = 16384
WAIT = Ins("s_waitcnt", imm=0)
LOADS = ["dword", "dwordx2", "dwordx3", "dwordx4", "ubyte", "sbyte", "ushort", "sshort"]
STORES = ["dword", "dwordx2", "dwordx3", "dwordx4", "byte", "short"]
ATOMICS = [f"{name}{size}" for size in ("", "_x2") for name in oc._ATOMICS]


def _need(name: str) -> None:
    if not implemented(name):
        pytest.skip("the core does not implement it")


def buffer_bytes(seed: int) -> np.ndarray:
    """Random bytes on a 4 KB boundary, so that addresses of the oracle and the core are the same numbers."""
    raw = np.random.default_rng(seed).integers(0, 256, BYTES + 4096, np.uint8)
    start = -raw.ctypes.data % 4096
    return raw[start : start + BYTES]


def both(ins: Ins, state: State, data: np.ndarray) -> None:
    """Run on core and oracle from equal memory; registers and memory must end equal."""
    before = data.copy()
    want, memory = state.copy(), vmem.Memory(data.ctypes.data, before)
    vmem.step(want, ins, memory)
    got = execute(
        "gfx942",
        encode(ins) + encode(WAIT),
        vgprs=state.v[:ROWS],
        sgprs=[int(x) for x in state.s[:102]],
        exec=state.exec,
        buffers=[("data", data)],
        rows=ROWS,
    )
    assert not got.findings
    assert np.array_equal(data, memory.data), ins
    bad = np.argwhere(got.vgprs != want.v[:ROWS])
    assert not len(bad), (ins, bad[:4], hex(int(got.vgprs[tuple(bad[0])])), hex(int(want.v[tuple(bad[0])])))
    assert [int(x) for x in got.sgprs] == [int(x) for x in want.s[:102]], ins


def _pair(state: State, index: int, value: int) -> None:
    state.s[index], state.s[index + 1] = value & 0xFFFFFFFF, value >> 32


def _resource(state: State, index: int, base: int, records: int) -> Reg:
    _pair(state, index, base)
    state.s[index + 2], state.s[index + 3] = records, 0x00027000
    return s(index, 4)


@pytest.mark.parametrize("dwords", ["", "x2", "x4", "x8", "x16"])
def test_scalar_loads(dwords: str) -> None:
    data, rng = buffer_bytes(1), rng_of("smem", dwords)
    count = int(dwords[1:] or 1)
    for offset, soffset in ((0, None), (64, None), (1000, None), (3, None), (8, 4096), (-64, None)):
        state = random_state(rng, False)
        _pair(state, 2, data.ctypes.data + 4096)
        src: tuple[Operand, ...] = (s(2, 2),)
        if soffset is not None:
            state.s[7] = soffset
            src = (s(2, 2), s(7))
        both(Ins(f"s_load_dword{dwords}", (s(16, count),), src, imm=offset), state, data)


@pytest.mark.parametrize("width", LOADS + STORES)
def test_buffer_bounds(width: str) -> None:
    """Offsets around num_records, wild offsets, soffset outside the check: loads give 0, stores are
    dropped."""
    kind = "store" if width in ("byte", "short") else "load"
    for name in [f"buffer_{k}_{width}" for k in (("load", "store") if "dword" in width else (kind,))]:
        if not implemented(name):
            continue
        size = vmem.access(name)[1]
        rng, data = rng_of(name), buffer_bytes(2)
        for shape in ("all", "random"):
            for records, imm, soffset in (
                (1024, 0, 0),
                (1024, 12, 0),
                (256, 0, 2048),
                (0, 0, 0),
                (4096, 4092, 64),
            ):
                state = random_state(rng, False, shape)
                resource = _resource(state, 8, data.ctypes.data + 64, records)
                state.s[7] = soffset
                slots = [size * slot for slot in rng.sample(range(2048 // size), LANES)]
                wild = [0x80000000, 0xFFFFFFF0, records, max(records - 4, 0) // size * size]
                step = max(size, 4) if size != 12 else 4
                near = [
                    (max(records - imm, 0) // step * step + step * d)
                    for d in (-2, -1, 0, 1)
                    if max(records - imm, 0) // step * step + step * d >= 0
                ]
                state.v[0] = slots
                if kind == "load" and "store" not in name:
                    state.v[0] = [rng.choice([*slots, *wild, *near]) for _ in range(LANES)]
                else:
                    state.v[0, 5], state.v[0, 9] = 0x80000000, 0xFFFFFF00
                register = v(16, max(size // 4, 1))
                ins = Ins(
                    name,
                    (register,) if "load" in name else (),
                    (v(0), resource, s(7)) + (() if "load" in name else (register,)),
                    offen=True,
                    imm=imm,
                )
                both(ins, state, data)


def test_buffer_without_voffset_and_cache_bits() -> None:
    """No offen: every lane the same address; sc0, sc1 and nt change no value."""
    data = buffer_bytes(3)
    for bits in range(8):
        state = random_state(rng_of("bits", bits), False)
        resource = _resource(state, 8, data.ctypes.data, BYTES)
        both(
            Ins(
                "buffer_load_dwordx2",
                (v(16, 2),),
                (v(0), resource, Inline(32)),
                imm=40,
                sc0=bool(bits & 1),
                sc1=bool(bits & 2),
                nt=bool(bits & 4),
            ),
            state,
            data,
        )


def test_unbound_buffer() -> None:
    """An all-zero descriptor: loads give 0, stores vanish."""
    data = buffer_bytes(4)
    state = random_state(rng_of("unbound"), False)
    state.s[8:12] = 0
    both(Ins("buffer_load_dwordx4", (v(16, 4),), (v(0), s(8, 4), None), offen=True), state, data)
    both(Ins("buffer_store_dword", (), (v(0), s(8, 4), None, v(4)), offen=True), state, data)


@pytest.mark.parametrize("width", LOADS + STORES)
@pytest.mark.parametrize("scalar_base", [False, True])
def test_global(width: str, scalar_base: bool) -> None:
    """Both address forms, signed 13-bit offsets."""
    kinds = ("load", "store") if "dword" in width else ("store",) if width in ("byte", "short") else ("load",)
    for kind in kinds:
        name = f"global_{kind}_{width}"
        if not implemented(name):
            continue
        size, rng, data = vmem.access(name)[1], rng_of("global", width, scalar_base), buffer_bytes(5)
        for imm in (0, 4, -64, 4095 // 4 * 4, -4096):
            state = random_state(rng, False, rng.choice(("all", "random", "one")))
            base = data.ctypes.data + 4096
            step = size if size != 12 else 16
            at = [step * slot for slot in rng.sample(range(8192 // step - 1), LANES)]
            _pair(state, 4, base)
            state.v[0] = at if scalar_base else [base + x & 0xFFFFFFFF for x in at]
            state.v[1] = [base + x >> 32 for x in at]
            register = v(16, max(size // 4, 1))
            address = (v(0), s(4, 2)) if scalar_base else (v(0, 2), None)
            both(
                Ins(
                    name,
                    (register,) if kind == "load" else (),
                    (*address, *(() if kind == "load" else (register,))),
                    imm=imm,
                ),
                state,
                data,
            )


@pytest.mark.parametrize("name", ATOMICS)
@pytest.mark.parametrize("family", ["global", "buffer"])
def test_atomics(family: str, name: str) -> None:
    """With and without return; compare-and-swap meets and misses; buffer lanes out of range are dropped."""
    full = f"{family}_atomic_{name}"
    _need(full)
    data, rng, width = buffer_bytes(6), rng_of(full), 2 if name.endswith("_x2") else 1
    for returns in (False, True):
        for shape in ("all", "random", "none"):
            state = random_state(rng, False, shape)
            _pair(state, 4, data.ctypes.data)
            state.v[0] = [4 * width * slot for slot in rng.sample(range(BYTES // (4 * width)), LANES)]
            words = data.view(np.uint32)
            for lane in range(0, LANES, 2):  # half of the lanes compare with what memory holds
                for i in range(width):
                    state.v[2 + width + i, lane] = words[int(state.v[0, lane]) // 4 + i]
            operand = v(2, width * (2 if "cmpswap" in name else 1))
            dst = (v(16, width),) if returns else ()
            if family == "global":
                src: tuple[Operand, ...] = (v(0), s(4, 2), operand)
            else:
                resource = _resource(state, 8, data.ctypes.data, BYTES)
                state.v[0, 7] = BYTES + 8 * 5
                src = (v(0), resource, None, operand)
                dst = (v(2, width),) if returns else ()  # MUBUF has one data field: the old value replaces it
            both(Ins(full, dst, src, sc0=returns, offen=family == "buffer"), state, data)


def test_colliding_atomics_count_every_lane() -> None:
    """64 lanes add to one word: the sum is exact and the returned values are all different."""
    _need("global_atomic_add")
    data = np.zeros(4096, np.uint8)
    state = random_state(rng_of("collide"), False)
    _pair(state, 4, data.ctypes.data)
    state.v[0], state.v[2] = 128, 1
    got = execute(
        "gfx942",
        encode(Ins("global_atomic_add", (v(16),), (v(0), s(4, 2), v(2)), sc0=True)) + encode(WAIT),
        vgprs=state.v[:ROWS],
        sgprs=[int(x) for x in state.s[:102]],
        buffers=[("data", data)],
        rows=ROWS,
    )
    assert data.view(np.uint32)[32] == 64
    assert sorted(int(x) for x in got.vgprs[16]) == list(range(64))


def test_access_outside_registered_memory_is_an_error() -> None:
    """The message names the lane and the address; inactive lanes may point anywhere."""
    data = buffer_bytes(7)
    state = random_state(rng_of("outside"), False)
    _pair(state, 4, data.ctypes.data)
    state.v[0] = [4 * lane for lane in range(LANES)]
    state.v[0, 41] = BYTES + 4096 * 1024
    ins = Ins("global_load_dword", (v(16),), (v(0), s(4, 2)))
    keep = {
        "vgprs": state.v[:ROWS],
        "sgprs": [int(x) for x in state.s[:102]],
        "buffers": [("data", data)],
        "rows": ROWS,
    }
    with pytest.raises(Exception, match=r"(?i)lane\D*41"):
        got = execute("gfx942", encode(ins) + encode(WAIT), check=True, **keep)
        raise RuntimeError(str(got.findings))
    mask = ((1 << 64) - 1) ^ (1 << 41)
    assert EXEC.index == 126
    assert not execute("gfx942", encode(ins) + encode(WAIT), check=True, exec=mask, **keep).findings
