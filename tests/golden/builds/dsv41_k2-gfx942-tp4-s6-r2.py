# dsv41_k2-gfx942-tp4-s6-r2: generated from templates/k2.py.j2; do not edit.
# Again: flymono gen --build dsv41_k2-gfx942-tp4-s6-r2
# Why each number is what it is: flymono plan show dsv41_k2-gfx942-tp4-s6-r2
#
# Specs (first 12 digits of SHA-256 of the resolved values):
#   arch/gfx942               f289fa310db5
#   model/deepseek_v41_flash  4bbc9a118e3d
#
# Costs of one launch, by the plan:
#   grid         256 workgroups of 512 threads
#   GEMV passes  1 of at most 6 rows
#   LDS          57,216 of 65,536 bytes
#   scratch      1,832,960 bytes
#   MFMA split   15,360 x f32_16x16x16_bf16
#   MFMA split   7,680 x f32_16x16x16_bf16
#   MFMA wo_a    16,384 x f32_16x16x32_fp8_fp8
#   MFMA wo_b    20,480 x f32_16x16x32_fp8_fp8
#   MFMA slice   10,240 x f32_16x16x4_f32
#   MFMA router  7,680 x f32_16x16x16_bf16
#   MFMA shared  11,520 x f32_16x16x32_fp8_fp8
#   MFMA ug      414,720 x f32_16x16x32_fp8_fp8
#   MFMA down    230,400 x f32_16x16x32_fp8_fp8
#   HBM          206,107,376 bytes
#   lower bound  38,889 ns by HBM traffic
"""K2: attention back and FFN half of one decoder layer on every rank of a group, in one persistent launch.

Every workgroup walks the stages in the order below and runs its tasks of each; what a stage hands to a later one
goes through the scratch argument, what ranks hand to each other through the peer buffers. Weights are asked for
before the data they meet exists.
"""

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr.typing import Int32, Int64

from flymono.mono.build import Back, Split
from flymono.mono.combine import combine
from flymono.mono.context import enter, stage, stamp
from flymono.mono.records import Caches
from flymono.mono.split import split
from flymono.mono.wo_a import wo_a_product, wo_a_weights
from flymono.mono.wo_b import wo_b_product, wo_b_weights
from flymono.mono.build import (
    Build,
    Epoch,
    Faults,
    Ffn,
    FfnLds,
    FfnScratch,
    Gemv,
    Mixture,
    Numerics,
    Peer,
    Seam,
    Shape,
    Site,
    Strategy,
    Tasks,
)
from flymono.mono.down import down
from flymono.mono.epoch_end import epoch_end, hold_tag, mark
from flymono.mono.faults import finish, turn_back
from flymono.mono.final_reduce import final_reduce
from flymono.mono.peers import join
from flymono.mono.route import route
from flymono.mono.router import router_product, router_weights
from flymono.mono.seam_gate import seam_gate
from flymono.mono.seam_norm import ffn_norm
from flymono.mono.seam_slice import ffn_slice
from flymono.mono.shared import shared_product, shared_rows, shared_weights
from flymono.mono.table import route_table
from flymono.mono.ug import ug, ug_rows
from flymono.mono.ug_product import Experts
from flymono.mono.xq import xq

FFN = Ffn(
    mix=Mixture(
        experts=384,
        per_token=6,
        limit=10.0,
        routed_scale=1.5,
        inter=576,
        padded=640,
        loaded=576,
        groups_per_task=2,
        parts=9,
        pick_width=6,
        k_block=5120,
        router_rows=6,
        router_parts=4,
        shared_tasks=36,
        down_extra=64,
        copies=8,
    ),
    lds=FfnLds(
        red=0,
        weights=16384,
        slots=16528,
        units=16816,
        order=16816,
        starts=16960,
        bitmaps=18496,
        totals=21568,
        x=21616,
        xs=52432,
        shared_x=21616,
        shared_xs=52432,
        smq=21616,
        smc=25552,
        kept=26128,
        sdl=28432,
    ),
    scratch=FfnScratch(
        normed=1771008,
        xrdy=1832448,
        x8r=1591808,
        x8rs=1622528,
        x8=0,
        x8s=30720,
        x8rdy=1626368,
        logit=1626624,
        route=1700352,
        smid=1704960,
        smq=1732608,
        smc=1739520,
        mid=1740544,
        mids=1763584,
        mids_row=32,
        ugf=1768192,
    ),
    peer=Peer(
        ranks=4,
        mark=256,
        half=6881280,
        attn=256,
        ffn=491776,
        sym=392,
        table=400,
        rank=408,
    ),
    epoch=Epoch(
        marks=4,
        ug_counters=320,
        down_counters=576,
        ring=256,
    ),
)

