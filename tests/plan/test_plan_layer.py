"""Which launches a layer takes, what it hands over, and the memory statement."""

from __future__ import annotations

import pytest

from flymono.runtime.plan import Unsupported, plan_layer, width_report
from flymono.runtime.plan.layer import handoffs, occupancy
from flymono.runtime.plan.memory import GIB, memory_of
from flymono.specs import Specs

MODEL = "deepseek_v41_flash"
LAYERS = {  # attention.md 1.3 -> builds without model, arch, tp and rows
    0: "k1-r0-nofold k2-r0", 1: "k1-r0-nofold k2-r0", 2: "k1-r2-index k2-r2-index", 3: "k1-r2 k2-r2",
    14: "k1-r2-nofold-index k2-r2-index", 20: "k1-r1-index k2-r1-index", 21: "k1-r1 k2-r1", 39: "k1-r1 k2-r1",
    40: "k1-r0-nofold-w192 k2-r0-draft", 42: "k1-r0-w192 k2-r0-draft",
}  # fmt: skip


def short(build: str) -> str:
    kind, rest = build.removeprefix("dsv41_").split("-", 1)
    return f"{kind}-{rest.split('-s6-')[1]}"


@pytest.mark.parametrize("layer", LAYERS)
def test_launches_of_a_layer(specs: Specs, layer: int) -> None:
    plan = plan_layer(specs, "gfx950", 2, 6, layer)
    assert " ".join(short(p.key.id) for p in plan.plans) == LAYERS[layer]
    assert len({p.scratch for p in plan.plans}) == 1, "one layout for all launches of a layer"


def test_an_index_layer_with_a_launch_of_its_own(specs: Specs) -> None:
    """gfx942's spec states so: the key-list launch runs between the indexer and K2, which makes no table."""
    plan = plan_layer(specs, "gfx942", 4, 6, 20)
    assert [p.key.kind for p in plan.plans] == ["k1", "keylist", "k2"] and not plan.plans[2].key.index
    keys = plan.plans[1]
    assert (keys.grid, keys.lds.total, keys.scratch.total, keys.sites) == (6, 0, 0, ())
    names = "pos slot swa_idx swa_lens comp_block comp_bt bt_stride topk t2r kt klen"
    assert " ".join(a.name for a in keys.abi.arguments) == names
    assert keys.cost["kt"].unique_write == keys.abi["kt"].bytes


def test_every_layer_has_a_plan_at_every_shipped_width(specs: Specs) -> None:
    for arch, tp, widths in (("gfx942", 4, (1, 42)), ("gfx950", 2, (1, 48)), ("gfx950", 4, (6,))):
        for rows in widths:
            for layer in LAYERS:
                assert plan_layer(specs, arch, tp, rows, layer).plans


def test_refusals_of_all_launches_at_once(specs: Specs) -> None:
    with pytest.raises(Unsupported) as refused:
        plan_layer(specs, "gfx942", 4, 43, 3)
    assert len(refused.value.reasons) == 1 and refused.value.nearest == "dsv41_k1-gfx942-tp4-s42-r2"
    with pytest.raises(Unsupported, match="layer-kind-unknown"):
        plan_layer(specs, "gfx942", 4, 6, 43)
    with pytest.raises(Unsupported, match="arch-unknown"):
        plan_layer(specs, "gfx90a", 4, 6, 3)


def test_handoffs_name_every_wait_and_its_bytes(specs: Specs) -> None:
    for plan in plan_layer(specs, "gfx942", 4, 42, 3).plans:
        found = handoffs(plan)
        assert [(h.producer, h.stage) for h in found] == [(s.producer, s.stage) for s in plan.sites]
        assert all(h.bytes > 0 for h in found)
    by_pair = {(h.producer, h.stage): h for h in found}
    assert by_pair["split", "combine"].bytes == 42 * 10 * 16 * (1024 + 8)
    assert by_pair["wo_b", "slice"].space == "peer" and by_pair["wo_b", "slice"].bytes == 4 * 42 * 20480


def test_occupancy_counts_the_busiest(specs: Specs) -> None:
    k2 = plan_layer(specs, "gfx942", 4, 6, 3).plans[1]
    bars = occupancy(k2.stage("wo_b"), 64)
    assert bars[34:50] == [2] * 16 and sum(bars) == 64 + 16
    assert sum(occupancy(k2.stage("ug"), 256)) == 324


def test_copies_of_the_public_layout(specs: Specs) -> None:
    """runtime.md 4.3: 70.72 GiB at TP4 on gfx942, where draft layers take the FFN launch alone."""
    model, arch = specs.model[MODEL], specs.arch["gfx942"]
    report = width_report(model, arch)
    public = memory_of(model, arch, 4, report, [6, 12, 18, 24, 36, 42], whole_drafts=False)
    assert round(public.copied * 100 / GIB) == 7072
    assert {c.what: (c.layers, c.each) for c in public.copies} == {
        "routed experts": (40, 1804861440), "routed experts of draft layers": (3, 601620480),
        "shared experts": (43, 9184000), "attention linears": (40, 38572800)}  # fmt: skip
    whole = memory_of(model, arch, 4, report, [6], whole_drafts=True)
    assert whole.copied - public.copied == 3 * 38572800


def test_what_is_left(specs: Specs) -> None:
    model, arch = specs.model[MODEL], specs.arch["gfx942"]
    memory = memory_of(model, arch, 4, width_report(model, arch), [6, 42], whole_drafts=False)
    assert memory.loaded is not None and memory.total == memory.loaded + memory.copied + memory.buffers
    assert [left.capacity_gib for left in memory.left] == [192, 256, 288]
    for left in memory.left:
        assert (
            left.admitted == left.capacity_gib * GIB * 90 // 100
            and left.bytes == left.admitted - memory.total
        )
    assert round((memory.loaded + memory.copied) / GIB) == 170, "the published figure is 170.11 GiB"


def test_row_major_archs_need_no_copies(specs: Specs) -> None:
    model, arch = specs.model[MODEL], specs.arch["gfx950"]
    memory = memory_of(model, arch, 2, width_report(model, arch), [6])
    assert memory.copies == () and memory.copied == 0
    assert memory.loaded is None and memory.left == (), "no published figure at TP2: nothing is made up"
    given = memory_of(model, arch, 2, width_report(model, arch), [6], loaded=180 * GIB)
    assert given.loaded == 180 * GIB and len(given.left) == 3
