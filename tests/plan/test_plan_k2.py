"""K2's plan against the facts: both halves' placement, waits, scratch, arguments, MFMA counts, LDS."""

from __future__ import annotations

import pytest

from flymono.runtime.plan import BuildKey, K2Plan, plan_k1, plan_k2
from flymono.specs import Specs

GFX942 = "dsv41_k2-gfx942-tp4-s6-r2"
GFX950 = "dsv41_k2-gfx950-tp2-s6-r2"


def made(specs: Specs, build: str) -> K2Plan:
    return plan_k2(specs, BuildKey.parse(build))


# attention.md 5.3: chunk, chunks, splits, combines, C0, A0, B0, early wo_b
PLACEMENT = {
    ("gfx950", 2): {
        1: (64, 10, 10, 4, 10, 14, 142, True), 6: (64, 10, 60, 24, 60, 84, 212, True),
        8: (64, 10, 80, 32, 80, 112, 240, True), 16: (64, 10, 160, 64, 160, 224, 96, False),
        24: (64, 10, 240, 96, 240, 80, 208, False), 42: (128, 5, 210, 168, 210, 122, 250, False),
        48: (128, 5, 240, 192, 240, 176, 48, False)},
    ("gfx950", 4): {
        1: (128, 5, 5, 2, 5, 7, 71, True), 6: (128, 5, 30, 12, 30, 42, 106, True),
        8: (128, 5, 40, 16, 40, 56, 120, True), 16: (128, 5, 80, 32, 80, 112, 176, True),
        24: (128, 5, 120, 48, 120, 168, 232, True), 42: (128, 5, 210, 84, 210, 38, 102, False),
        48: (128, 5, 240, 96, 240, 80, 144, False)},
    ("gfx942", 4): {
        1: (64, 10, 10, 2, 10, 12, 76, True), 6: (64, 10, 60, 12, 60, 72, 136, True),
        8: (64, 10, 80, 16, 80, 96, 160, True), 16: (64, 10, 160, 32, 160, 192, 0, True),
        24: (64, 10, 240, 48, 240, 32, 96, False), 42: (64, 10, 420, 84, 164, 248, 56, False)},
}  # fmt: skip
CASES = [(*who, rows, want) for who, table in PLACEMENT.items() for rows, want in table.items()]


@pytest.mark.parametrize(("arch", "tp", "rows", "want"), CASES)
def test_attention_placement(specs: Specs, arch: str, tp: int, rows: int, want: tuple[int, ...]) -> None:
    a = made(specs, f"dsv41_k2-{arch}-tp{tp}-s{rows}-r2").attention
    found = (a.split.chunk, a.split.chunks, a.split_tasks, a.combine_tasks)
    assert (*found, a.combine_first, a.wo_a_first, a.wo_b_first, a.early_wo_b) == want


# ffn_structure.md 8.1: router, route, shared, ug bases; router tasks, shared units, ug task bound
FFN = {
    ("gfx950", 2): {
        1: (8, 104, 112, 184, 96, 72, 108), 6: (8, 104, 112, 184, 96, 72, 648),
        8: (8, 104, 112, 184, 96, 72, 864), 12: (12, 108, 120, 192, 96, 72, 1296),
        24: (24, 216, 240, 128, 192, 144, 2592), 36: (36, 228, 8, 224, 192, 216, 3888),
        42: (42, 234, 20, 236, 192, 216, 4536), 48: (48, 240, 32, 248, 192, 216, 5184)},
    ("gfx950", 4): {
        1: (8, 104, 112, 148, 96, 36, 54), 6: (8, 104, 112, 148, 96, 36, 324),
        12: (12, 108, 120, 156, 96, 36, 648), 24: (24, 216, 240, 56, 192, 72, 1296),
        36: (36, 228, 8, 116, 192, 108, 1944), 42: (42, 234, 20, 128, 192, 108, 2268),
        48: (48, 240, 32, 140, 192, 108, 2592)},
    ("gfx942", 4): {
        1: (8, 104, 112, 148, 96, 36, 54), 6: (8, 104, 112, 148, 96, 36, 324),
        8: (8, 200, 208, 24, 192, 72, 432), 12: (12, 204, 216, 32, 192, 72, 648),
        24: (24, 216, 240, 128, 192, 144, 1296), 36: (36, 228, 8, 224, 192, 216, 1944),
        42: (42, 234, 20, 16, 192, 252, 2268)},
}  # fmt: skip
FFN_CASES = [(*who, rows, want) for who, table in FFN.items() for rows, want in table.items()]


