"""The LDS figures observed for the public kernels come out of the plan's structs, byte for byte."""

from __future__ import annotations

import pytest

from flymono.runtime.plan.dims import dims_of
from flymono.runtime.plan.ffn.lds import deciding, moe_structs
from flymono.runtime.plan.ffn.shape import Mixture
from flymono.runtime.plan.k1.lds import front_struct
from flymono.runtime.plan.k2.lds import gemv_struct, split_of
from flymono.runtime.plan.placement import grid_of
from flymono.runtime.plan.seam import seam_struct
from flymono.runtime.plan.width import wq_b_per_workgroup
from flymono.specs import Specs

WIDTH = {"gfx942": 6, "gfx950": 16}
# ffn_structure.md 8.2: (arch, tp, experts, picks) -> rows -> bytes
MOE = {
    ("gfx950", 2, 384, 6): {
        1: 59792, 6: 89792, 8: 101792, 12: 125792, 16: 149792, 24: 152608, 42: 157216, 48: 158752},
    ("gfx950", 4, 384, 6): {
        1: 43408, 6: 73408, 8: 85408, 12: 109408, 16: 133408, 24: 136224, 42: 140832, 48: 142368},
    ("gfx942", 4, 384, 6): {
        1: 27024, 6: 57024, 8: 57696, 12: 58464, 16: 59232, 24: 60768, 42: 64224, 48: 65376},
    ("gfx950", 2, 128, 3): {
        1: 56656, 6: 86288, 8: 98144, 12: 121856, 16: 145568, 24: 147232, 42: 150112, 48: 150864},
    ("gfx950", 4, 128, 3): {
        1: 40272, 6: 69904, 8: 81760, 12: 105472, 16: 129184, 24: 130848, 42: 133728, 48: 134480},
    ("gfx942", 4, 128, 3): {1: 23888, 6: 53520, 8: 53856, 12: 54240, 16: 54624, 24: 55392, 42: 57120},
}  # fmt: skip
MOE_CASES = [(*who, rows, want) for who, table in MOE.items() for rows, want in table.items()]


@pytest.mark.parametrize(("arch", "tp", "experts", "picks", "rows", "public"), MOE_CASES)
def test_moe_is_smaller_than_the_public_one(
    specs: Specs, arch: str, tp: int, experts: int, picks: int, rows: int, public: int
) -> None:
    d = dims_of(specs.model["deepseek_v41_flash"], tp, draft=experts == 128)
    assert d.experts == experts
    assert moe_structs(d, rows, WIDTH[arch], Mixture(experts, picks))[0].bytes <= public


# docs/facts/ffn_structure.md 8.2: rows -> bytes on gfx950 (TP2 and TP4 alike) and gfx942
OWN = {6: (56368, 56368), 16: (115248, 57328), 42: (119760, 61840), 48: (120624, 62704)}


@pytest.mark.parametrize("rows", OWN)
def test_moe_is_what_the_facts_page_says(specs: Specs, rows: int) -> None:
    two, four = (dims_of(specs.model["deepseek_v41_flash"], tp) for tp in (2, 4))
    tile = (16, 1024) if rows > 6 else (6, 5120)
    found = moe_structs(two, rows, 16)[0].bytes, moe_structs(four, rows, 6, None, *tile)[0].bytes
    assert found == OWN[rows] and moe_structs(four, rows, 16)[0].bytes == found[0]


def test_moe_members_at_42_rows(specs: Specs) -> None:
    d = dims_of(specs.model["deepseek_v41_flash"], 4)
    structs = moe_structs(d, 42, 6, None, 16, 1024)
    moe, shared, ug, down = structs
    places = {m.name: (m.offset, m.bytes) for m in moe.members}
    n, e = 42 * 6, 384
    sizes = {"red": 16384, "weights": 4 * n, "slots": 8 * n, "units": 8 * n, "order": 4 * n, "starts": 4 * e,
             "bitmaps": 8 * e, "totals": 48, "stage": 6 * (5120 + 16 + 640 + 16)}  # fmt: skip
    assert {name: size for name, (_, size) in places.items()} == sizes
    assert deciding(structs) == "shared"
    assert shared["x"].offset == ug["x"].offset == down["smq"].offset == moe["stage"].offset
    assert (ug["x"].rows, ug["x"].row_words, ug["xs"].row_words) == (2 * 16, 512 // 4 + 4, 512 // 32 + 4)
    assert (down["kept"].bytes, down["sdl"].bytes) == (2 * n * 32, 2 * 42 * 32)


def test_seams(specs: Specs) -> None:
    d = dims_of(specs.model["deepseek_v41_flash"], 4)
    for rows in range(1, 49):
        assert seam_struct(d, rows).bytes == 28672 + 512 * rows
        assert seam_struct(d, rows, k2=True).bytes == 28672 + 640 * rows
    assert [(m.name, m.bytes) for m in seam_struct(d, 6).members] == [
        ("red", 16384),
        ("rl", 3072),
        ("fl", 12288),
    ]


def test_front_and_gemv(specs: Specs) -> None:
    two, four = (dims_of(specs.model["deepseek_v41_flash"], tp) for tp in (2, 4))
    assert (wq_b_per_workgroup(two, 256), wq_b_per_workgroup(four, 256)) == (4, 2)
    for n in range(1, 17):
        assert front_struct(two, n, 4).bytes == 32832 + 4384 * n
        assert front_struct(four, n, 2).bytes == 16448 + 4384 * n
        assert gemv_struct(two, n).bytes == gemv_struct(four, n).bytes == 16384 + 4640 * n
    assert [front_struct(four, n, 2).bytes for n in (6, 10, 11, 16)] == [42752, 60288, 64672, 86592]
    assert [gemv_struct(four, n).bytes for n in (6, 10, 11, 16)] == [44224, 62784, 67424, 90624]


# attention.md 5.3 and 5.4: (arch, tp) -> rows -> (chunk, chunks, LDS bytes of the split stage)
SPLIT = {
    ("gfx950", 2): {1: (64, 10, 76032), 16: (64, 10, 76032), 25: (64, 10, 76032), 26: (128, 5, 118528),
                    42: (128, 5, 118528), 48: (128, 5, 118528)},
    ("gfx950", 4): {1: (128, 5, 96640), 48: (128, 5, 96640)},
    ("gfx942", 4): {1: (64, 10, 57216), 42: (64, 10, 57216)},
}  # fmt: skip
SPLIT_CASES = [(*who, rows, want) for who, table in SPLIT.items() for rows, want in table.items()]


@pytest.mark.parametrize(("arch", "tp", "rows", "want"), SPLIT_CASES)
def test_split(specs: Specs, arch: str, tp: int, rows: int, want: tuple[int, int, int]) -> None:
    d, spec = dims_of(specs.model["deepseek_v41_flash"], tp), specs.arch[arch]
    split = split_of(d, rows, grid_of(spec).workgroups, spec.workgroup.lds_bytes)
    assert (split.chunk, split.chunks, split.bytes) == want
