"""The oracle's layout formulas against the written-out tables, and its product against numpy."""

import numpy as np
import pytest
from asm import Inline, Ins, v
from oracle import mfma
from oracle.state import State
from test_mfma_layout import TABLES, Table, _rows16, _rows32, _two_runs, pack


@pytest.mark.parametrize("table", TABLES, ids=lambda t: f"{t.name}-{t.arch}")
def test_formulas_equal_tables(table: Table) -> None:
    shape = mfma.shape_of(table.name)
    assert shape.per_lane == table.items
    for lane in range(64):
        for t in range(table.items):
            assert shape.operand(*table.place(lane, t)) == (lane, t)
        for r in range(table.m * table.m // 64):
            i, j = (_rows16 if table.m == 16 else _rows32)(lane, r)
            assert shape.result(i, j) == (lane, r)


@pytest.mark.parametrize(("m", "k"), [(16, 128), (32, 64)])
def test_two_runs_formula(m: int, k: int) -> None:
    shape, place = mfma.Shape(m, m, k), _two_runs(m, k // 2)
    for lane in range(64):
        for t in range(32):
            assert shape.operand(*place(lane, t), split=True) == (lane, t)
            assert shape.scale_lane(*place(lane, t)) == lane % m + m * (place(lane, t)[1] // 32)


def test_product_equals_numpy() -> None:
    table = next(t for t in TABLES if "16x16x32_fp8" in t.name and t.arch == "gfx942")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 9, (16, 32)).astype(np.float64) for _ in range(2))
    state = State()
    for base, x in ((0, a), (8, b)):
        slots = np.array([[x[table.place(lane, t)] for t in range(8)] for lane in range(64)])
        state.v[base : base + 2] = pack(slots, "fp8", "gfx942")
    mfma.step(state, Ins(table.name, (v(16, 4),), (v(0, 2), v(8, 2), Inline(1.0))), "gfx942")
    want = a @ b.T + 1
    for r in range(4):
        for lane in range(64):
            assert state.v[16 + r].view(np.float32)[lane] == want[_rows16(lane, r)]
