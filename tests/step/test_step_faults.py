"""Every finding is planted once and named by argument, row, value and limit; several faults come together."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from flymono.runtime.step import StepCode, StepError, check_step, step_findings
from flymono.runtime.step.codes import ABOUT

from .conftest import Arguments, Step

Change = Callable[[Arguments], object]
Planted = tuple[str, Change, StepCode, str, int | None, str]
C = StepCode
WIDER = torch.zeros(12, 130, dtype=torch.int32)


def put(name: str, *place: int, value: int) -> Change:
    """A change of one element of tensor `name`."""

    def change(given: Arguments) -> None:
        tensor = given[name]
        assert isinstance(tensor, Tensor)
        tensor[place] = value

    return change


def to(name: str, value: Tensor | int) -> Change:
    return lambda given: given.update({name: value})


def without(name: str) -> Change:
    return lambda given: given.pop(name)


def cut(name: str, end: int) -> Change:
    return lambda given: given.update({name: given[name][:end]})  # type: ignore[index]


PLANTED: list[Planted] = [
    # fixture and launch, change, code, argument, row, text of value and limit
    ("selecting k1", put("pos", 3, value=-1), C.POSITION, "pos", 3, "-1"),
    ("selecting k1", put("pos", 11, value=4104), C.POSITION, "pos", 11, "rows 0 to 4,103"),
    ("selecting k2", put("pos", 3, value=2**31), C.POSITION, "pos", 3, "2147483648"),
    ("indexed keylist", put("pos", 0, value=2**31 - 1), C.POSITION, "pos", 0, "2,147,483,646"),
    ("selecting k1", put("slot", 4, value=10**6), C.SLOT, "slot", 4, "the window cache has"),
    ("selecting k1", put("slot", 4, value=-2), C.SLOT, "slot", 4, "-2"),
    ("selecting k1", put("slot", 4, value=-(2**40)), C.SLOT, "slot", 4, "-1099511627776"),
    ("windowed k1", put("slot", 1, value=2**32), C.SLOT, "slot", 1, "4294967296"),
    ("selecting k1", put("swa_lens", 2, value=129), C.WINDOW_LENGTH, "swa_lens", 2,
     "129; a window list has 128"),
    ("windowed k1", put("swa_lens", 2, value=193), C.WINDOW_LENGTH, "swa_lens", 2,
     "193; a window list has 192"),
    ("inside k2", put("swa_lens", 0, value=-1), C.WINDOW_LENGTH, "swa_lens", 0, "-1"),
    ("selecting k1", put("swa_idx", 0, 7, value=99999), C.WINDOW_SLOT, "swa_idx", 0, "entry 7 is 99999"),
    ("inside k2", put("swa_idx", 0, 7, value=-2), C.WINDOW_SLOT, "swa_idx", 0, "entry 7 is -2"),
    ("selecting k1", put("topk", 0, 9, value=1500), C.SELECTION_RANGE, "topk", 0,
     "entry 9 is 1500; 1,500 compressed rows are visible"),
    ("selecting k1", put("topk", 0, 9, value=-2), C.SELECTION_RANGE, "topk", 0, "entry 9 is -2"),
    ("indexed keylist", put("topk", 1, 0, value=10**6), C.SELECTION_RANGE, "topk", 1, "1000000"),
    ("inside k2", put("topk", 1, 0, value=10**6), C.SELECTION_RANGE, "topk", 1, "1000000"),
    ("selecting k1", put("t2r", 0, value=2), C.REQUEST, "t2r", 0,
     "2; the block table has lines of 2 requests"),
    ("indexed keylist", put("t2r", 0, value=-1), C.REQUEST, "t2r", 0, "-1"),
    ("selecting k2", put("klen", 5, value=641), C.KEY_COUNT, "klen", 5,
     "641; a row of the key table has 640"),
    ("selecting k2", put("klen", 11, value=-1), C.KEY_COUNT, "klen", 11, "-1"),
    ("selecting k2", put("kt", 0, 600, value=10**6), C.KEY_RANGE, "kt", 0,
     "entry 600 is 1000000; the window cache"),
    ("selecting k2", put("kt", 0, 5, value=-(2**31) + 10**6), C.KEY_RANGE, "kt", 0,
     "compressed entry 5 is 1000000; the compressed cache"),
    ("windowed k2", put("kt", 0, 5, value=-(2**31)), C.KEY_RANGE, "kt", 0, "ratio 0"),
    ("selecting k2", to("qk_scale", torch.zeros(1)), C.TYPE, "qk_scale", None, "Tensor"),
    ("selecting k2", to("qk_scale", 1031967725), C.SCALE, "qk_scale", None, "needs 0x3d8293ee"),
    ("selecting k2", put("zrec", 583, value=1), C.ZERO_RECORD, "zrec", None, "1 bytes"),
    ("selecting k2", to("rank", 4), C.RANK, "rank", None, "ranks of TP4 are 0 to 3"),
    ("selecting k2", put("peers", 2, value=0), C.PEERS, "peers", None, "entry 2 is 0x0"),
    ("selecting k2", put("peers", 3, value=1 << 20), C.PEERS, "peers", None, "rank 0 has the same"),
    ("selecting k2", to("sym", 5), C.PEERS, "peers", None, "sym says 0x5"),
    ("selecting k1", to("swa_stride", 576 * 32), C.CACHE_STRIDE, "swa_stride", None, "blocks overlap"),
    ("selecting k2", to("comp_stride", 584 * 32 - 4), C.CACHE_STRIDE, "comp_stride", None, "18,688 bytes"),
    ("selecting k1", to("swa_stride", 19010), C.LAYOUT, "swa_stride", None, "words of 4 bytes"),
    ("selecting k1", to("swa_block", 0), C.NUMBER, "swa_block", None, "0"),
    ("selecting k1", to("comp_block", -1), C.NUMBER, "comp_block", None, "-1"),
    ("selecting k1", to("bt_stride", 7), C.NUMBER, "bt_stride", None, "strides"),
    ("selecting k1", cut("swa", 18_000), C.CACHE_SIZE, "swa", None,
     "18,000 bytes; one block of 32 has 18,688"),
    ("selecting k2", cut("comp", 100), C.CACHE_SIZE, "comp", None, "100 bytes"),
    ("selecting k1", without("slot"), C.MISSING, "slot", None, "not given"),
    ("selecting k1", to("pos", torch.zeros(12, dtype=torch.int32)), C.TYPE, "pos", None, "torch.int32"),
    ("selecting k1", to("swa_stride", 2.5), C.TYPE, "swa_stride", None, "float"),  # type: ignore[arg-type]
    ("selecting k1", cut("topk", 11), C.SIZE, "topk", None, "22,528 bytes; the launch reads 24,576"),
    ("selecting k1", to("swa_idx", WIDER[:, :128]), C.LAYOUT, "swa_idx", None,
     "contiguous"),
]  # fmt: skip


@pytest.mark.parametrize("case", PLANTED, ids=lambda c: f"{c[0]}-{c[3]}-{c[2]}")
def test_a_planted_fault_is_named(case: Planted, request: pytest.FixtureRequest) -> None:
    where, change, code, argument, row, text = case
    fixture, kind = where.split()
    step: Step = request.getfixturevalue(fixture)
    given = step.copy()
    change(given)
    found = step_findings(step.launch(kind), given)
    alike = [f for f in found if (f.code, f.argument, f.row) == (code, argument, row)]
    assert len(alike) == 1, [str(f) for f in found]
    assert text in str(alike[0]) and alike[0].fix


def test_every_code_is_planted_or_has_a_test_of_its_own() -> None:
    own = {StepCode.SLOT_TWICE, StepCode.BLOCK_TABLE, StepCode.KEY_AFTER_END, StepCode.CACHE_REACH}
    assert {case[2] for case in PLANTED} | own == set(StepCode) == set(ABOUT)


def test_two_rows_of_one_slot(selecting: Step) -> None:
    given = selecting.copy()
    slot = given["slot"]
    assert isinstance(slot, Tensor)
    slot[5] = slot[2]
    (found,) = step_findings(selecting.launch("k1"), given)
    assert (found.code, found.row) == (StepCode.SLOT_TWICE, 5) and "row 2 writes" in found.limit
    assert step_findings(selecting.launch("k2"), given) == ()  # K2 writes no record


def test_a_block_table_that_leads_out_of_the_cache(selecting: Step) -> None:
    given = selecting.copy()
    table, topk, comp = given["comp_bt"], given["topk"], given["comp"]
    assert isinstance(table, Tensor) and isinstance(topk, Tensor) and isinstance(comp, Tensor)
    used = int(topk[0][topk[0] >= 0][0]) // 32
    table[0, used] = comp.numel()
    table[1, -1] = -9  # not used: the request is short
    found = step_findings(selecting.launch("k1"), given)
    assert {f.code for f in found} == {StepCode.BLOCK_TABLE} and {f.argument for f in found} == {"comp_bt"}
    assert "the compressed cache has" in found[0].limit and f"is {comp.numel()}" in found[0].value
    table[0, used] = -1
    assert step_findings(selecting.launch("k1"), given)
    without_cache = {
        n: v for n, v in given.items() if not n.startswith("comp") or n in ("comp_bt", "comp_block")
    }
    table[0, used] = 2**31 // 32
    assert "31 bits" in step_findings(selecting.launch("k1"), without_cache)[0].limit


def test_a_block_table_that_is_too_narrow(selecting: Step) -> None:
    given = selecting.copy()
    table = given["comp_bt"]
    assert isinstance(table, Tensor)
    given["comp_bt"], given["bt_stride"] = table[:, :3].contiguous(), 3
    found = step_findings(selecting.launch("k1"), given)
    assert {(f.code, f.argument) for f in found} == {(StepCode.BLOCK_TABLE, "topk")}
    assert "3 blocks of 32 rows: 96 rows" in found[0].limit and found[0].also > 100


def test_a_key_behind_the_end_of_its_row(selecting: Step) -> None:
    given = selecting.copy()
    kt, klen = given["kt"], given["klen"]
    assert isinstance(kt, Tensor) and isinstance(klen, Tensor)
    row = next(r for r in range(12) if 0 < int(klen[r]) < 100)
    kt[row, int(klen[row])] = 0
    (found,) = step_findings(selecting.launch("k2"), given)
    assert (found.code, found.row) == (StepCode.KEY_AFTER_END, row)


def test_what_32_bits_do_not_reach(selecting: Step) -> None:
    given = selecting.copy()
    states = 2**31 // 584 + 1
    given["swa"] = torch.empty(2, states, 584, dtype=torch.uint8, device="meta")
    given["swa_block"], given["swa_stride"] = states, states * 584
    found = step_findings(selecting.launch("k1"), given)
    assert [(f.code, f.argument) for f in found] == [(StepCode.CACHE_REACH, "swa_block")]
    wide = torch.empty(1, 64).expand(2**24 + 9, 64)
    given = selecting.copy()
    given["cos_sin"] = wide
    found = step_findings(selecting.launch("k1"), given)
    assert [f.code for f in found] == [StepCode.LAYOUT]  # such a table is not contiguous
    given["cos_sin"] = torch.empty(2**24 + 9, 64, device="meta")
    given["pos"][0] = 2**24  # type: ignore[index]
    assert "offsets of 32 bits reach 16,777,216" in step_findings(selecting.launch("k2"), given)[0].limit


def test_a_layer_is_not_asked_for_what_its_own_launches_make(selecting: Step, indexed: Step) -> None:
    for step in (selecting, indexed):
        given = {n: v for n, v in step.arguments.items() if n not in ("kt", "klen")}
        assert step_findings(step.plan, given) == () == step_findings(step.plan.plans, given)
        codes = {(f.code, f.argument) for f in step_findings(step.launch("k2"), given)}
        assert codes == {(StepCode.MISSING, "kt"), (StepCode.MISSING, "klen")}


def test_several_faults_are_all_listed(selecting: Step) -> None:
    given = selecting.copy()
    changes = [
        put("pos", 3, value=10**7), put("pos", 4, value=-5), put("slot", 0, value=10**6),
        put("swa_lens", 1, value=500), put("swa_idx", 2, 3, value=10**6), put("topk", 4, 0, value=10**6),
        put("t2r", 5, value=99), to("qk_scale", 1), to("comp_stride", 1), to("rank", -1),
    ]  # fmt: skip
    for change in changes:
        change(given)
    with pytest.raises(StepError) as caught:
        check_step(selecting.plan, given)
    error = caught.value
    got = {(f.argument, f.row) for f in error.findings}
    rows = {("pos", 3), ("pos", 4), ("slot", 0), ("swa_lens", 1), ("swa_idx", 2), ("t2r", 5)}
    assert rows | {("qk_scale", None), ("comp_stride", None), ("rank", None)} <= got
    assert error.exit_code == 2 and f"{len(error.findings)} findings in the arguments of layer 3" in str(
        error
    )
    assert all(str(f) in error.render() and f.fix in error.render() for f in error.findings)
    assert len(error.to_json()["findings"]) == len(error.findings)  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(error)).findings == error.findings
