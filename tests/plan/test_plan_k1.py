"""K1's plan against the facts: placement, hand-offs, scratch, arguments, MFMA counts."""

from __future__ import annotations

import pytest

from flymono.runtime.plan import BuildKey, K1Plan, plan_k1
from flymono.runtime.plan.cost import residency_of
from flymono.runtime.plan.k1.traffic import Maps, traffic_of
from flymono.specs import Specs

GFX942 = "dsv41_k1-gfx942-tp4-s6-r2"
GFX950 = "dsv41_k1-gfx950-tp2-s6-r2"


def made(specs: Specs, build: str) -> K1Plan:
    return plan_k1(specs, BuildKey.parse(build))


@pytest.mark.parametrize(("build", "lds"), [(GFX942, 42752), (GFX950, 59136)])
def test_launch(specs: Specs, build: str, lds: int) -> None:
    plan = made(specs, build)
    assert (plan.grid, plan.block, plan.waves) == (256, 512, 8)
    assert (plan.lds.total, plan.lds.decides) == (lds, "front")
    assert plan.abi.kernarg_bytes == 336


def test_placement(specs: Specs) -> None:
    plan = made(specs, "dsv41_k1-gfx942-tp4-s42-r1")
    assert [s.name for s in plan.stages] == ["slice", "norm", "gate", "kt", "wqkv", "qkv", "wq_b"]
    where = {s.name: [s.workgroup_of(i) for i in range(s.tasks)] for s in plan.stages}
    assert where["slice"] == list(range(160))
    assert where["norm"] == list(range(160, 202))
    assert where["gate"] == list(range(202, 244))
    assert where["kt"] == [224 + t % 32 for t in range(42)]
    assert where["wqkv"] == list(range(224))
    assert where["qkv"] == list(range(42))
    assert where["wq_b"] == [i % 256 for i in range(512)]
    assert {s.name: s.per_workgroup for s in plan.stages if s.per_workgroup != 1} == {"kt": 2, "wq_b": 2}


def test_gemv_shapes(specs: Specs) -> None:
    plan = made(specs, GFX942)
    wqkv, wq_b = plan.stage("wqkv").gemv, plan.stage("wq_b").gemv
    assert wqkv is not None and wq_b is not None
    assert (wqkv.row_tiles, wqkv.k_parts, wqkv.k, wqkv.steps, wqkv.rounds, wqkv.last_round_waves) == (
        112,
        2,
        2560,
        20,
        3,
        4,
    )
    assert (wq_b.row_tiles, wq_b.k_parts, wq_b.k, wq_b.steps, wq_b.rounds, wq_b.last_round_waves) == (
        512,
        1,
        1280,
        10,
        2,
        2,
    )


def test_index_builds_make_no_key_table(specs: Specs) -> None:
    plan = made(specs, "dsv41_k1-gfx950-tp4-s6-r1-index")
    assert plan.stage("kt").tasks == 0
    assert not plan.abi["kt"].used and not plan.abi["swa_idx"].used and not plan.abi["topk"].used
    assert plan.abi["normed_out"].written and plan.abi["qr_out"].written


def test_ratio_0_reads_no_compressed_cache(specs: Specs) -> None:
    plan = made(specs, "dsv41_k1-gfx950-tp2-s6-r0-nofold-w192")
    assert plan.abi["swa_idx"].shape == (6, 192)
    assert [a.name for a in plan.abi.arguments if not a.used] == [
        "pend",
        "post_in",
        "comb_in",
        "comp_block",
        "comp_bt",
        "bt_stride",
        "topk",
        "t2r",
        "normed_out",
        "qr_out",
        "tl",
    ]


