"""Where the core reads and writes each matrix element: one-hot probes against the tables of the ISA facts.

A single 1 in one slot (lane, item) of A against B[k][j] = f(k), all f different, shows the slot's row and k;
likewise
for B. The tables below are written out here, apart from the oracle's formulas, so that a mistake needs two
mistakes. A K order that both operands share cannot be seen from products alone: mixed formats and scales
break that symmetry.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
from asm import Inline, Ins, encode, v
from differ import implemented

from flymono.emulator.execute import execute

Place = Callable[
    [int, int], tuple[int, int]
]  # (lane, item) -> (row or column, k); (lane, register) -> (row, column)


def _contiguous(m: int, per_lane: int) -> Place:
    return lambda lane, t: (lane % m, per_lane * (lane // m) + t)


def _two_runs(m: int, half: int) -> Place:
    return lambda lane, t: (lane % m, half * (t // 16) + 16 * (lane // m) + t % 16)


def _rows16(lane: int, r: int) -> tuple[int, int]:
    return 4 * (lane // 16) + r, lane % 16


def _rows32(lane: int, r: int) -> tuple[int, int]:
    return 8 * (r // 4) + 4 * (lane // 32) + r % 4, lane % 32


@dataclass(frozen=True)
class Table:
    name: str
    arch: str
    m: int
    k: int
    items: int
    place: Place
    kind: str

    @property
    def registers(self) -> int:
        return self.items * BITS[self.kind] // 32


BITS = {"f32": 32, "bf16": 16, "f16": 16, "fp8": 8, "i8": 8, "fp4": 4}
TABLES = [
    Table("v_mfma_f32_16x16x4_f32", "gfx942", 16, 4, 1, _contiguous(16, 1), "f32"),
    Table("v_mfma_f32_16x16x16_bf16", "gfx942", 16, 16, 4, _contiguous(16, 4), "bf16"),
    Table("v_mfma_f32_16x16x16_f16", "gfx942", 16, 16, 4, _contiguous(16, 4), "f16"),
    Table("v_mfma_f32_16x16x32_bf16", "gfx950", 16, 32, 8, _contiguous(16, 8), "bf16"),
    Table("v_mfma_f32_16x16x32_f16", "gfx950", 16, 32, 8, _contiguous(16, 8), "f16"),
    Table("v_mfma_f32_16x16x32_fp8_fp8", "gfx942", 16, 32, 8, _contiguous(16, 8), "fp8"),
    Table("v_mfma_f32_16x16x32_fp8_fp8", "gfx950", 16, 32, 8, _contiguous(16, 8), "fp8"),
    Table("v_mfma_i32_16x16x64_i8", "gfx950", 16, 64, 16, _contiguous(16, 16), "i8"),
    Table("v_mfma_f32_32x32x2_f32", "gfx942", 32, 2, 1, _contiguous(32, 1), "f32"),
    Table("v_mfma_f32_32x32x8_bf16", "gfx942", 32, 8, 4, _contiguous(32, 4), "bf16"),
    Table("v_mfma_f32_32x32x16_bf16", "gfx950", 32, 16, 8, _contiguous(32, 8), "bf16"),
    Table("v_mfma_f32_32x32x16_fp8_fp8", "gfx942", 32, 16, 8, _contiguous(32, 8), "fp8"),
]


def dtype(kind: str, arch: str) -> np.dtype:
    ocp = arch == "gfx950"
    return np.dtype(
        {
            "f32": np.float32,
            "bf16": ml_dtypes.bfloat16,
            "f16": np.float16,
            "i8": np.int8,
            "fp8": ml_dtypes.float8_e4m3fn if ocp else ml_dtypes.float8_e4m3fnuz,
            "fp4": ml_dtypes.float4_e2m1fn,
        }[kind]
    )


def pack(slots: np.ndarray, kind: str, arch: str) -> np.ndarray:
    """Values [64, items] -> registers [n, 64]; fp4 two items a byte, the even one low."""
    codes = slots.astype(dtype(kind, arch))
    if kind == "fp4":
        nibbles = codes.view(np.uint8)
        raw = (nibbles[:, ::2] | nibbles[:, 1::2] << 4).astype(np.uint8)
    else:
        raw = np.ascontiguousarray(codes).view(np.uint8).reshape(64, -1)
    return np.ascontiguousarray(raw.view(np.uint32).T)


def fill(place: Place, items: int, by_k: np.ndarray) -> np.ndarray:
    """Slot values [64, items] of an operand that holds by_k[k] in every row or column."""
    return np.array([[by_k[place(lane, t)[1]] for t in range(items)] for lane in range(64)])


def distinct(k: int, kind: str) -> np.ndarray:
    """k different exact values of a format: 8-bit floats have just enough."""
    if kind != "fp8":
        return np.arange(1, k + 1, dtype=np.float64)
    positive = np.arange(1, 65, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    return np.concatenate([positive, -positive])[:k]


def slots(items: int) -> Iterator[tuple[int, int]]:
    return ((lane, t) for lane in range(64) for t in range(items))


def launch(
    ins: Ins, arch: str, a: np.ndarray, b: np.ndarray, scales: dict[int, np.ndarray] | None = None
) -> np.ndarray:
    """D as [m, m] by the D table, from register images of A (v0..) and B (v8..)."""
    m = 32 if "32x32" in ins.name else 16
    rows = dict(enumerate(a)) | {8 + i: row for i, row in enumerate(b)} | (scales or {})
    got = execute(arch, encode(ins), vgprs=rows, rows=64).vgprs
    out, d_place = np.zeros((m, m), np.float64), _rows16 if m == 16 else _rows32
    for r in range(m * m // 64):
        values = got[32 + r] if "_i32_" in ins.name else got[32 + r].view(np.float32)
        for lane in range(64):
            out[d_place(lane, r)] = values[lane]
    return out


def instruction(name: str, registers: tuple[int, int], **mods: int) -> Ins:
    size = 16 if "32x32" in name else 4
    return Ins(name, (v(32, size),), (v(0, registers[0]), v(8, registers[1]), Inline(0)), **mods)


@pytest.mark.parametrize("table", TABLES, ids=lambda t: f"{t.name}-{t.arch}")
def test_every_slot(table: Table) -> None:
    """One-hot A shows (row, k) of each slot of A and column-uniform D; one-hot B the same for B."""
    if not implemented(table.name):
        pytest.skip("the core does not implement it")
    f = distinct(table.k, table.kind)
    other = pack(fill(table.place, table.items, f), table.kind, table.arch)
    ins = instruction(table.name, (table.registers, table.registers))
    for lane, t in slots(table.items):
        one_hot = np.zeros((64, table.items))
        one_hot[lane, t] = 1
        probe = pack(one_hot, table.kind, table.arch)
        i, k = table.place(lane, t)
        want = np.zeros((table.m, table.m))
        want[i, :] = f[k]
        assert np.array_equal(launch(ins, table.arch, probe, other), want), ("A", lane, t)
        assert np.array_equal(launch(ins, table.arch, other, probe), want.T), ("B", lane, t)


F8F6F4 = [("v_mfma_scale_f32_16x16x128_f8f6f4", 16, 128), ("v_mfma_scale_f32_32x32x64_f8f6f4", 32, 64)]


def _format(kind: str, m: int, k: int) -> tuple[Place, int, int]:
    """(place, registers, CBSZ/BLGP code) of an f8f6f4 operand: 8-bit data in two runs, 4-bit data
    contiguous."""
    return (_two_runs(m, k // 2), 8, 0) if kind == "fp8" else (_contiguous(m, 32), 4, 4)


@pytest.mark.parametrize(("name", "m", "k"), F8F6F4)
@pytest.mark.parametrize("probe_kind", ["fp8", "fp4"])
def test_every_slot_of_the_scaled_form(name: str, m: int, k: int, probe_kind: str) -> None:
    """A one-hot of fp8 or fp4 against fp8 of known K order, and a scale that names its lane: row, k and
    scale lane."""
    if not implemented(name):
        pytest.skip("the core does not implement it")
    place, registers, code = _format(probe_kind, m, k)
    full_place, full_registers, _ = _format("fp8", m, k)
    f = distinct(k, "fp8")
    other = pack(fill(full_place, 32, f), "fp8", "gfx950")
    lanes = np.arange(64, dtype=np.uint32)
    # Byte 2 carries the lane's number as an exponent, the other bytes what must not be read.
    scale = (96 + lanes) << 16 | 0x11000022
    ones = np.full(64, 0x7F7F7F7F, np.uint32)
    for lane, t in slots(32):
        if m == 32 and (lane + t) % 3:
            continue  # a third of the slots, every lane and item among them, keeps the wide shape quick
        one_hot = np.zeros((64, 32))
        one_hot[lane, t] = 1
        probe = pack(one_hot, probe_kind, "gfx950")
        i, at = place(lane, t)
        want = np.zeros((m, m))
        want[i, :] = f[at] * 2.0 ** (96 + i + m * (at // 32) - 127)
        as_a = Ins(
            name,
            (v(32, m * m // 64),),
            (v(0, registers), v(8, full_registers), Inline(0), v(28), v(29)),
            cbsz=code,
            op_sel=0,
            op_sel_hi=1,
        )
        got = launch(as_a, "gfx950", probe, other, {28: scale, 29: ones})
        assert np.array_equal(got, want), ("A", lane, t)
        as_b = Ins(
            name,
            (v(32, m * m // 64),),
            (v(0, full_registers), v(8, registers), Inline(0), v(29), v(28)),
            blgp=code,
            op_sel=0,
            op_sel_hi=2,
        )
        got = launch(as_b, "gfx950", other, probe, {28: scale, 29: ones})
        assert np.array_equal(got, want.T), ("B", lane, t)


# Which lane scales the row-0 slots (lane group, run of 16 items), from the recorded runs that AMD's
# composable_kernel keeps beside test/mx_mfma_op/scale_mapping_*.cpp: one-hot fp8 A, scale 2^lane.
RECORDED = [
    ("v_mfma_scale_f32_16x16x128_f8f6f4", 16, [(0, 32), (0, 32), (16, 48), (16, 48)]),
    ("v_mfma_scale_f32_32x32x64_f8f6f4", 32, [(0, 32), (0, 32)]),
]


@pytest.mark.parametrize(("name", "m", "recorded"), RECORDED)
def test_recorded_scale_lanes(name: str, m: int, recorded: list[tuple[int, int]]) -> None:
    """The recorded program: B all ones in column 0, byte 0 of lane l holds 127 + l."""
    if not implemented(name):
        pytest.skip("the core does not implement it")
    ones = np.zeros((64, 32))
    ones[::m] = 1
    scale, unit = np.arange(64, dtype=np.uint32) + 127, np.full(64, 0x7F, np.uint32)
    ins = Ins(name, (v(32, m * m // 64),), (v(0, 8), v(8, 8), Inline(0), v(28), v(29)), op_sel_hi=0)
    for row in range(m):
        for group, runs in enumerate(recorded):
            for item in range(0, 32, 1 if m == 16 else 5):
                one_hot = np.zeros((64, 32))
                one_hot[row + m * group, item] = 1
                a, b = (pack(x, "fp8", "gfx950") for x in (one_hot, ones))
                got = launch(ins, "gfx950", a, b, {28: scale, 29: unit})
                assert np.log2(got[row, 0]) == runs[item // 16] + row


@pytest.mark.parametrize(("name", "m", "k"), F8F6F4)
def test_scale_byte_selection(name: str, m: int, k: int) -> None:
    """{OP_SEL_HI, OP_SEL} picks the byte, for A and B apart; an inline constant scales by its exponent."""
    if not implemented(name):
        pytest.skip("the core does not implement it")
    place, _, _ = _format("fp8", m, k)
    data = pack(fill(place, 32, np.ones(k)), "fp8", "gfx950")
    word = np.full(64, 124 | 126 << 8 | 128 << 16 | 131 << 24, np.uint32)
    exponents = [124, 126, 128, 131]
    src = (v(0, 8), v(8, 8), Inline(0))
    for a in range(4):
        for b in range(4):
            ins = Ins(
                name,
                (v(32, m * m // 64),),
                (*src, v(28), v(28)),
                op_sel=(a & 1) | (b & 1) << 1,
                op_sel_hi=(a >> 1) | (b >> 1) << 1,
            )
            got = launch(ins, "gfx950", data, data, {28: word})
            assert (got == k * 2.0 ** (exponents[a] + exponents[b] - 254)).all(), (a, b)
    for constant, factor in ((1.0, 1.0), (2.0, 2.0), (0.5, 0.5)):
        ins = Ins(name, (v(32, m * m // 64),), (*src, v(28), Inline(constant)), op_sel=0, op_sel_hi=1)
        got = launch(ins, "gfx950", data, data, {28: word})
        assert (got == k * 2.0 * factor).all(), constant


def test_blocks_of_4x4x4() -> None:
    """16 blocks: lane l works for block l // 4; row r of D is register r."""
    name = "v_mfma_f32_4x4x4_16b_f16"
    if not implemented(name):
        pytest.skip("the core does not implement it")
    a = np.random.default_rng(1).integers(-8, 8, (64, 4)).astype(np.float64)
    b = np.random.default_rng(2).integers(-8, 8, (64, 4)).astype(np.float64)
    rows = dict(enumerate(pack(a, "f16", "gfx942"))) | {
        8 + i: r for i, r in enumerate(pack(b, "f16", "gfx942"))
    }
    ins = Ins(name, (v(32, 4),), (v(0, 2), v(8, 2), Inline(0)))
    got = execute("gfx942", encode(ins), vgprs=rows, rows=64).vgprs
    for block in range(16):
        product = a[4 * block : 4 * block + 4] @ b[4 * block : 4 * block + 4].T
        for r in range(4):
            assert np.array_equal(got[32 + r].view(np.float32)[4 * block : 4 * block + 4], product[r])