BUILD = Build(
    workgroups=256,
    waves=8,
    shape=Shape(
        rows=6,
        hidden=5120,
        streams=4,
        mix=24,
        q_rank=1280,
        kv_dim=512,
        qkv_rows=1792,
        head_dim=512,
        nope=448,
        rope=64,
        q_rows=8192,
        topk=512,
        keys=640,
        window=128,
        ratio=2,
        record_data=576,
        record_scales=8,
    ),
    pass_width=6,
    lds_bytes=57216,
    tag_scale=2,
    tag_offset=2,
    timeline=(),
    faults=Faults(
        code=4633,
        shift=16,
        stop=1,
        mark=512,
        look=64,
        fault=424,
        bound=432,
        epoch=416,
    ),
    how=Strategy(
        gemv="fp8_mfma_fma",
        weight_layout="tile_major",
        fp8="fnuz",
        bf16_cvt="integer_rne",
        lane_swap="bpermute",
        max3=False,
        bf16_k=16,
        fp8_cvt="plain",
    ),
    numerics=Numerics(
        rms_eps=1e-20,
        gate_eps=1e-06,
        post_multiplier=2.0,
        sinkhorn=20,
    ),
    seam=Seam(
        gate_groups=20,
        gate_slices=8,
        red=0,
        rl=16384,
        fl=19456,
        lin=215808,
        pmix=338688,
    ),
    back=Back(
        split=Split(
            chunk=64,
            chunks=10,
            key_tiles=4,
            head_groups=1,
            q=0,
            raw=16640,
            p=54016,
            st=56192,
        ),
        red=0,
        xl=16384,
        xsl=41056,
        part=530688,
        pstat=1513728,
        srdy=1521408,
        xo=1521920,
        xos=1571072,
        crdy=1577216,
        x8b=1577472,
        x8bs=1589760,
        ardy=1591296,
        krdy=1832704,
        made_here=False,
        group_k=4096,
        o_rank=1024,
        o_rows=2048,
    ),
    ffn=FFN,
)

# Task i of a stage runs on workgroup first + i mod span (around the grid).
MARK = Tasks(count=256, first=0, span=256)
KT = Tasks(count=0, first=250, span=6)
SPLIT = Tasks(count=60, first=0, span=256)
COMBINE = Tasks(count=12, first=60, span=256)
WO_A = Tasks(count=64, first=72, span=256)
WO_B = Tasks(count=320, first=136, span=256)
SLICE = Tasks(count=160, first=0, span=256)
GATE = Tasks(count=6, first=160, span=90)
NORM = Tasks(count=6, first=166, span=90)
XQ = Tasks(count=6, first=0, span=256)
ROUTER = Tasks(count=96, first=8, span=256)
ROUTE = Tasks(count=6, first=104, span=256)
SHARED = Tasks(count=36, first=112, span=256)
SHARED_Q = Tasks(count=18, first=113, span=128)
TABLE = Tasks(count=256, first=0, span=256)
UG = Tasks(count=324, first=148, span=256)
DOWN = Tasks(count=320, first=0, span=256)
REDUCE = Tasks(count=160, first=0, span=256)
EPOCH = Tasks(count=1, first=0, span=256)

# GEMVs: 16-row tiles; K in parts, each cut into steps.
WO_A_GEMV = Gemv(
    rows=2048,
    k=4096,
    parts=1,
    steps=32,
    tiles=128,
    per_workgroup=1,
    span=256,
)
WO_B_GEMV = Gemv(
    rows=5120,
    k=2048,
    parts=1,
    steps=16,
    tiles=320,
    per_workgroup=2,
    span=256,
)
ROUTER_GEMV = Gemv(
    rows=384,
    k=1280,
    parts=4,
    steps=40,
    tiles=24,
    per_workgroup=1,
    span=256,
)
SHARED_GEMV = Gemv(
    rows=1152,
    k=5120,
    parts=1,
    steps=40,
    tiles=72,
    per_workgroup=1,
    span=256,
)
DOWN_GEMV = Gemv(
    rows=5120,
    k=576,
    parts=1,
    steps=5,
    tiles=320,
    per_workgroup=2,
    span=256,
)

