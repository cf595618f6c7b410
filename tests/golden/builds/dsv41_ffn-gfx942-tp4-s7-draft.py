# dsv41_ffn-gfx942-tp4-s7-draft: generated from templates/ffn.py.j2; do not edit.
# Again: flymono gen --build dsv41_ffn-gfx942-tp4-s7-draft
# Why each number is what it is: flymono plan show dsv41_ffn-gfx942-tp4-s7-draft
#
# Specs (first 12 digits of SHA-256 of the resolved values):
#   arch/gfx942               f289fa310db5
#   model/deepseek_v41_flash  4bbc9a118e3d
#
# Costs of one launch, by the plan:
#   grid         256 workgroups of 512 threads
#   GEMV passes  2 of at most 6 rows
#   LDS          53,088 of 65,536 bytes
#   scratch      2,138,368 bytes
#   MFMA slice   10,240 x f32_16x16x4_f32
#   MFMA router  5,120 x f32_16x16x16_bf16
#   MFMA shared  23,040 x f32_16x16x32_fp8_fp8
#   MFMA ug      241,920 x f32_16x16x32_fp8_fp8
#   MFMA down    144,000 x f32_16x16x32_fp8_fp8
#   HBM          111,895,264 bytes
#   lower bound  21,113 ns by HBM traffic
"""The FFN launch: the FFN half of a decoder layer behind a push of the attention partials, in one persistent launch.

Every workgroup walks the stages in the order below and runs its tasks of each. Ranks hand to one another through their
peer buffers, workgroups through the scratch argument.
"""

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr.typing import Int32, Int64

from flymono.mono.context import enter, stage, stamp
from flymono.mono.push import push_partial
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
        experts=128,
        per_token=3,
        limit=10.0,
        routed_scale=1.5,
        inter=576,
        padded=640,
        loaded=576,
        groups_per_task=1,
        parts=18,
        pick_width=16,
        k_block=1024,
        router_rows=4,
        router_parts=4,
        shared_tasks=36,
        down_extra=64,
        copies=8,
    ),
    lds=FfnLds(
        red=0,
        weights=16384,
        slots=16480,
        units=16656,
        order=16656,
        starts=16752,
        bitmaps=17264,
        totals=18288,
        x=18336,
        xs=25952,
        shared_x=18336,
        shared_xs=49152,
        smq=18336,
        smc=22272,
        kept=22848,
        sdl=24192,
    ),
    scratch=FfnScratch(
        normed=2066176,
        xrdy=2137856,
        x8r=1857280,
        x8rs=1893120,
        x8=0,
        x8s=35840,
        x8rdy=1897728,
        logit=1897984,
        route=1984000,
        smid=1989376,
        smq=2021632,
        smc=2029824,
        mid=2030848,
        mids=2057728,
        mids_row=32,
        ugf=2063104,
    ),
    peer=Peer(
        ranks=4,
        mark=256,
        half=6881280,
        attn=256,
        ffn=573696,
        sym=200,
        table=208,
        rank=216,
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
        rows=7,
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
    lds_bytes=53088,
    tag_scale=2,
    tag_offset=2,
    timeline=(),
    faults=Faults(
        code=21022,
        shift=16,
        stop=1,
        mark=512,
        look=64,
        fault=232,
        bound=240,
        epoch=224,
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
        fl=19968,
        lin=251904,
        pmix=395264,
    ),
    ffn=FFN,
)

# Task i of a stage runs on workgroup first + i mod span (around the grid).
MARK = Tasks(count=256, first=0, span=256)
PUSH = Tasks(count=160, first=0, span=256)
SLICE = Tasks(count=160, first=0, span=256)
GATE = Tasks(count=7, first=160, span=89)
NORM = Tasks(count=7, first=167, span=89)
XQ = Tasks(count=7, first=0, span=256)
ROUTER = Tasks(count=64, first=8, span=256)
ROUTE = Tasks(count=7, first=72, span=256)
SHARED = Tasks(count=72, first=80, span=256)
SHARED_Q = Tasks(count=36, first=81, span=128)
TABLE = Tasks(count=256, first=0, span=256)
UG = Tasks(count=378, first=152, span=256)
DOWN = Tasks(count=320, first=0, span=256)
REDUCE = Tasks(count=160, first=0, span=256)
EPOCH = Tasks(count=1, first=0, span=256)

# GEMVs: 16-row tiles; K in parts, each cut into steps.
ROUTER_GEMV = Gemv(
    rows=128,
    k=1280,
    parts=4,
    steps=40,
    tiles=8,
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
SLICE_ATTN = Site(1, "slice", hold=1)
GATE_PMIX = Site(2, "gate", hold=1)
NORM_LIN = Site(3, "norm", hold=1)
XQ_XRDY = Site(4, "xq", hold=1)
ROUTER_XRDY = Site(5, "router", hold=1)
ROUTE_LOGIT = Site(6, "route", hold=1)
SHARED_X8RDY = Site(7, "shared", hold=1)
SHARED_Q_SMID = Site(8, "shared_q", hold=1)
TABLE_ROUTE = Site(9, "table", hold=1)
UG_X8RDY = Site(10, "ug", hold=1)
DOWN_SMQ = Site(11, "down", hold=1)
DOWN_SMC = Site(12, "down", hold=1)
DOWN_UGF = Site(13, "down", hold=1)
REDUCE_FFN = Site(14, "reduce", hold=1)
EPOCH_MARKS = Site(15, "epoch", hold=1)


@flyc.kernel(name="dsv41_ffn_gfx942_tp4_s7_draft", known_block_size=[512, 1, 1])
def ffn(
    part: Int64,
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
    stamp(c, tl, "start")
    stage("push")
    push_partial(c, PUSH, part)
    stamp(c, tl, "push")
    stage("mark")
    mark(c)
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
    part: Int64,
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
    ffn(
        part,
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
