# dsv41_k1-gfx950-tp4-s17-r1-index: generated from templates/k1.py.j2; do not edit.
# Again: flymono gen --build dsv41_k1-gfx950-tp4-s17-r1-index
# Why each number is what it is: flymono plan show dsv41_k1-gfx950-tp4-s17-r1-index
#
# Specs (first 12 digits of SHA-256 of the resolved values):
#   arch/gfx950               2d8be7c7285c
#   model/deepseek_v41_flash  4bbc9a118e3d
#
# Costs of one launch, by the plan:
#   grid         256 workgroups of 512 threads
#   GEMV passes  2 of at most 16 rows
#   LDS          86,592 of 163,840 bytes
#   scratch      3,785,472 bytes
#   MFMA slice   20,480 x f32_16x16x4_f32
#   MFMA wqkv    8,960 x scale_f32_16x16x128_f8f6f4
#   MFMA wq_b    10,240 x scale_f32_16x16x128_f8f6f4
#   HBM          23,740,548 bytes
#   lower bound  2,968 ns by HBM traffic
"""K1: attention seam and attention front of one decoder layer, in one persistent launch.

Every workgroup walks the stages in the order below and runs its tasks of each; what a stage hands to a later one
goes through the scratch argument. Weights are asked for before the data they meet exists.
"""

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr.typing import Int32, Int64

from flymono.mono.build import (
    Build,
    Faults,
    Front,
    Gemv,
    Numerics,
    Scratch,
    Seam,
    Shape,
    Site,
    Strategy,
    Tasks,
)
from flymono.mono.context import enter, stage, stamp
from flymono.mono.faults import finish, turn_back
from flymono.mono.qkv import qkv
from flymono.mono.seam_gate import seam_gate
from flymono.mono.seam_norm import seam_norm
from flymono.mono.seam_slice import seam_slice
from flymono.mono.wqb import wqb_product, wqb_weights
from flymono.mono.wqkv import wqkv_product, wqkv_rows, wqkv_weights

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
    lds_bytes=86592,
    tag_scale=2,
    tag_offset=1,
    timeline=(),
    faults=Faults(
        code=12612,
        shift=16,
        stop=1,
        mark=512,
        look=64,
        fault=312,
        bound=320,
        epoch=304,
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
    front=Front(
        red=0,
        red_bytes=16448,
        qxl=16448,
        qxsl=37184,
        xl=40000,
        xsl=81216,
    ),
    scratch=Scratch(
        x8=0,
        x8s=87040,
        xrdy=98048,
        qkvp=98560,
        qx8=585984,
        qx8s=607744,
        qrdy=610560,
    ),
)

# Task i of a stage runs on workgroup first + i mod span (around the grid).
SLICE = Tasks(count=160, first=0, span=256)
NORM = Tasks(count=17, first=160, span=96)
GATE = Tasks(count=17, first=177, span=79)
KT = Tasks(count=0, first=224, span=32)
WQKV = Tasks(count=224, first=0, span=256)
QKV = Tasks(count=17, first=0, span=256)
WQ_B = Tasks(count=512, first=0, span=256)

# GEMVs: 16-row tiles; K in parts, each cut into steps.
WQKV_GEMV = Gemv(
    rows=1792,
    k=2560,
    parts=2,
    steps=20,
    tiles=112,
    per_workgroup=1,
    span=256,
)
WQ_B_GEMV = Gemv(
    rows=8192,
    k=1280,
    parts=1,
    steps=10,
    tiles=512,
    per_workgroup=2,
    span=256,
)

# Where a wave waits for another workgroup.
NORM_LIN = Site(1, "norm", hold=1)
GATE_PMIX = Site(2, "gate", hold=1)
WQKV_XRDY = Site(3, "wqkv", hold=1)
QKV_QKVP = Site(4, "qkv", hold=1)
WQ_B_QRDY = Site(5, "wq_b", hold=1)


