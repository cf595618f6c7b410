# dsv41_k2-gfx950-tp4-s17-r1-index: generated from templates/k2.py.j2; do not edit.
# Again: flymono gen --build dsv41_k2-gfx950-tp4-s17-r1-index
# Why each number is what it is: flymono plan show dsv41_k2-gfx950-tp4-s17-r1-index
#
# Specs (first 12 digits of SHA-256 of the resolved values):
#   arch/gfx950               2d8be7c7285c
#   model/deepseek_v41_flash  4bbc9a118e3d
#
# Costs of one launch, by the plan:
#   grid         256 workgroups of 512 threads
#   GEMV passes  2 of at most 16 rows
#   LDS          116,176 of 163,840 bytes
#   scratch      3,785,472 bytes
#   MFMA split   10,880 x f32_16x16x32_bf16
#   MFMA split   21,760 x f32_16x16x16_bf16
#   MFMA wo_a    8,192 x scale_f32_16x16x128_f8f6f4
#   MFMA wo_b    10,240 x scale_f32_16x16x128_f8f6f4
#   MFMA slice   20,480 x f32_16x16x4_f32
#   MFMA router  7,680 x f32_16x16x32_bf16
#   MFMA shared  5,760 x scale_f32_16x16x128_f8f6f4
#   MFMA ug      293,760 x scale_f32_16x16x128_f8f6f4
#   MFMA down    177,600 x scale_f32_16x16x128_f8f6f4
#   HBM          539,206,856 bytes
#   lower bound  67,401 ns by HBM traffic
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
from flymono.mono.keytable import key_table
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
        loaded=640,
        groups_per_task=2,
        parts=9,
        pick_width=16,
        k_block=5120,
        router_rows=9,
        router_parts=4,
        shared_tasks=36,
        down_extra=64,
        copies=8,
    ),
    lds=FfnLds(
        red=0,
        weights=16384,
        slots=16800,
        units=17616,
        order=18432,
        starts=18848,
        bitmaps=20384,
        totals=23456,
        x=23504,
        xs=105680,
        shared_x=23504,
        shared_xs=105680,
        smq=23504,
        smc=34000,
        kept=35536,
        sdl=42064,
    ),
    scratch=FfnScratch(
        normed=3610880,
        xrdy=3784960,
        x8r=3104256,
        x8rs=3191296,
        x8=0,
        x8s=87040,
        x8rdy=3202304,
        logit=3202560,
        route=3411456,
        smid=3424512,
        smq=3502848,
        smc=3522560,
        mid=3525120,
        mids=3590400,
        mids_row=32,
        ugf=3603456,
    ),
    peer=Peer(
        ranks=4,
        mark=256,
        half=7864320,
        attn=256,
        ffn=1392896,
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
        rows=17,
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
        ratio=1,
        record_data=576,
        record_scales=8,
    ),
    pass_width=16,
    lds_bytes=116176,
    tag_scale=2,
    tag_offset=2,
    timeline=(),
    faults=Faults(
        code=12613,
        shift=16,
        stop=1,
        mark=512,
        look=64,
        fault=424,
        bound=432,
        epoch=416,
    ),
    how=Strategy(
        gemv="scaled_mfma",
        weight_layout="row_major",
        fp8="ocp",
        bf16_cvt="cvt_pk",
        lane_swap="permlane_swap",
        max3=True,
        bf16_k=32,
        fp8_cvt="scaled",
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
        fl=25088,
        lin=610816,
        pmix=958976,
    ),
    back=Back(
        split=Split(
            chunk=128,
            chunks=5,
            key_tiles=8,
            head_groups=1,
            q=0,
            raw=16640,
            p=91392,
            st=95616,
        ),
        red=0,
        xl=16384,
        xsl=82176,
        part=1502976,
        pstat=2895616,
        srdy=2906624,
        xo=2907392,
        xos=3046656,
        crdy=3064064,
        x8b=3064576,
        x8bs=3099392,
        ardy=3103744,
        krdy=3785216,
        made_here=True,
        group_k=4096,
        o_rank=1024,
        o_rows=2048,
    ),
    ffn=FFN,
)

# Task i of a stage runs on workgroup first + i mod span (around the grid).
MARK = Tasks(count=256, first=0, span=256)
KT = Tasks(count=17, first=239, span=17)
SPLIT = Tasks(count=85, first=0, span=256)
COMBINE = Tasks(count=34, first=85, span=256)
WO_A = Tasks(count=64, first=119, span=256)
WO_B = Tasks(count=320, first=183, span=256)
SLICE = Tasks(count=160, first=0, span=256)
GATE = Tasks(count=17, first=160, span=79)
NORM = Tasks(count=17, first=177, span=79)
XQ = Tasks(count=17, first=0, span=256)
ROUTER = Tasks(count=192, first=17, span=256)
ROUTE = Tasks(count=17, first=209, span=256)
SHARED = Tasks(count=72, first=226, span=256)
SHARED_Q = Tasks(count=36, first=227, span=128)
TABLE = Tasks(count=256, first=0, span=256)
UG = Tasks(count=918, first=42, span=256)
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
SPLIT_KRDY = Site(1, "split", hold=1)
COMBINE_KRDY = Site(2, "combine", hold=1)
COMBINE_SRDY = Site(3, "combine", hold=1)
WO_A_CRDY = Site(4, "wo_a", hold=1)
WO_B_ARDY = Site(5, "wo_b", hold=1)
SLICE_ATTN = Site(6, "slice", hold=1)
GATE_PMIX = Site(7, "gate", hold=1)
NORM_LIN = Site(8, "norm", hold=1)
XQ_XRDY = Site(9, "xq", hold=1)
ROUTER_XRDY = Site(10, "router", hold=1)
ROUTE_LOGIT = Site(11, "route", hold=1)
SHARED_X8RDY = Site(12, "shared", hold=1)
SHARED_Q_SMID = Site(13, "shared_q", hold=1)
TABLE_ROUTE = Site(14, "table", hold=1)
UG_X8RDY = Site(15, "ug", hold=1)
DOWN_SMQ = Site(16, "down", hold=1)
DOWN_SMC = Site(17, "down", hold=1)
DOWN_UGF = Site(18, "down", hold=1)
REDUCE_FFN = Site(19, "reduce", hold=1)
EPOCH_MARKS = Site(20, "epoch", hold=1)


@flyc.kernel(name="dsv41_k2_gfx950_tp4_s17_r1_index", known_block_size=[512, 1, 1])
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
    stage("kt")
    key_table(
        c,
        KT,
        pos,
        slot,
        swa_idx,
        swa_lens,
        comp_block,
        comp_bt,
        bt_stride,
        topk,
        t2r,
        kt,
        klen,
        ready=BUILD.back.krdy,
    )
    stage("split")
    caches = Caches(swa, swa_stride, swa_block, comp, comp_stride, comp_block, zrec)
    split(c, SPLIT, SPLIT_KRDY, q, caches, kt, klen, qk_scale)
    stamp(c, tl, "split")
    stage("combine")
    combine(c, COMBINE, COMBINE_KRDY, COMBINE_SRDY, klen, sink, pos, cos_sin)
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
