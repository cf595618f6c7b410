# dsv41_keylist-gfx942-tp4-s6-r2: generated from templates/keylist.py.j2; do not edit.
# Again: flymono gen --build dsv41_keylist-gfx942-tp4-s6-r2
# Why each number is what it is: flymono plan show dsv41_keylist-gfx942-tp4-s6-r2
#
# Specs (first 12 digits of SHA-256 of the resolved values):
#   arch/gfx942               f289fa310db5
#   model/deepseek_v41_flash  4bbc9a118e3d
#
# Costs of one launch, by the plan:
#   grid         6 workgroups of 512 threads
#   GEMV passes  1 of at most 6 rows
#   LDS          0 of 65,536 bytes
#   scratch      0 bytes
#   HBM          43,152 bytes
#   lower bound  347 ns by hand-off latency
"""Key list: the key table of an index layer, made from the selection of the indexer that ran after K1, for K2.

A workgroup a row; nothing is shared between workgroups.
"""

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr.typing import Int32, Int64

from flymono.mono.build import Build, Shape, Tasks
from flymono.mono.context import enter_alone, stage
from flymono.mono.keytable import key_table

BUILD = Build(
    workgroups=6,
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
)

# Task i of a stage runs on workgroup first + i mod span (around the grid).
KT = Tasks(count=6, first=0, span=6)


@flyc.kernel(name="dsv41_keylist_gfx942_tp4_s6_r2", known_block_size=[512, 1, 1])
def keylist(
    pos: Int64,
    slot: Int64,
    swa_idx: Int64,
    swa_lens: Int64,
    comp_block: Int32,
    comp_bt: Int64,
    bt_stride: Int32,
    topk: Int64,
    t2r: Int64,
    kt: Int64,
    klen: Int64,
):
    c = enter_alone(BUILD)
    stage("kt")
    key_table(c, KT, pos, slot, swa_idx, swa_lens, comp_block, comp_bt, bt_stride, topk, t2r, kt, klen)


@flyc.jit
def launch(
    pos: Int64,
    slot: Int64,
    swa_idx: Int64,
    swa_lens: Int64,
    comp_block: Int32,
    comp_bt: Int64,
    bt_stride: Int32,
    topk: Int64,
    t2r: Int64,
    kt: Int64,
    klen: Int64,
    stream: fx.Stream = fx.Stream(None),
):
    keylist(
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
    ).launch(grid=(6,), block=(512,), stream=stream)