@flyc.kernel(name="dsv41_k1_gfx950_tp4_s17_r1_index", known_block_size=[512, 1, 1])
def k1(
    res_in: Int64,
    pend: Int64,
    post_in: Int64,
    comb_in: Int64,
    pre_in: Int64,
    hc_fn: Int64,
    hc_scale: Int64,
    hc_base: Int64,
    attn_w: Int64,
    res_out: Int64,
    post_out: Int64,
    comb_out: Int64,
    pre_out: Int64,
    wqkv: Int64,
    wqkv_s: Int64,
    qn_w: Int64,
    kvn_w: Int64,
    wqb: Int64,
    wqb_s: Int64,
    cos_sin: Int64,
    pos: Int64,
    slot: Int64,
    swa: Int64,
    swa_stride: Int64,
    swa_block: Int32,
    q: Int64,
    swa_idx: Int64,
    swa_lens: Int64,
    comp_block: Int32,
    comp_bt: Int64,
    bt_stride: Int32,
    topk: Int64,
    t2r: Int64,
    kt: Int64,
    klen: Int64,
    normed_out: Int64,
    qr_out: Int64,
    scratch: Int64,
    epoch: Int64,
    fault: Int64,
    bound: Int64,
    tl: Int64,
):
    c = enter(BUILD, scratch, epoch)
    turn_back(c)
    stamp(c, tl, "start")
    stage("slice")
    seam_slice(c, SLICE, res_in, pend, post_in, comb_in, pre_in, hc_fn, res_out, fold=True)
    stage("wqkv")
    part = wqkv_weights(c, WQKV, WQKV_GEMV, wqkv, wqkv_s)
    stage("norm")
    seam_norm(c, NORM, NORM_LIN, attn_w, normed_out=normed_out)
    stage("gate")
    seam_gate(c, GATE, GATE_PMIX, hc_scale, hc_base, post_out, comb_out, pre_out)
    stamp(c, tl, "kt")
    stage("wqkv")
    rows = wqkv_rows(c, WQKV_XRDY, part)
    stage("wq_b")
    heads = wqb_weights(c, WQ_B_GEMV, wqb, wqb_s)
    stage("wqkv")
    wqkv_product(c, part, rows)
    stamp(c, tl, "wqkv")
    stage("qkv")
    qkv(c, QKV, QKV_QKVP, qn_w, kvn_w, cos_sin, pos, slot, swa, swa_stride, swa_block, qr_out=qr_out)
    stamp(c, tl, "qkv")
    stage("wq_b")
    wqb_product(c, WQ_B_GEMV, WQ_B_QRDY, heads, cos_sin, pos, q)
    stamp(c, tl, "wq_b")
    stage("end")
    finish(c)


@flyc.jit
def launch(
    res_in: Int64,
    pend: Int64,
    post_in: Int64,
    comb_in: Int64,
    pre_in: Int64,
    hc_fn: Int64,
    hc_scale: Int64,
    hc_base: Int64,
    attn_w: Int64,
    res_out: Int64,
    post_out: Int64,
    comb_out: Int64,
    pre_out: Int64,
    wqkv: Int64,
    wqkv_s: Int64,
    qn_w: Int64,
    kvn_w: Int64,
    wqb: Int64,
    wqb_s: Int64,
    cos_sin: Int64,
    pos: Int64,
    slot: Int64,
    swa: Int64,
    swa_stride: Int64,
    swa_block: Int32,
    q: Int64,
    swa_idx: Int64,
    swa_lens: Int64,
    comp_block: Int32,
    comp_bt: Int64,
    bt_stride: Int32,
    topk: Int64,
    t2r: Int64,
    kt: Int64,
    klen: Int64,
    normed_out: Int64,
    qr_out: Int64,
    scratch: Int64,
    epoch: Int64,
    fault: Int64,
    bound: Int64,
    tl: Int64,
    stream: fx.Stream = fx.Stream(None),
):
    k1(
        res_in,
        pend,
        post_in,
        comb_in,
        pre_in,
        hc_fn,
        hc_scale,
        hc_base,
        attn_w,
        res_out,
        post_out,
        comb_out,
        pre_out,
        wqkv,
        wqkv_s,
        qn_w,
        kvn_w,
        wqb,
        wqb_s,
        cos_sin,
        pos,
        slot,
        swa,
        swa_stride,
        swa_block,
        q,
        swa_idx,
        swa_lens,
        comp_block,
        comp_bt,
        bt_stride,
        topk,
        t2r,
        kt,
        klen,
        normed_out,
        qr_out,
        scratch,
        epoch,
        fault,
        bound,
        tl,
    ).launch(grid=(256,), block=(512,), stream=stream)
