"""Real decoder layers as a worker has them after loading, and vLLM's own forward of them in one model step.

Weights, the step and what comes out are those of `flymono run layer`. vLLM's compressor and indexer run on
GPUs only: here the five operations of a selection are bound to the reference, which writes what they write.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from checkpoint import fill, process

BUGS = ("swapped", "stride", "stale")
"""Bugs of a host: two inputs taken for each other, a cache's blocks too far apart, a list of another step."""


class KnownEngram(torch.nn.Module):
    """Stands for an Engram layer's lookup: notes what it is given, and answers with the case's residual."""

    layer_hash_index = 1

    def __init__(self, settled: torch.Tensor) -> None:
        super().__init__()
        self._settled, self.given = settled, list[Any]()

    def forward(self, residual: torch.Tensor, hashes: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        self.given = [residual.clone(), hashes.clone(), mask]
        return self._settled.clone()


def builds_of(specs: Any, arch: str, tp: int, rows: int) -> frozenset[str]:
    """Ids of every build of a step of `rows` rows."""
    from flymono.runtime.plan import BuildKey
    from flymono.runtime.plan.layer import layer_keys
    from flymono.runtime.plan.support import model_of

    model, own = model_of(specs, "dsv41"), specs.arch[arch]
    numbers = range(len(model.topology.compress_ratios))
    whole = [key for n in numbers for key in layer_keys(model, own, tp, rows, n)]
    ffn = [BuildKey("ffn", arch, tp, rows, model=model.prefix, draft=d) for d in (False, True)]
    return frozenset(key.id for key in (*whole, *ffn))


def made(worker: Any, given: Sequence[tuple[Any, Sequence[int]]]) -> list[Any]:
    """Layers with their weights, from (`Layer` of the project, experts of the step) each; sources that are
    not among them on meta, since layers only ask those for caches."""
    from vllm.model_executor.layers import rotary_embedding

    from flymono.runtime.vllm.server import running

    others = [worker.layer(n) for n in _sources([one for one, _ in given])]
    rotary_embedding._ROPE_DICT.clear()  # the tables of layers on meta
    layers = [worker.layer(one.case.layer, "cpu") for one, _ in given]
    for other in others:
        running().layers.pop(other.attn.layer_id)
        other.attn.kv_cache = None
    for layer, (one, experts) in zip(layers, given, strict=True):
        layer.others = SimpleNamespace(all=others)
        fill(layer, one.weights, worker.tp, worker.rank, experts)
        process(layer)
        cos_sin = one.case.k1.cos_sin
        own = layer.attn.rotary_emb.cos_sin_cache[: len(cos_sin)]
        layer.rope_differs = float((own - cos_sin).abs().max())
        layer.attn.rotary_emb.cos_sin_cache = cos_sin.clone()
    return layers


def _sources(layers: Sequence[Any]) -> list[int]:
    """Layers whose caches or lists `layers` read and that are not among them."""
    own, found = {one.case.layer for one in layers}, set[int]()
    for one in (one for one in layers if one.case.k1.ratio):
        top = one.case.model.topology
        for group in (top.kv_source_layers, top.index_source_layers):
            found.add(max(n for n in group if n <= one.case.layer))
    return sorted(found - own)


def forward(worker: Any, layers: Sequence[Any], ranks: Sequence[Any], bug: str = "") -> list[Any]:
    """vLLM's forward of the layers, one after the other, in one forward context; each one's outputs.

    `ranks`: what this rank holds for each layer (`serving.Rank`); the first one's `given` is the input.
    """
    from vllm.forward_context import set_forward_context

    from flymono.runtime.vllm import selection

    first, k = ranks[0], ranks[0].case.k1
    seen, metadata, rows = list[Any](), dict[str, Any](), len(ranks[0].case.k1.pos)
    for layer, own in zip(layers, ranks, strict=True):
        metadata |= metadata_of(layer, own.case.k1, bug)
        give_caches(worker, layer, own, bug)
    selection.OPERATIONS = operations(
        {a.attn.layer_id: own for a, own in zip(layers, ranks, strict=True)}, seen
    )
    x, residual, post, comb, pre, more = entry(layers[0], first, bug)
    outs = list[Any]()
    with torch.no_grad(), set_forward_context(metadata, worker.config, num_tokens=rows):
        for layer in layers:
            made = layer(x, k.pos, None, pre, post, comb, residual, *more)
            x, residual, post, comb, pre = made
            more = ()
            outs.append(made)
    layers[0].selection = seen
    return outs


def give_caches(worker: Any, layer: Any, own: Any, bug: str) -> None:
    """The layer's window cache, and the compressed cache where its owner keeps it."""
    attn, swa = layer.attn, own.step.swa
    if bug == "stride":
        swa = swa.as_strided((1, *swa.shape[1:]), (swa.stride(0) + 584, *swa.stride()[1:]))
    attn.swa_cache_layer.kv_cache = swa
    if own.step.comp is not None:
        for one in (layer, *layer.others.all):
            one.attn.kv_cache = own.step.comp
        worker.buffer[: len(own.step.topk)] = own.step.topk
        attn.topk_indices_buffer = worker.buffer


def entry(layer: Any, own: Any, bug: str) -> tuple[Any, ...]:
    """x, residual, post, comb, pre as the layer before (or the embedding) leaves them; hashes and mask."""
    x, residual, post, comb, pre = own.given
    if bug == "swapped":
        post, pre = pre.clone().unsqueeze(-1), post.clone().squeeze(-1)
    if x is not None:
        return x, residual, post, comb, pre, ()
    top, number, rows = own.case.model.topology, layer.attn.layer_id, len(residual)
    if number in top.engram_layers:
        return before_engram(layer, own, rows)
    draft = number >= top.layers
    return residual if draft else residual[:, 0].contiguous(), None, None, None, None, ()


def before_engram(layer: Any, own: Any, rows: int) -> tuple[Any, ...]:
    """Drawn outputs of a layer before, of which `mhc_post` and the lookup make what K1 reads."""
    draw = torch.Generator().manual_seed(5)
    _, settled, _, _, pre = own.given
    streams, hidden = settled.shape[1:]
    x, residual = (
        torch.randn(shape, generator=draw).bfloat16() for shape in ((rows, hidden), (rows, streams, hidden))
    )
    post = torch.rand(rows, streams, 1, generator=draw)
    comb = torch.rand(rows, streams, streams, generator=draw)
    layer.engram, layer.mhc_post.forward = KnownEngram(settled), layer.mhc_post.forward_native
    layer.owed = x, residual, post, comb
    hashes = torch.arange(rows * 6).view(rows, 2, 3)
    return x, residual, post, comb, pre, (hashes, torch.ones(rows, dtype=torch.bool))


def operations(owns: dict[int, Any], seen: list[Any]) -> Any:
    """The five operations of a selection, by the reference: they write what vLLM's kernels would write."""
    from flymono.runtime.vllm.selection import Operations

    def note(name: str, *tensors: Any) -> None:
        seen.append([name, *([list(t.shape), str(t.dtype)] for t in tensors)])

    def kv_score(attn: Any, normed: Any) -> Any:
        note("kv_score", normed)
        return normed.float() @ attn.compressor.fused_wkv_wgate.weight.float().T

    def compress(attn: Any, score: Any, positions: Any) -> Any:
        note("compress", score, positions)
        return score[:, : score.shape[1] // 2].bfloat16()

    def produce_keys(attn: Any, latent: Any, positions: Any) -> None:
        note("produce_keys", latent, positions)

    def query(attn: Any, normed: Any, qr: Any, positions: Any) -> Any:
        note("query", normed, qr, positions)
        return (normed.clone(), qr), None

    def index(attn: Any, normed: Any, query: Any) -> None:
        (given, qr), _ = query
        note("index", given, qr)
        own = owns[attn.layer_id]
        own.select(given, qr)  # the compressed records, then the step's lists
        attn.topk_indices_buffer[: len(given)] = own.step.topk

    return Operations(kv_score, compress, produce_keys, query, index)


def metadata_of(layer: Any, k: Any, bug: str) -> dict[str, Any]:
    """vLLM's own metadata objects."""
    from vllm.models.deepseek_v41.amd.rocm import DeepseekV41ROCMAiterSparseSWAMetadata
    from vllm.models.deepseek_v41.sparse_mla import DeepseekV4FlashMLAMetadata

    rows = len(k.pos)
    lens = k.swa_lens if bug != "stale" else torch.ones_like(k.swa_lens)
    window = DeepseekV41ROCMAiterSparseSWAMetadata(
        block_table=torch.zeros(1, 8, dtype=torch.int32), slot_mapping=k.slot, block_size=k.swa_block,
        num_decodes=1, num_decode_tokens=rows, decode_swa_width=k.window,
        decode_swa_indices=k.swa_idx.view(rows, 1, -1), decode_swa_lens=lens, token_to_req_indices=k.t2r,
    )  # fmt: skip
    found: dict[str, Any] = {layer.attn.swa_cache_layer.prefix: window}
    if k.ratio:
        none = torch.zeros(rows, dtype=torch.int64)
        found[layer.attn.compressed_cache_prefix] = DeepseekV4FlashMLAMetadata(
            1, rows, rows, rows, None, none, k.comp_bt, None, k.comp_block * k.ratio, k.topk.shape[1]
        )
    return found