@pytest.mark.parametrize(("arch", "tp", "rows", "want"), FFN_CASES)
def test_ffn_placement(specs: Specs, arch: str, tp: int, rows: int, want: tuple[int, ...]) -> None:
    f = made(specs, f"dsv41_k2-{arch}-tp{tp}-s{rows}-r2").ffn
    bases = (f.router_first, f.route_first, f.shared_first, f.ug_first)
    assert (*bases, f.router_tasks, f.shared_units, f.ug_tasks) == want


def test_draft_placement(specs: Specs) -> None:
    """One FP4 group a task: twice the parts of a target's expert (ffn_structure.md 8.1)."""
    f = made(specs, "dsv41_k2-gfx950-tp2-s6-r0-draft").ffn
    assert (f.router_first, f.route_first, f.shared_first, f.ug_first) == (8, 40, 48, 120)
    assert (f.experts, f.per_token, f.groups_per_task, f.parts, f.k_slices) == (128, 3, 1, 36, 4)
    assert (f.router_tasks, f.shared_units, f.ug_tasks) == (32, 72, 648)
    assert made(specs, "dsv41_k2-gfx950-tp4-s6-r0-draft").ffn.ug_tasks == 324


def test_stages_in_order(specs: Specs) -> None:
    plan = made(specs, GFX942)
    assert " ".join(s.name for s in plan.stages) == (
        "mark kt split combine wo_a wo_b slice gate norm xq router route shared shared_q table "
        "ug down reduce epoch"
    )
    where = {s.name: [s.workgroup_of(i) for i in range(s.tasks)] for s in plan.stages}
    assert where["gate"] == list(range(160, 166)) and where["norm"] == list(range(166, 172))
    assert where["wo_b"][:120] == list(range(136, 256)) and where["wo_b"][256] == 136
    assert where["shared"] == list(range(112, 148)) and where["shared_q"] == list(range(113, 148, 2))
    assert where["ug"][0] == 148 and plan.stage("ug").queue is None
    queue = plan.stage("down").queue
    assert queue is not None and (queue.counter, queue.static) == ("down", 256)


def test_a_wide_step_queues_its_tiles(specs: Specs) -> None:
    """More rows than a pick tile holds: 16 picks, on gfx942 in K blocks from 7 rows on."""
    cases = [(arch, rows) for arch in ("gfx942", "gfx950") for rows in (1, 6, 7, 16, 17, 42)]
    for arch, rows in cases:
        plan, queued = made(specs, f"dsv41_k2-{arch}-tp4-s{rows}-r2"), rows > 16
        assert (plan.stage("ug").queue is not None) == queued == plan.ffn.by_tile
        assert (plan.lds["moe"]["units"].rows > 0) == queued, "a slot is one unit, or has records"
        blocks = (16, 1024) if rows > 6 else (6, 5120)
        assert (plan.ffn.pick_width, plan.ffn.k_block) == (blocks if arch == "gfx942" else (16, 5120))


@pytest.mark.parametrize(
    ("build", "lds", "decides"),
    [(GFX942, 57216, "split"), ("dsv41_k2-gfx942-tp4-s42-r2", 61840, "moe"), (GFX950, 76032, "split"),
     ("dsv41_k2-gfx950-tp4-s6-r2", 96640, "split"), ("dsv41_k2-gfx950-tp2-s3-r2", 76032, "split"),
     ("dsv41_k2-gfx950-tp2-s48-r2", 120624, "moe")],
)  # fmt: skip
def test_lds(specs: Specs, build: str, lds: int, decides: str) -> None:
    plan = made(specs, build)
    assert (plan.lds.total, plan.lds.decides) == (lds, decides)


# picks; pick tiles at most: min(n, slots + n // 16), none where a tile holds the step
TABLES = [
    (GFX942, 384, 36, 0), ("dsv41_k2-gfx942-tp4-s16-r2", 384, 96, 0),
    ("dsv41_k2-gfx942-tp4-s42-r2", 384, 252, 252), ("dsv41_k2-gfx950-tp2-s48-r2", 384, 288, 288),
    ("dsv41_k2-gfx950-tp2-s48-r0-draft", 128, 144, 128 + 9), (GFX950, 384, 36, 0),
]  # fmt: skip


def test_the_route_table_lives_on(specs: Specs) -> None:
    """ug and down see the table where `table` put it, and their own area never reaches into it."""
    for build in (GFX942, GFX950, "dsv41_k2-gfx942-tp4-s42-r2", "dsv41_k2-gfx950-tp2-s6-r0-draft"):
        plan = made(specs, build)
        *table, stage = plan.lds["moe"].members
        for name in ("shared", "ug", "down"):
            own = plan.lds[name]
            assert own.members[: len(table)] == tuple(table)
            assert all(stage.offset <= m.offset for m in own.members[len(table) :])
            assert own.bytes <= stage.offset + stage.bytes <= plan.lds["moe"].bytes