def test_scratch_offsets(specs: Specs) -> None:
    """attention.md 7, example of 6 rows; x8 and x8s lead, where the front's own group begins."""
    scratch = made(specs, GFX942).scratch
    own = [r for r in scratch.regions if r.launch == "k1"]
    assert {r.name: r.offset for r in own} == {
        "x8": 0,
        "x8s": 30720,
        "xrdy": 34560,
        "qkvp": 34816,
        "qx8": 206848,
        "qx8s": 214528,
        "qrdy": 215552,
        "lin": 215808,
        "pmix": 338688,
    }
    assert scratch["part"].offset == 530688, "K2's begin where K1's end"
    assert {r.name: r.kind for r in own if r.kind != "pairs"} == {
        "x8": "data",
        "x8s": "data",
        "xrdy": "flags",
        "qx8": "data",
        "qx8s": "data",
        "qrdy": "flags",
    }


@pytest.mark.parametrize("rows", [1, 6, 7, 42])
def test_scratch_sizes(specs: Specs, rows: int) -> None:
    scratch = made(specs, f"dsv41_k1-gfx942-tp4-s{rows}-r2").scratch
    a_row = {
        "x8": 5120,
        "x8s": 640,
        "xrdy": 16,
        "qkvp": 28672,
        "qx8": 1280,
        "qx8s": 160,
        "qrdy": 8,
        "lin": 20480,
        "pmix": 32000,
    }
    own = {r.name: r.bytes for r in scratch.regions if r.launch == "k1"}
    assert own == {name: size * rows for name, size in a_row.items()}


def test_wait_sites(specs: Specs) -> None:
    plan = made(specs, GFX942)
    assert [(s.id, s.name, s.producer, s.region, s.awaited, s.batches) for s in plan.sites] == [
        (1, "norm_lin", "slice", "lin", 2560, (6,)),
        (2, "gate_pmix", "slice", "pmix", 4000, (8,)),
        (3, "wqkv_xrdy", "norm", "xrdy", 6, (1,)),
        (4, "qkv_qkvp", "wqkv", "qkvp", 3584, (10,)),
        (5, "wq_b_qrdy", "qkv", "qrdy", 6, (1,)),
    ]
    assert plan.stage("gate").threads == 500
    assert (plan.seam.slices, plan.seam.gate_groups, plan.seam.gate_slices) == (160, 20, 8)


def test_arguments(specs: Specs) -> None:
    plan = made(specs, GFX942)
    assert [a.name for a in plan.abi.arguments] == [
        "res_in",
        "pend",
        "post_in",
        "comb_in",
        "pre_in",
        "hc_fn",
        "hc_scale",
        "hc_base",
        "attn_w",
        "res_out",
        "post_out",
        "comb_out",
        "pre_out",
        "wqkv",
        "wqkv_s",
        "qn_w",
        "kvn_w",
        "wqb",
        "wqb_s",
        "cos_sin",
        "pos",
        "slot",
        "swa",
        "swa_stride",
        "swa_block",
        "q",
        "swa_idx",
        "swa_lens",
        "comp_block",
        "comp_bt",
        "bt_stride",
        "topk",
        "t2r",
        "kt",
        "klen",
        "normed_out",
        "qr_out",
        "scratch",
        "epoch",
        "fault",
        "bound",
        "tl",
    ]
    assert [a.index for a in plan.abi.arguments] == list(range(1, 43))
    assert [a.offset for a in plan.abi.arguments] == [8 * i for i in range(42)]
    assert [(a.name, a.type) for a in plan.abi.arguments if a.type != "ptr"] == [
        ("swa_stride", "int64"),
        ("swa_block", "int32"),
        ("comp_block", "int32"),
        ("bt_stride", "int32"),
        ("bound", "int64"),
    ]
    assert plan.abi["wqb"].shape == (8192, 1280) and plan.abi["wqb_s"].shape == (256, 40)
    assert plan.abi["wqkv"].dtype == "e4m3fnuz" and made(specs, GFX950).abi["wqkv"].dtype == "e4m3fn"
    assert plan.abi["epoch"].shape == (832,)


@pytest.mark.parametrize(("build", "wqkv", "wq_b"), [(GFX942, 12, 16), (GFX950, 3, 8)])
def test_mfma_counts(specs: Specs, build: str, wqkv: int, wq_b: int) -> None:
    """attention.md 5.5: 28 FP8 and 8 f32 instructions on gfx942, 11 scaled and 8 f32 on gfx950."""
    counts = {m.stage: m.static for m in made(specs, build).cost.mfma}
    assert counts == {"slice": 8, "wqkv": wqkv, "wq_b": wq_b}