# Where a wave waits for another workgroup.
COMBINE_SRDY = Site(1, "combine", hold=1)
WO_A_CRDY = Site(2, "wo_a", hold=1)
WO_B_ARDY = Site(3, "wo_b", hold=1)
SLICE_ATTN = Site(4, "slice", hold=1)
GATE_PMIX = Site(5, "gate", hold=1)
NORM_LIN = Site(6, "norm", hold=1)
XQ_XRDY = Site(7, "xq", hold=1)
ROUTER_XRDY = Site(8, "router", hold=1)
ROUTE_LOGIT = Site(9, "route", hold=1)
SHARED_X8RDY = Site(10, "shared", hold=1)
SHARED_Q_SMID = Site(11, "shared_q", hold=1)
TABLE_ROUTE = Site(12, "table", hold=1)
UG_X8RDY = Site(13, "ug", hold=1)
DOWN_SMQ = Site(14, "down", hold=1)
DOWN_SMC = Site(15, "down", hold=1)
DOWN_UGF = Site(16, "down", hold=1)
REDUCE_FFN = Site(17, "reduce", hold=1)
EPOCH_MARKS = Site(18, "epoch", hold=1)


@flyc.kernel(name="dsv41_k2_gfx942_tp4_s6_r2", known_block_size=[512, 1, 1])
def k2(
    q: Int64,
    swa: Int64,
    swa_stride: Int64,
    swa_block: Int32,
    comp: Int64,
    comp_stride: Int64,
    comp_block: Int32,
    kt: Int64,
    klen: Int64,
    slot: Int64,
    swa_idx: Int64,
    swa_lens: Int64,
    t2r: Int64,
    topk: Int64,
    comp_bt: Int64,
    bt_stride: Int32,
    pos: Int64,
    sink: Int64,
    qk_scale: Int32,
    cos_sin: Int64,
    woa: Int64,
    woa_s: Int64,
    wob: Int64,
    wob_s: Int64,
    zrec: Int64,
    res_in: Int64,
    post_in: Int64,
    comb_in: Int64,
    pre_in: Int64,
    hc_fn: Int64,
    hc_scale: Int64,
    hc_base: Int64,
    ffn_w: Int64,
    res_out: Int64,
    post_out: Int64,
    comb_out: Int64,
    pre_out: Int64,
    gate_w: Int64,
    bias: Int64,
    w13: Int64,
    w13_s: Int64,
    w2: Int64,
    w2_s: Int64,
    sgu: Int64,
    sgu_s: Int64,
    sw2: Int64,
    sw2_s: Int64,
    out: Int64,
    scratch: Int64,
    sym: Int64,
    peers: Int64,
    rank: Int32,
    epoch: Int64,
    fault: Int64,
    bound: Int64,
    tl: Int64,
):
    c = join(enter(BUILD, scratch, epoch), sym, peers, rank)
    turn_back(c)
    c = hold_tag(c)
    stage("mark")
    mark(c)
    stamp(c, tl, "start")
    stage("split")
    caches = Caches(swa, swa_stride, swa_block, comp, comp_stride, comp_block, zrec)
    split(c, SPLIT, None, q, caches, kt, klen, qk_scale)
    stamp(c, tl, "split")
    stage("combine")
    combine(c, COMBINE, None, COMBINE_SRDY, klen, sink, pos, cos_sin)
    stamp(c, tl, "combine")
    stage("wo_a")
    groups = wo_a_weights(c, WO_A, WO_A_GEMV, woa, woa_s)
    stage("wo_b")
    tiles = wo_b_weights(c, WO_B, WO_B_GEMV, wob, wob_s)
    stage("wo_a")
    wo_a_product(c, WO_A_CRDY, groups)
    stamp(c, tl, "wo_a")
    stage("wo_b")
    wo_b_product(c, WO_B_ARDY, tiles, WO_A.count, FFN.peer.attn)
    stamp(c, tl, "wo_b")
    # The FFN half: what is needed first is asked for first.
    stage("slice")
    ffn_slice(c, SLICE, SLICE_ATTN, res_in, post_in, comb_in, pre_in, hc_fn, res_out)
    stamp(c, tl, "slice")
    stage("router")
    gate_rows = router_weights(c, ROUTER, ROUTER_GEMV, gate_w)
    stage("shared")
    unit = shared_weights(c, SHARED, SHARED_GEMV, sgu, sgu_s)
    stage("gate")
    seam_gate(c, GATE, GATE_PMIX, hc_scale, hc_base, post_out, comb_out, pre_out)
    stamp(c, tl, "gate")
    stage("norm")
    ffn_norm(c, NORM, NORM_LIN, ffn_w)
    stamp(c, tl, "norm")
    stage("xq")
    xq(c, XQ, XQ_XRDY)
    stamp(c, tl, "xq")
    stage("router")
    router_product(c, ROUTER_XRDY, gate_rows)
    stamp(c, tl, "router")
    stage("route")
    route(c, ROUTE, ROUTE_LOGIT, bias)
    stamp(c, tl, "route")
    stage("shared")
    rows = shared_rows(c, SHARED_X8RDY, unit)
    shared_product(c, SHARED_Q_SMID, unit, rows)
    stamp(c, tl, "shared")
    stage("ug")
    x = ug_rows(c, UG_X8RDY)
    stage("table")
    route_table(c, TABLE_ROUTE)
    stage("ug")
    ug(c, UG, Experts(w13, w13_s), x)
    stamp(c, tl, "ug")
    stage("down")
    down(c, DOWN, DOWN_GEMV, DOWN_SMQ, DOWN_SMC, DOWN_UGF, Experts(w2, w2_s), Experts(sw2, sw2_s))
    stamp(c, tl, "down")
    stage("reduce")
    final_reduce(c, REDUCE, REDUCE_FFN, out)
    stamp(c, tl, "reduce")
    stage("epoch")
    epoch_end(c, EPOCH, EPOCH_MARKS)
    stage("end")
    finish(c)