@pytest.mark.parametrize(("build", "experts", "n", "tiles"), TABLES)
def test_route_table_words(specs: Specs, build: str, experts: int, n: int, tiles: int) -> None:
    """A weight and a place of every pick, two words a slot and a tile, three an expert, and the totals; where
    the public table (ffn_structure.md 1.4) has 4 n + 2 slots + 3 experts + 3, ours is smaller in one tile."""
    moe, slots = made(specs, build).lds["moe"], min(n, experts)
    words = {m.name: m.bytes // 4 for m in moe.members if m.name not in ("red", "stage")}
    want = {"weights": n, "slots": 2 * slots, "units": 2 * tiles, "order": n, "starts": experts,
            "bitmaps": 2 * experts, "totals": 8 + 2 + 1 + 1}  # fmt: skip
    assert words == want and list(words) == list(want)
    if not tiles:
        assert sum(words.values()) == 2 * n + 2 * slots + 3 * experts + 12


def test_scratch_agrees_with_k1(specs: Specs) -> None:
    """One layout a width: whatever the ratio, fold or index of the builds (offsets: attention.md 7)."""
    plan = made(specs, GFX942)
    for build in ("dsv41_k1-gfx942-tp4-s6-r2", "dsv41_k1-gfx942-tp4-s6-r1-nofold-index"):
        assert plan_k1(specs, BuildKey.parse(build)).scratch == plan.scratch
    assert made(specs, "dsv41_k2-gfx942-tp4-s6-r0").scratch == plan.scratch
    draft = made(specs, "dsv41_k2-gfx942-tp4-s6-r0-draft").scratch
    assert plan_k1(specs, BuildKey.parse("dsv41_k1-gfx942-tp4-s6-r0-w192")).scratch == draft != plan.scratch
    offsets = {r.name: r.offset for r in plan.scratch.regions}
    assert [offsets[n] for n in ("part", "pstat", "srdy", "xo", "xos", "crdy", "x8b", "x8bs", "ardy")] == [
        530688, 1513728, 1521408, 1521920, 1571072, 1577216, 1577472, 1589760, 1591296]  # fmt: skip


def test_region_sizes(specs: Specs) -> None:
    """ffn_structure.md 4; mid without the slack of the public layout, code rows of MID on lines."""
    for rows in (1, 6, 42):
        sizes = {r.name: r.bytes for r in made(specs, f"dsv41_k2-gfx942-tp4-s{rows}-r2").scratch.regions}
        a_row = {"x8r": 5120, "x8rs": 640, "x8rdy": 8, "logit": 12288, "route": 768, "smid": 4608,
                 "smq": 1152, "smc": 144, "mid": 640 * 6, "mids": 128 * 6, "ugf": 8 * 9 * 6, "normed": 10240,
                 "xrdy_moe": 8, "krdy": 8, "part": 163840, "pstat": 1280, "srdy": 80}  # fmt: skip
        assert {name: sizes[name] for name in a_row} == {name: size * rows for name, size in a_row.items()}


def test_peer_buffer(specs: Specs) -> None:
    plan = made(specs, "dsv41_k2-gfx950-tp2-s6-r2")
    assert (plan.peer.mark_bytes, plan.peer.half_bytes, plan.peer.total) == (256, 3932160, 7864576)
    assert [(r.name, r.offset, r.bytes) for r in plan.peer.regions.regions] == [
        ("attn", 0, 2 * 6 * 20480), ("ffn", 2 * 6 * 20480, 2 * 6 * 20480)]  # fmt: skip
    assert made(specs, "dsv41_k2-gfx950-tp4-s48-r2").peer.half_bytes == 7864320
    assert made(specs, GFX942).peer.pushed == 983040, "ffn_structure.md 5"


def test_arguments(specs: Specs) -> None:
    plan = made(specs, GFX942)
    assert [a.name for a in plan.abi.arguments] == [
        "q",
        "swa",
        "swa_stride",
        "swa_block",
        "comp",
        "comp_stride",
        "comp_block",
        "kt",
        "klen",
        "slot",
        "swa_idx",
        "swa_lens",
        "t2r",
        "topk",
        "comp_bt",
        "bt_stride",
        "pos",
        "sink",
        "qk_scale",
        "cos_sin",
        "woa",
        "woa_s",
        "wob",
        "wob_s",
        "zrec",
        "res_in",
        "post_in",
        "comb_in",
        "pre_in",
        "hc_fn",
        "hc_scale",
        "hc_base",
        "ffn_w",
        "res_out",
        "post_out",
        "comb_out",
        "pre_out",
        "gate_w",
        "bias",
        "w13",
        "w13_s",
        "w2",
        "w2_s",
        "sgu",
        "sgu_s",
        "sw2",
        "sw2_s",
        "out",
        "scratch",
        "sym",
        "peers",
        "rank",
        "epoch",
        "fault",
        "bound",
        "tl",
    ]
    assert (len(plan.abi.arguments), plan.abi.kernarg_bytes) == (56, 448)
    shapes = {a.name: a.shape for a in plan.abi.arguments}
    assert [shapes[n] for n in ("w13", "w13_s", "w2", "w2_s", "sw2", "sw2_s")] == [
        (384, 1152, 2560), (384, 1152, 160), (384, 5120, 288), (384, 5120, 18), (5120, 640), (160, 20),
    ]  # fmt: skip
    assert not plan.abi["slot"].used and not plan.abi["topk"].used and plan.abi["comp"].read
    other = made(specs, "dsv41_k2-gfx950-tp4-s6-r2-index").abi
    assert [other[n].shape for n in ("w13", "w13_s", "w2", "w2_s", "sw2")] == [
        (384, 1280, 2560), (384 * 1280, 160), (384, 5120, 320), (384 * 5120, 24), (5120, 576)]  # fmt: skip
    assert other["topk"].read and other["kt"].written and other["kt"].read
    assert not made(specs, "dsv41_k2-gfx950-tp4-s6-r0").abi["comp"].used


@pytest.mark.parametrize(
    ("build", "want"),
    [(GFX942, {"split": 48, "wo_a": 32, "wo_b": 16, "slice": 8, "router": 10, "shared": 40}),
     (GFX950, {"split": 48, "wo_a": 8, "wo_b": 8, "slice": 8, "router": 5, "shared": 10})],
)  # fmt: skip
def test_mfma_counts(specs: Specs, build: str, want: dict[str, int]) -> None:
    """attention.md 5.5: 16 scaled, 16 QK and 32 PV on gfx950; 48 FP8, 32 QK halves and 16 PV on gfx942."""
    counts: dict[str, int] = {}
    for m in made(specs, build).cost.mfma:
        counts[m.stage] = counts.get(m.stage, 0) + m.static if m.exact else counts.get(m.stage, 0)
    assert {k: v for k, v in counts.items() if v} == want


def test_index_builds_make_their_key_table(specs: Specs) -> None:
    plan = made(specs, "dsv41_k2-gfx950-tp4-s6-r1-index")
    kt = plan.stage("kt")
    assert [kt.workgroup_of(t) for t in range(kt.tasks)] == list(range(250, 256))
    assert [s.name for s in plan.sites][:3] == ["split_krdy", "combine_krdy", "combine_srdy"]


def test_wait_sites(specs: Specs) -> None:
    sites = {s.name: s for s in made(specs, "dsv41_k2-gfx942-tp4-s42-r2").sites}
    assert sites["route_logit"].batches == (12,) and sites["route_logit"].threads == 64
    assert sites["slice_attn"].batches == (4, 4) and sites["slice_attn"].ranks == 4
    assert sites["table_route"].awaited == 504 and sites["down_ugf"].awaited // 8 == 9 * 3, "3 tiles a slot"
    assert sites["epoch_marks"].space == "epoch" and sites["reduce_ffn"].space == "peer"
    wide = {s.name: s for s in made(specs, "dsv41_k2-gfx950-tp2-s48-r2").sites}
    assert wide["table_route"].batches == (2,) and wide["down_ugf"].awaited // 8 == 18 * 3


def test_attention_weights_are_requested_once(specs: Specs) -> None:
    for build in (GFX942, GFX950, "dsv41_k2-gfx942-tp4-s42-r2"):
        plan = made(specs, build)
        for name in ("woa", "wob", "hc_fn", "sw2"):
            moved = plan.cost[name]
            assert moved.promised and moved.requested_read == moved.unique_read == plan.abi[name].bytes


def test_the_shared_expert_is_read_once_a_tile_and_says_so(specs: Specs) -> None:
    moved = made(specs, "dsv41_k2-gfx942-tp4-s42-r2").cost["sgu"]
    assert moved.requested_read == 7 * moved.unique_read and "7 times" in moved.note
    assert made(specs, GFX942).cost["sgu"].note == ""


def test_wait_chain(specs: Specs) -> None:
    """split, combine, wo_a, wo_b, slice, norm, router, route, table, ug would be one a stage; down, reduce
    end it."""
    assert made(specs, GFX942).cost.bound.handoffs >= 9
