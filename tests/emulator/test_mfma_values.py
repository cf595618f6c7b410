"""Values of the matrix operations: "exact" against fractions, "cdna3" against a published model."""

import numpy as np
import pytest
from asm import EXEC, Inline, Ins, Reg, encode, v
from differ import check, core, implemented
from oracle import mfma as om
from oracle.state import State
from states import exec_mask, random_state, rng_of
from test_mfma_layout import TABLES, Table, pack

from flymono.emulator.execute import execute

PLAIN = [(t.name, t.arch) for t in TABLES] + [
    ("v_mfma_f32_16x16x32_bf8_fp8", "gfx942"),
    ("v_mfma_f32_16x16x32_fp8_bf8", "gfx950"),
    ("v_mfma_f32_4x4x4_16b_f16", "gfx942"),
    ("v_mfma_f32_4x4x4_16b_bf16", "gfx942"),
    ("v_mfma_f32_16x16x4_4b_f16", "gfx942"),
    ("v_mfma_f32_16x16x4_4b_bf16", "gfx942"),
    ("v_mfma_i32_16x16x32_i8", "gfx942"),
    ("v_mfma_i32_32x32x16_i8", "gfx942"),
    ("v_mfma_i32_32x32x32_i8", "gfx950"),
    ("v_mfma_f32_32x32x8_f16", "gfx942"),
    ("v_mfma_f32_32x32x16_f16", "gfx950"),
    ("v_mfma_f32_32x32x16_bf8_fp8", "gfx950"),
]


def _need(name: str) -> None:
    if not implemented(name):
        pytest.skip("the core does not implement it")


def _word(rng: np.random.Generator, bits: int, kind: str) -> np.ndarray:
    """64 registers' worth of element codes whose exponents stay near each other, with some zeros and
    denormals."""
    if kind == "f32":
        raw = rng.integers(0, 1 << 23, 64) | rng.integers(120, 134, 64) << 23 | rng.integers(0, 2, 64) << 31
    elif bits == 16:
        exponent, shift = ((120, 134), 7) if kind == "bf16" else ((8, 22), 10)
        half = [
            rng.integers(0, 1 << shift, 64)
            | rng.integers(*exponent, 64) << shift
            | rng.integers(0, 2, 64) << 15
            for _ in range(2)
        ]
        raw = half[0] | half[1] << 16
    else:
        raw = rng.integers(0, 1 << 32, 64)
        if kind in ("fp8", "bf8"):  # no NaN, no infinity: the top exponent codes are tested apart
            top = 0x77 if kind == "fp8" else 0x7B
            parts = [raw >> 8 * i & 0xFF for i in range(4)]
            raw = sum(np.where((p & 0x7F > top) | (p == 0x80), 0x35, p) << 8 * i for i, p in enumerate(parts))
    return (raw & 0xFFFFFFFF).astype(np.uint32)


