"""LDS operations of the core against the oracle: widths, offsets, two-address forms, atomics, limits."""

import pytest
from asm import Ins, Reg, encode, v
from differ import check, core, implemented
from oracle.state import LANES, State
from states import EXECS, random_state, rng_of

LDS_BYTES = 8192
READS = {
    "ds_read_b32": 4,
    "ds_read_b64": 8,
    "ds_read_b96": 12,
    "ds_read_b128": 16,
    "ds_read_u8": 1,
    "ds_read_i8": 1,
    "ds_read_u16": 2,
    "ds_read_i16": 2,
}
WRITES = {
    "ds_write_b8_d16_hi": 1,
    "ds_write_b16_d16_hi": 2,
    "ds_write_b8": 1,
    "ds_write_b16": 2,
    "ds_write_b32": 4,
    "ds_write_b64": 8,
    "ds_write_b96": 12,
    "ds_write_b128": 16,
}
DOUBLES = {
    "ds_read2_b32": 4,
    "ds_read2_b64": 8,
    "ds_read2st64_b32": 256,
    "ds_read2st64_b64": 512,
    "ds_write2_b32": 4,
    "ds_write2_b64": 8,
    "ds_write2st64_b32": 256,
    "ds_write2st64_b64": 512,
}
_KINDS = dict.fromkeys(("add", "sub", "rsub", "inc", "dec"), "u")
_KINDS |= dict.fromkeys(("and", "or", "xor", "mskor", "cmpst", "wrxchg"), "b") | dict.fromkeys(
    ("min", "max"), "iu"
)
ATOMICS = [
    f"ds_{name}_{rtn}{kind}{bits}"
    for name, kinds in _KINDS.items()
    for kind in kinds
    for rtn in ("", "rtn_")
    for bits in (32, 64)
    if rtn or name != "wrxchg"
]
COMMUTE = ("add", "and", "or", "xor", "min", "max")


def _need(name: str) -> None:
    if not implemented(name):
        pytest.skip("the core does not implement it")


def _registers(size: int) -> int:
    return max(1, -(-size // 4))


def _alignment(size: int) -> int:
    return {12: 16}.get(size, size)


def _state(name: str, shape: str, addresses: list[int]) -> State:
    state = random_state(rng_of("ds", name, shape), False, shape, lds=LDS_BYTES)
    state.v[0] = addresses
    return state


def _distinct(name: str, step: int, room: int) -> list[int]:
    """64 addresses that do not overlap, in a random order with random gaps."""
    rng = rng_of("addresses", name)
    return [step * slot for slot in rng.sample(range(room // step), LANES)]


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("shape", ["all", "random", "one", "none"])
def test_reads(name: str, shape: str) -> None:
    _need(name)
    size, rng = READS[name], rng_of(name)
    step = _alignment(size)
    addresses = [step * rng.randrange((LDS_BYTES - 2048) // step - 1) for _ in range(LANES)]
    for offset in (0, step, 1024 + 16, 2032):
        check(
            "gfx942",
            Ins(name, (v(16, _registers(size)),), (v(0),), imm=offset),
            _state(name, shape, addresses),
        )


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("shape", EXECS[:2] + EXECS[3:])
def test_writes(name: str, shape: str) -> None:
    _need(name)
    size = WRITES[name]
    for offset in (0, 16, 1040):
        state = _state(name, shape, _distinct(name, 16, LDS_BYTES - 2048))
        check("gfx950", Ins(name, (), (v(0), v(4, _registers(size))), imm=offset), state)


@pytest.mark.parametrize("name", DOUBLES)
def test_two_addresses(name: str) -> None:
    """Random offset pairs; data of the first address goes to the low registers."""
    _need(name)
    stride, rng = DOUBLES[name], rng_of(name)
    size = int(name[-2:]) // 8
    step = size
    for shape in ("all", "random"):
        for _ in range(8):
            first, second = rng.sample(range(min(256, (LDS_BYTES - 2048) // stride)), 2)
            # Lanes stay apart from each other at both offsets: a 1 KB window below the first stride.
            addresses = (
                [step * lane for lane in range(LANES)]
                if "write" in name
                else [step * rng.randrange(2048 // step - 1) for _ in range(LANES)]
            )
            if "write" in name and abs(first - second) * stride < step * LANES:
                continue  # lanes would meet
            width = size // 4
            src: tuple[Reg, ...] = (v(0),)
            src += (v(4, width), v(8, width)) if "write" in name else ()
            dst = () if "write" in name else (v(16, 2 * width),)
            check(
                "gfx942", Ins(name, dst, src, offset0=first, offset1=second), _state(name, shape, addresses)
            )


@pytest.mark.parametrize("name", ATOMICS)
def test_atomics(name: str) -> None:
    """Distinct addresses with and without return; without return also colliding ones where operations
    commute."""
    _need(name)
    width, rng = int(name[-2:]) // 32, rng_of("atomic", name)
    dst = (v(16, width),) if "_rtn_" in name else ()
    two = name.split("_")[1] in ("mskor", "cmpst")
    src = (v(0), v(4, width), v(8, width)) if two else (v(0), v(4, width))
    addresses = _distinct(name, 4 * width, LDS_BYTES - 1024)
    for shape in ("all", "random"):
        state = _state(name, shape, addresses)
        for lane in range(0, LANES, 2):  # half of the lanes hold what memory holds, or one beside it
            at = addresses[lane] + 64
            state.v[4, lane] = int.from_bytes(state.lds[at : at + 4].tobytes(), "little") + rng.choice(
                (0, 0, 1)
            )
            if width == 2:
                state.v[5, lane] = int.from_bytes(state.lds[at + 4 : at + 8].tobytes(), "little")
        check("gfx942", Ins(name, dst, src, imm=64), state)
    if not dst and name.split("_")[1] in COMMUTE:
        check(
            "gfx942", Ins(name, dst, src), _state(name, "random", [16 * (lane % 5) for lane in range(LANES)])
        )


def test_equal_writes_to_one_address_are_allowed() -> None:
    state = _state("same", "all", [32] * LANES)
    state.v[4] = 0x1234
    check("gfx942", Ins("ds_write_b32", (), (v(0), v(4))), state)


@pytest.mark.parametrize("name", ["ds_read_b32", "ds_read_b128", "ds_write_b64"])
def test_outside_the_lds_is_an_error(name: str) -> None:
    """One lane past the end: a finding that names the lane, not a silent zero."""
    addresses = [0] * LANES if name.startswith("ds_read") else _distinct("limit", 16, LDS_BYTES)
    addresses[37] = LDS_BYTES
    ins = Ins(name, (v(16, 4),) if "read" in name else (), (v(0),) if "read" in name else (v(0), v(4, 2)))
    with pytest.raises(Exception, match=r"(?is)lds.*37|37.*lds"):
        core("gfx942", encode(ins), _state(name, "all", addresses))


def test_inactive_lanes_may_hold_wild_addresses() -> None:
    addresses = [4 * lane for lane in range(LANES)]
    addresses[5] = 0xFFFFFFF0
    state = _state("wild", "all", addresses)
    state.set_scalar(__import__("asm").EXEC, ((1 << 64) - 1) ^ (1 << 5))
    check("gfx942", Ins("ds_read_b32", (v(16),), (v(0),)), state)
