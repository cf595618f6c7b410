"""Sizes of one rank, from the model spec (attention.md 1.1 and 1.2).

Invariants
 - Everything is an int in elements unless the name says bytes; nothing depends on the arch or the rows.
 - `shape_reasons` names every size that the kernels' tiles cannot divide; `Dims` exists only without any.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...specs.schema import ModelSpec
from .arith import align_up
from .unsupported import Code, Reason

STEP_K = 128
"""K columns of one GEMV step: the K of a scaled MFMA, or four FP8 MFMAs of 32."""
TILE_ROWS = 16
"""Weight rows of one GEMV tile: the M of every MFMA in use."""
SLICE_COLUMNS = 32
"""Hidden columns of one seam slice: with four streams, 128 columns of the gate projection."""


@dataclass(frozen=True)
class Dims:
    """Per-rank sizes; TP-independent ones are the model's own."""

    tp: int
    hidden: int
    streams: int
    mix: int  # gate projections: pre, post and comb of the streams
    k_mix: int  # contraction of the gate projection
    q_rank: int
    kv_dim: int
    qkv_rows: int  # rows of the fused wq_a / wkv weight, q rows first
    head_dim: int
    nope: int
    rope: int
    half: int  # rotated pairs
    heads: int  # of this rank
    heads_total: int
    head_tiles: int
    groups: int
    group_k: int
    q_rows: int
    o_rank: int
    o_rows: int
    window: int
    topk: int
    keys: int  # row width of the key table
    mx_group: int
    weight_block: int
    record_group: int
    record_data_bytes: int
    record_scale_bytes: int
    record_bytes: int
    experts: int
    experts_per_token: int
    intermediate: int  # of this rank
    intermediate_padded: int
    request_rows: int  # rows of one request: its own token and its drafts
    draft: bool = False  # experts and experts_per_token are a draft layer's


def dims_of(model: ModelSpec, tp: int, *, draft: bool = False) -> Dims:
    """The sizes of one of `tp` ranks; the caller has checked `shape_reasons`."""
    experts = (model.draft.experts, model.draft.experts_per_token)
    experts = experts if draft else (model.moe.experts, model.moe.experts_per_token)
    at, heads = model.attention, model.attention.heads // tp
    groups, nope = at.o_groups // tp, at.head_dim - at.rope_dim
    streams, data = model.hyper.streams, nope + 2 * at.rope_dim
    scales = align_up(nope // model.quantisation.record_group, 8)
    w = model.moe.intermediate // tp
    return Dims(
        tp=tp,
        hidden=model.hidden,
        streams=streams,
        mix=streams * (2 + streams),
        k_mix=streams * model.hidden,
        q_rank=at.q_lora_rank,
        kv_dim=at.head_dim,
        qkv_rows=at.q_lora_rank + at.head_dim,
        head_dim=at.head_dim,
        nope=nope,
        rope=at.rope_dim,
        half=at.rope_dim // 2,
        heads=heads,
        heads_total=at.heads,
        head_tiles=heads // TILE_ROWS,
        groups=groups,
        group_k=heads // groups * at.head_dim,
        q_rows=heads * at.head_dim,
        o_rank=at.o_lora_rank,
        o_rows=groups * at.o_lora_rank,
        window=at.window,
        topk=model.indexer.topk,
        keys=model.indexer.topk + at.window,
        mx_group=model.quantisation.activation_group,
        weight_block=model.quantisation.weight_block[0],
        record_group=model.quantisation.record_group,
        record_data_bytes=data,
        record_scale_bytes=scales,
        record_bytes=data + scales,
        experts=experts[0],
        experts_per_token=experts[1],
        intermediate=w,
        intermediate_padded=align_up(w, STEP_K),
        request_rows=1 + model.draft.block_size,
        draft=draft,
    )


def shape_reasons(model: ModelSpec, tp: int) -> list[Reason]:
    """Every size of the model that does not divide as the tiles of a layer need it at `tp`."""
    at, moe = model.attention, model.moe
    needs = [
        ("hidden", model.hidden, 2 * STEP_K, "two K halves of 128-wide GEMV steps"),
        ("q_lora_rank", at.q_lora_rank, STEP_K, "128-wide GEMV steps of wq_b"),
        ("head_dim", at.head_dim, STEP_K, "128-wide GEMV steps of wo_a"),
        ("head_dim - rope_dim", at.head_dim - at.rope_dim, model.quantisation.record_group, "record groups"),
        ("rope_dim", at.rope_dim, 2 * TILE_ROWS, "whole 16-row tiles of rotated pairs"),
        ("attention.heads", at.heads, tp * TILE_ROWS, "16-head tiles a rank"),
        ("attention.o_groups", at.o_groups, tp, "output groups a rank"),
        ("attention.heads", at.heads, at.o_groups, "heads an output group"),
        ("o_lora_rank", at.o_lora_rank, 2 * TILE_ROWS, "32-row tasks of wo_a"),
        ("moe.intermediate", moe.intermediate, tp * 2 * TILE_ROWS, "32-column groups a rank"),
        ("moe.experts", moe.experts, 64, "a wave's lanes of the route table"),
        ("draft.experts", model.draft.experts, 64, "a wave's lanes of the route table"),
    ]
    return [
        Reason(
            Code.MODEL_SHAPE,
            f"{name} = {value} is not a multiple of {by} at TP{tp} ({what})",
            "take another TP size, or a model whose sizes divide",
        )
        for name, value, by, what in needs
        if value % by
    ]