def _random_inputs(name: str, arch: str, seed: int, c_scale: str = "near") -> tuple[Ins, State]:
    rng = np.random.default_rng(seed)
    shape = om.shape_of(name)
    kinds = name.rsplit("_", 2)[-2:]
    a_kind, b_kind = kinds if kinds[-1] in ("fp8", "bf8") else (kinds[-1], kinds[-1])
    bits = {"f32": 32, "bf16": 16, "f16": 16, "i8": 8, "fp8": 8, "bf8": 8}
    registers = shape.per_lane * bits[a_kind] // 32
    size = max(shape.m * shape.n * shape.blocks // 64, 1)
    state = random_state(rng_of(name, seed), True)
    for i in range(registers):
        state.v[i], state.v[8 + i] = _word(rng, bits[a_kind], a_kind), _word(rng, bits[b_kind], b_kind)
    for i in range(size):
        state.v[32 + i] = _word(rng, 32, "f32") if "i32" not in name else rng.integers(0, 1 << 32, 64)
    c: Reg | Inline = v(32, size) if c_scale == "near" else Inline(0)
    return Ins(name, (v(16, size),), (v(0, registers), v(8, registers), c)), state


@pytest.mark.parametrize(("name", "arch"), PLAIN)
def test_exact_model(name: str, arch: str) -> None:
    """Random elements, C from registers and inline 0: each D is the exact dot plus C, rounded once."""
    _need(name)
    for seed, c in ((0, "near"), (1, "zero")):
        check(arch, *_random_inputs(name, arch, seed, c))


@pytest.mark.parametrize("name", ["v_mfma_f32_16x16x32_fp8_fp8", "v_mfma_f32_16x16x16_bf16"])
def test_exec_is_ignored_and_d_may_be_c(name: str) -> None:
    ins, state = _random_inputs(name, "gfx942", 3)
    for mask in (0, exec_mask(rng_of("mfma exec"), "random")):
        state.set_scalar(EXEC, mask)
        check("gfx942", ins.but(dst=(ins.src[2],)), state)


def test_special_values_in_fp8() -> None:
    """NaN codes poison their row and column, and nothing else; FNUZ and OCP disagree on which code that
    is."""
    name = "v_mfma_f32_16x16x32_fp8_fp8"
    for arch, code in (("gfx942", 0x80), ("gfx950", 0x7F), ("gfx950", 0xFF), ("gfx942", 0x7F)):
        ins, state = _random_inputs(name, arch, 4)
        state.v[0, 5] = int(state.v[0, 5]) & ~0xFF | code
        check(arch, ins, state)


def test_special_values_in_bf16_and_f32() -> None:
    for name, codes in (
        ("v_mfma_f32_16x16x16_bf16", (0x7F80, 0xFF80, 0x7FC0, 0x0001, 0x8000)),
        ("v_mfma_f32_16x16x4_f32", (0x7F800000, 0xFF800000, 0x7FC00000, 0x00000001, 0x80000000)),
    ):
        for code in codes:
            ins, state = _random_inputs(name, "gfx942", 5)
            mask = 0xFFFF if code < 1 << 16 else 0xFFFFFFFF
            state.v[0, 18] = int(state.v[0, 18]) & ~mask & 0xFFFFFFFF | code
            check("gfx942", ins, state)


SCALED = [("v_mfma_scale_f32_16x16x128_f8f6f4", 4), ("v_mfma_scale_f32_32x32x64_f8f6f4", 16)]


@pytest.mark.parametrize(("name", "size"), SCALED)
@pytest.mark.parametrize("formats", [(0, 0), (4, 0), (0, 4), (1, 4), (4, 4), (2, 3)])
def test_scaled_formats(name: str, size: int, formats: tuple[int, int]) -> None:
    """Random codes, scales and byte selects, every pair of operand widths."""
    _need(name)
    if "32x32" in name and formats not in ((0, 0), (4, 0)):
        pytest.skip("the wide shape is slow in the oracle: two format pairs are enough there")
    rng = np.random.default_rng(sum(formats) + size)
    state = random_state(rng_of(name, formats), True)
    for base, code in ((0, formats[0]), (8, formats[1])):
        for i in range(8):
            state.v[base + i] = _word(rng, 8, "fp8" if code == 0 else "bf8" if code == 1 else "raw")
    for row in (28, 29):
        state.v[row] = rng.integers(0, 1 << 32, 64) & 0x0F0F0F0F | 0x78787878
    for i in range(size):
        state.v[40 + i] = _word(rng, 32, "f32")
    widths = [{0: 8, 1: 8, 2: 6, 3: 6, 4: 4}[code] for code in formats]
    src = (v(0, widths[0]), v(8, widths[1]), v(40, size), v(28), v(29))
    ins = Ins(
        name,
        (v(16 if size == 4 else 40, size),),
        src,
        cbsz=formats[0],
        blgp=formats[1],
        op_sel=2,
        op_sel_hi=1,
    )
    check("gfx950", ins, state)


def test_scale_255_is_nan_for_its_block_only() -> None:
    name = "v_mfma_scale_f32_16x16x128_f8f6f4"
    state = State()
    state.v[:16] = 0x38383838
    state.v[28:30] = 0x7F7F7F7F
    state.v[28, 16 + 3] = 0x7F7F7FFF  # row 3, second K block, byte 0
    ins = Ins(name, (v(16, 4),), (v(0, 8), v(8, 8), Inline(0), v(28), v(29)), op_sel_hi=0)
    got = core("gfx950", encode(ins), state)
    for r in range(4):
        for lane in range(64):
            value = got.v[16 + r].view(np.float32)[lane]
            assert np.isnan(value) if 4 * (lane // 16) + r == 3 else value == 128.0


def _table(name: str) -> Table:
    return next(t for t in TABLES if t.name == name and t.arch == "gfx942")


@pytest.mark.parametrize(
    "name",
    [
        "v_mfma_f32_16x16x4_f32",
        "v_mfma_f32_16x16x16_bf16",
        "v_mfma_f32_16x16x16_f16",
        "v_mfma_f32_16x16x32_fp8_fp8",
        "v_mfma_f32_32x32x8_bf16",
    ],
)
def test_cdna3_model_bit_for_bit(name: str) -> None:
    """The "cdna3" model equals mmasim (validated on hardware by its authors), wide spreads too."""
    torch = pytest.importorskip("torch")
    mmasim = pytest.importorskip("mmasim.amd", reason="mmasim, the published CDNA3 model, is not installed")
    _need(name)
    table = _table(name)
    model = mmasim.MFMA("CDNA3", name.removeprefix("v_mfma_"))
    kinds = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "fp8": torch.float8_e4m3fnuz}
    rng = np.random.default_rng(11)
    for spread in (2, 8, 14):
        a, b = (
            rng.standard_normal((table.m, table.k))
            * np.exp2(rng.integers(-spread, spread + 1, (table.m, table.k)) / 2)
            for _ in range(2)
        )
        c = (
            rng.standard_normal((table.m, table.m))
            * np.exp2(rng.integers(-3 * spread, 3 * spread, (table.m, table.m)))
        ).astype(np.float32)
        ta, tb = (torch.from_numpy(np.clip(x, -200, 200)).to(kinds[table.kind]) for x in (a, b))
        want = model(ta, tb.T.contiguous(), torch.from_numpy(c)).numpy()
        got = _run_matrix(table, ta.double().numpy(), tb.double().numpy(), c, "cdna3")
        assert np.array_equal(want.view(np.uint32), got.view(np.uint32))


def _run_matrix(table: Table, a: np.ndarray, b: np.ndarray, c: np.ndarray, model: str) -> np.ndarray:
    """D [m, m] of one MFMA on matrices A [m, k], B [n, k], C under a numeric model."""
    images = [
        pack(
            np.array([[x[table.place(lane, t)] for t in range(table.items)] for lane in range(64)]),
            table.kind,
            table.arch,
        )
        for x in (a, b)
    ]
    shape, size = om.shape_of(table.name), table.m * table.m // 64
    rows = dict(enumerate(images[0])) | {8 + i: row for i, row in enumerate(images[1])}
    image = np.zeros((size, 64), np.float32)
    for i in range(table.m):
        for j in range(table.m):
            lane, register = shape.result(i, j)
            image[register, lane] = c[i, j]
    rows |= {32 + r: image[r].view(np.uint32) for r in range(size)}
    ins = Ins(table.name, (v(32, size),), (v(0, table.registers), v(8, table.registers), v(32, size)))
    got = (
        execute(table.arch, encode(ins), vgprs=rows, rows=64, mfma=model)
        .vgprs[32 : 32 + size]
        .view(np.float32)
    )
    return np.array(
        [[got[shape.result(i, j)[::-1]] for j in range(table.m)] for i in range(table.m)], np.float32
    )


@pytest.mark.parametrize("model", ["fma", "cdna3", "perturb"])
def test_every_model_stays_within_its_bound(model: str) -> None:
    """|error| <= (K + 2) * 2^-23 * (largest product + |C|): no model may leave what tolerances are derived
    from."""
    table, rng = _table("v_mfma_f32_16x16x32_fp8_fp8"), np.random.default_rng(12)
    a, b = (rng.integers(-16, 17, (16, 32)) / 8.0 for _ in range(2))
    c = rng.standard_normal((16, 16)).astype(np.float32)
    exact = a @ b.T + c.astype(np.float64)
    bound = 34 * 2.0**-23 * (np.abs(a[:, None] * b[None]).max(-1) + np.abs(c))
    assert (np.abs(_run_matrix(table, a, b, c, model) - exact) <= bound).all()