def test_passes(specs: Specs) -> None:
    plan = made(specs, "dsv41_k1-gfx942-tp4-s20-r2")
    assert plan.passes.tiles == ((0, 6), (6, 6), (12, 6), (18, 2)) and plan.passes.ragged
    assert plan.mix_passes.tiles == ((0, 16), (16, 4))
    assert {m.stage: (m.static, m.passes) for m in plan.cost.mfma} == {
        "slice": (8, 2),
        "wqkv": (12, 4),
        "wq_b": (16, 4),
    }


@pytest.mark.parametrize(
    "build", [GFX942, GFX950, "dsv41_k1-gfx942-tp4-s42-r2", "dsv41_k1-gfx950-tp2-s48-r2"]
)
def test_weights_are_requested_once(specs: Specs, build: str) -> None:
    plan = made(specs, build)
    assert all(r.kept for r in plan.cost.residency)
    for name in ("wqkv", "wqb", "hc_fn"):
        moved = plan.cost[name]
        assert moved.promised and moved.requested_read == moved.unique_read == plan.abi[name].bytes


def test_weights_that_do_not_stay_are_requested_in_each_pass(specs: Specs) -> None:
    plan = made(specs, "dsv41_k1-gfx950-tp2-s48-r2")
    few = specs.arch["gfx950"].registers.model_copy(update={"vgprs_per_simd_lane": 128})
    arch = specs.arch["gfx950"].model_copy(update={"registers": few})
    kept = {r.stage: (r.vgprs, r.budget, r.kept) for r in residency_of(plan.stages, arch)}
    assert kept == {"wqkv": (24, 32, True), "wq_b": (64, 32, False)}
    stays = {stage: keeps for stage, (_, _, keeps) in kept.items()}
    maps = Maps(plan.dims, plan.key, plan.grid, {s.name: s for s in plan.stages}, plan.passes, stays)
    moved = {t.name: t for t in traffic_of(maps, plan.abi, plan.scratch)}
    size = plan.abi["wqb"].bytes
    assert size is not None and plan.passes.count == 3
    assert (moved["wqb"].requested_read, moved["wqb"].unique_read) == (3 * size, size)
    assert moved["wqkv"].requested_read == moved["wqkv"].unique_read


def test_outputs_are_written_whole(specs: Specs) -> None:
    plan = made(specs, GFX942)
    for a in plan.abi.arguments:
        if a.written and a.bytes is not None and a.name not in ("scratch", "epoch", "fault"):
            assert plan.cost[a.name].unique_write == a.bytes
    assert plan.cost["swa"].unique_write == 6 * 584


def test_bound(specs: Specs) -> None:
    bound = made(specs, GFX942).cost.bound
    assert bound.by == "HBM traffic" and bound.ns == bound.hbm_ns == -(-bound.hbm_bytes // 5300)
    assert bound.handoffs == 4  # slice, norm, wqkv, qkv, wq_b
    assert 9175040 + 10485760 + 1966080 < bound.hbm_bytes < 24_000_000


def test_executed_matrix_instructions(specs: Specs) -> None:
    """Waves without a step and workgroups without a task execute none."""
    executed = {m.stage: m.executed for m in made(specs, "dsv41_k1-gfx942-tp4-s7-r2").cost.mfma}
    assert executed == {"slice": 160 * 8 * 8, "wqkv": 112 * 40 * 4 * 2, "wq_b": 512 * 10 * 4 * 2}


def test_fold_off_and_index_leave_arguments_alone(specs: Specs) -> None:
    cost = made(specs, "dsv41_k1-gfx950-tp2-s6-r1-nofold-index").cost
    untouched = {t.name for t in cost.traffic if not t.requested_read and not t.requested_write}
    key_table = {"swa_idx", "swa_lens", "comp_bt", "topk", "t2r", "kt", "klen"}
    assert untouched == {"pend", "post_in", "comb_in", "tl", "fault"} | key_table
