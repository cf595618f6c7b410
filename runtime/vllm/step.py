"""A step as vLLM's forward context has it: the facts that route it, and a layer's inputs of a launch.

Invariants
 - Facts hold metadata that every rank has alike, of all layers of a step at once (never strides or
   addresses).
 - A padded row has slot -1. Where vLLM's lists end before the padded rows, rows of zeros are put after them:
   kernels read a list for every row, and nothing of a padded one counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..plan.layers import StepFacts
from ..plan.layers.step import Graph
from ..runner import Step

RECORD = 584
"""Bytes of a KV record: 576 of data, 8 of scales (attention.md 2.1)."""


def forward_context() -> Any | None:
    """vLLM's context of the forward that runs, None outside one."""
    from vllm.forward_context import get_forward_context, is_forward_context_available

    return get_forward_context() if is_forward_context_available() else None


def facts_of(
    context: Any | None, rows: int, attns: Sequence[Any], *, draft: bool, entry_dims: int | None
) -> StepFacts:
    """The facts of a step of `rows` for the attentions of its kernel layers; `entry_dims` as in StepFacts."""
    if context is None:
        return StepFacts(rows, draft=draft, context=False, metadata="none", entry_dims=entry_dims)
    graph, metadata = graph_of(context), context.attn_metadata
    if not isinstance(metadata, dict):
        kind = "none" if metadata is None else "split"
        return StepFacts(rows, draft=draft, graph=graph, metadata=kind, entry_dims=entry_dims)  # type: ignore[arg-type]
    windows = [metadata.get(attn.swa_cache_layer.prefix) for attn in attns]
    known = [one for one in windows if one is not None]
    missing = tuple(a.layer_id for a, one in zip(attns, windows, strict=True) if one is None)
    compressed = [a for a in attns if a.compress_ratio]
    uncompressed = tuple(a.layer_id for a in compressed if metadata.get(a.compressed_cache_prefix) is None)
    if not known:
        return StepFacts(rows, draft=draft, graph=graph, missing=missing, entry_dims=entry_dims)
    widths = {one.decode_swa_width for one in known}
    return StepFacts(
        rows,
        draft=draft,
        graph=graph,
        prefills=max(one.num_prefills for one in known),
        decodes=min(one.num_decodes for one in known),
        decode_tokens=max(one.num_decode_tokens for one in known),
        missing=missing,
        uncompressed=uncompressed,
        window=widths.pop() if len(widths) == 1 else -1,
        lists=all(_has_lists(one) for one in known),
        entry_dims=entry_dims,
    )


def graph_of(context: Any) -> Graph:
    """The mode of the forward; a captured FULL graph runs as NONE under vLLM's second model runner."""
    name = context.cudagraph_runtime_mode.name
    known: dict[str, Graph] = {"NONE": "none", "FULL": "full"}
    return known.get(name, "piecewise")


def _has_lists(one: Any) -> bool:
    return (
        one.decode_swa_indices is not None
        and one.decode_swa_lens is not None
        and one.token_to_req_indices is not None
    )


def inputs_of(attn: Any, metadata: Any, positions: Tensor) -> Step:
    """A whole layer's metadata and caches."""
    rows, window = positions.shape[0], metadata[attn.swa_cache_layer.prefix]
    compressed = metadata[attn.compressed_cache_prefix] if attn.compress_ratio else None
    step = Step(
        pos=positions,
        slot=padded(window.slot_mapping, rows, -1),
        swa=records(attn.swa_cache_layer.kv_cache, window.block_size),
        swa_idx=padded(window.decode_swa_indices, rows, -1),
        swa_lens=padded(window.decode_swa_lens, rows, 0),
        t2r=padded(window.token_to_req_indices, rows, 0),
    )
    if compressed is not None:
        step.comp = records(attn._compressed_kv_cache(), compressed.block_size // attn.compress_ratio)
        step.comp_bt = compressed.block_table
        step.topk = attn.topk_indices_buffer
    return step


def padded(value: Tensor, rows: int, fill: int) -> Tensor:
    """`value` with at least `rows` rows."""
    short = rows - value.shape[0]
    if short <= 0:
        return value
    return torch.cat([value, value.new_full((short, *value.shape[1:]), fill)])


def records(cache: Tensor, rows: int) -> Tensor:
    """A paged cache as uint8 [blocks, rows a block, record]; blocks may lie apart, records do not."""
    data = cache if cache.dtype == torch.uint8 else cache.view(torch.uint8)
    if data.stride(0) < rows * RECORD:
        text = f"a block of {rows} records of {RECORD} bytes does not fit a stride of {data.stride(0)}"
        raise ValueError(f"KV cache {list(data.shape)}: {text}")
    return data.as_strided((data.shape[0], rows, RECORD), (data.stride(0), RECORD, 1))
