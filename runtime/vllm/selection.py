"""An index layer's selection between K1 and K2: vLLM's compressor and indexer, as five small operations.

Invariants
 - Order: score, compress and insert, produce keys, query, index. The compressed record of a kv source is
   written before K2 reads it, and its indexer keys before the indexer reads them.
 - The result is in the attention's `topk_indices_buffer`, which K2 (or the key list) reads.
 - Each operation is a field of `Operations`, so that a machine without vLLM's GPU kernels can bind others.
Facts: runtime.md 2.4; vLLM's shortcut for short contexts is not taken on this path.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Query = tuple[Any, Any]
"""What the indexer scores with: its query (or query and scale), and the heads' weights."""


def _kv_score(attn: Any, normed: Tensor) -> Tensor:
    """float32 [S, 2 D]: the compressor's projections of the normed input."""
    weight = attn.compressor.fused_wkv_wgate.weight
    return torch.mm(normed, weight.T, out_dtype=torch.float32)


def _compress(attn: Any, score: Tensor, positions: Tensor) -> Tensor:
    """The step's latents, after their records were written to the compressed cache."""
    latent: Tensor = attn.compressor(score, positions)
    attn.compressor.insert_cache(latent, positions, attn.rotary_emb)
    return latent


def _produce_keys(attn: Any, latent: Tensor, positions: Tensor) -> None:
    """Write the indexer's keys of the step's latents."""
    attn.indexer._produce_k(latent, positions, attn.indexer_rotary_emb)


def _query(attn: Any, normed: Tensor, qr: Tensor, positions: Tensor) -> Query:
    """The indexer's query from K1's bf16 qr, and its heads' weights from the normed input."""
    indexer = attn.indexer
    weights, _ = indexer.weights_proj(normed)
    q, scale, weights = indexer.forward_q(qr, None, weights, positions, attn.indexer_rotary_emb)
    return (q if scale is None else (q, scale)), weights


def _index(attn: Any, normed: Tensor, query: Query) -> None:
    """Fill the rows of `topk_indices_buffer`."""
    q, weights = query
    attn.indexer.indexer_op(normed, q, None, weights)


@dataclass
class Operations:
    """The five operations; vLLM's by default."""

    kv_score: Callable[[Any, Tensor], Tensor] = _kv_score
    compress: Callable[[Any, Tensor, Tensor], Tensor] = _compress
    produce_keys: Callable[[Any, Tensor, Tensor], None] = _produce_keys
    query: Callable[[Any, Tensor, Tensor, Tensor], Query] = _query
    index: Callable[[Any, Tensor, Query], None] = _index


OPERATIONS = Operations()


def select(attn: Any, positions: Tensor, normed: Tensor, qr: Tensor) -> None:
    """The selection of one step: bf16 [S, D] normed input and [S, q_rank] q-LoRA rows in, lists out.

    vLLM's attention packs a source's lists once and drops the pack only where the source itself runs that
    attention (runtime.md 2.5): the pack of an earlier step is dropped here too.
    """
    do = OPERATIONS
    attn._topk_ragged_cache = {}
    if attn.compressor is not None:
        latent = do.compress(attn, do.kv_score(attn, normed), positions)
        do.produce_keys(attn, latent, positions)
    do.index(attn, normed, do.query(attn, normed, qr, positions))