@flyc.jit
def launch(
    q: Int64,
    swa: Int64,
    swa_stride: Int64,
    swa_block: Int32,
    comp: Int64,
    comp_stride: Int64,
    comp_block: Int32,
    kt: Int64,
    klen: Int64,
    slot: Int64,
    swa_idx: Int64,
    swa_lens: Int64,
    t2r: Int64,
    topk: Int64,
    comp_bt: Int64,
    bt_stride: Int32,
    pos: Int64,
    sink: Int64,
    qk_scale: Int32,
    cos_sin: Int64,
    woa: Int64,
    woa_s: Int64,
    wob: Int64,
    wob_s: Int64,
    zrec: Int64,
    res_in: Int64,
    post_in: Int64,
    comb_in: Int64,
    pre_in: Int64,
    hc_fn: Int64,
    hc_scale: Int64,
    hc_base: Int64,
    ffn_w: Int64,
    res_out: Int64,
    post_out: Int64,
    comb_out: Int64,
    pre_out: Int64,
    gate_w: Int64,
    bias: Int64,
    w13: Int64,
    w13_s: Int64,
    w2: Int64,
    w2_s: Int64,
    sgu: Int64,
    sgu_s: Int64,
    sw2: Int64,
    sw2_s: Int64,
    out: Int64,
    scratch: Int64,
    sym: Int64,
    peers: Int64,
    rank: Int32,
    epoch: Int64,
    fault: Int64,
    bound: Int64,
    tl: Int64,
    stream: fx.Stream = fx.Stream(None),
):
    k2(
        q,
        swa,
        swa_stride,
        swa_block,
        comp,
        comp_stride,
        comp_block,
        kt,
        klen,
        slot,
        swa_idx,
        swa_lens,
        t2r,
        topk,
        comp_bt,
        bt_stride,
        pos,
        sink,
        qk_scale,
        cos_sin,
        woa,
        woa_s,
        wob,
        wob_s,
        zrec,
        res_in,
        post_in,
        comb_in,
        pre_in,
        hc_fn,
        hc_scale,
        hc_base,
        ffn_w,
        res_out,
        post_out,
        comb_out,
        pre_out,
        gate_w,
        bias,
        w13,
        w13_s,
        w2,
        w2_s,
        sgu,
        sgu_s,
        sw2,
        sw2_s,
        out,
        scratch,
        sym,
        peers,
        rank,
        epoch,
        fault,
        bound,
        tl,
    ).launch(grid=(256,), block=(512,), stream=stream)
