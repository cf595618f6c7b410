"""vLLM's own `layer.forward` under its own metadata: rank 0 of a server whose kernels run on the emulator.

Ranks above 0 are runners of the project on the same node, a thread each. The step, the weights and what comes
out are those of `flymono run layer`, which the reference has judged.
"""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from checkpoint import fill, process
from harness import AnyBuild, Supplies, Worker, answer, serve

from flymono.runtime.plan.layers.host import needs_of
from flymono.specs import load

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "runner"))
ARCH, TP, ROWS, LAYER, *OPTIONS = sys.argv[1:]
TP, ROWS, LAYER = int(TP), int(ROWS), int(LAYER)
INDEXED = needs_of(load().arch[ARCH]).indexer == "mxfp4"
BUGS = ("swapped", "stride", "stale")
"""Bugs of a host: two inputs taken for each other, a cache's blocks too far apart, a list of another step."""


class Front:
    """Rank 0's end of the group; what the plan votes is what the others would vote."""

    def __init__(self, group: Any) -> None:
        self._group, self.rank, self.size = group, group.rank, group.size

    def all_gather(self, value: object, seconds: float) -> list[Any]:
        from flymono.runtime.plan.layers import Vote

        return [value] * self.size if isinstance(value, Vote) else self._group.all_gather(value, seconds)


def main() -> None:
    from serving import ground, specs

    from flymono.runtime.devices.emulated import EmulatedNode
    from flymono.runtime.plan.support import model_of
    from flymono.runtime.run.modules import Generated
    from flymono.runtime.runner import LocalRanks

    at = ground(ARCH, TP, ROWS, LAYER)
    node, group = EmulatedNode(specs(), ARCH, TP), LocalRanks.make(TP)
    code = Generated(specs())
    kernels = AnyBuild(code)
    kernels.builds = builds_of(model_of(specs(), "dsv41"), specs().arch[ARCH])
    serve(Supplies(Front(group[0]), node.gpus[0], kernels))
    indexer = {"attention_config": {"indexer_kv_dtype": "mxfp4"}} if INDEXED else {}
    with Worker(ARCH, TP, **indexer) as worker, torch.no_grad():
        layer = made(worker, at)
        results = {name: step(worker, layer, at, node, group, name) for name in ("", *OPTIONS)}
    answer(experts=list(at.experts), **results)


def builds_of(model: Any, arch: Any) -> frozenset[str]:
    """Ids of every build of a step of ROWS rows."""
    from flymono.runtime.plan import BuildKey
    from flymono.runtime.plan.layer import layer_keys

    numbers = range(len(model.topology.compress_ratios))
    whole = [key for n in numbers for key in layer_keys(model, arch, TP, ROWS, n)]
    ffn = [BuildKey("ffn", arch.name, TP, ROWS, model=model.prefix, draft=d) for d in (False, True)]
    return frozenset(key.id for key in (*whole, *ffn))


def made(worker: Worker, at: Any) -> Any:
    """The layer with its weights; its sources on meta, since it only asks them for caches."""
    from vllm.model_executor.layers import rotary_embedding

    from flymono.runtime.vllm.server import running

    top = at.layer.case.model.topology
    sources = {max((n for n in group if n <= LAYER), default=LAYER) for group in
               (top.kv_source_layers, top.index_source_layers)} - {LAYER}  # fmt: skip
    others = [worker.layer(n) for n in sorted(sources)] if at.layer.case.k1.ratio else []
    rotary_embedding._ROPE_DICT.clear()  # the tables of layers on meta
    layer = worker.layer(LAYER, "cpu")
    for other in others:
        running().layers.pop(other.attn.layer_id)
        other.attn.kv_cache = None
    layer.others = SimpleNamespace(all=others)
    fill(layer, at.layer.weights, TP, 0, at.experts)
    process(layer)
    cos_sin = at.layer.case.k1.cos_sin
    layer.rope_differs = float((layer.attn.rotary_emb.cos_sin_cache[: len(cos_sin)] - cos_sin).abs().max())
    layer.attn.rotary_emb.cos_sin_cache = cos_sin.clone()
    return layer


def step(worker: Any, layer: Any, at: Any, node: Any, group: Any, bug: str) -> dict[str, Any]:
    """One step on all ranks; what differs from `run layer`, by rank."""
    from serving import Rank, bits, on_ranks, same_bits, specs, wanted

    from flymono.runtime.devices.gpu import GpuError
    from flymono.runtime.plan.layers import Path as LayerPath
    from flymono.runtime.run.modules import Generated
    from flymono.runtime.runner import Place, Runner, Seam
    from flymono.runtime.vllm.server import running

    server = running()
    assert layer.mono.path is LayerPath.WHOLE
    ranks = [Rank.of(at, r) for r in range(TP)]
    others: dict[int, Any] = getattr(node, "runners", {})

    def work(rank: int) -> Any:
        if rank == 0:
            return forward(worker, layer, at, ranks[0], bug)
        if rank not in others:
            widths = (ROWS,)
            others[rank] = Runner.create(
                node.gpus[rank], specs(), Place(ARCH, TP), group[rank], Generated(specs()), layer.mono.draft,
                widths, [LAYER], [], seconds=60,
            )  # fmt: skip
        return ranks[rank].run(others[rank])

    try:
        outs = on_ranks(TP, work)
        node.runners = others
        on_ranks(TP, lambda r: node.gpus[r].synchronise())
    except GpuError as error:
        return {"raised": str(error)}
    found = [same_bits(bits(Seam(*out)), wanted(at, r)) for r, out in enumerate(outs)]
    server.after_step()
    counts = server.counts[layer.mono.draft].data()
    return {
        "differs": found,
        "rope": layer.rope_differs,
        "counts": counts,
        "path": str(layer.mono.path),
        "selection": layer.selection,
    }


def forward(worker: Any, layer: Any, at: Any, own: Any, bug: str) -> Any:
    """vLLM's forward of the layer under its forward context."""
    from vllm.forward_context import set_forward_context

    from flymono.runtime.vllm import selection

    k, given, attn = at.layer.case.k1, own.given, layer.attn
    attn.swa_cache_layer.kv_cache = own.step.swa
    if own.step.comp is not None:
        attn.kv_cache = own.step.comp
        for other in layer.others.all:
            other.attn.kv_cache = own.step.comp
        worker.buffer[:ROWS] = own.step.topk
        attn.topk_indices_buffer = worker.buffer
    metadata, seen = metadata_of(layer, k, bug), list[Any]()
    selection.OPERATIONS = operations(own, k, seen)
    if bug == "stride":
        swa = own.step.swa
        attn.swa_cache_layer.kv_cache = swa.as_strided(
            (1, *swa.shape[1:]), (swa.stride(0) + 584, *swa.stride()[1:])
        )
    x, residual, post, comb, pre = given
    if bug == "swapped":
        post, pre = pre.clone().unsqueeze(-1), post.clone().squeeze(-1)
    if x is None:
        x = k.res_in[:, 0].contiguous() if LAYER < 40 else residual
        residual = post = comb = pre = None
    with torch.no_grad(), set_forward_context(metadata, worker.config, num_tokens=ROWS):
        made = layer(x, k.pos, None, pre, post, comb, residual)
    layer.selection = seen
    return made


def operations(own: Any, k: Any, seen: list[Any]) -> Any:
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
        own.select(given, qr)  # the compressed records, then the step's lists
        attn.topk_indices_buffer[:ROWS] = own.step.topk

    return Operations(kv_score, compress, produce_keys, query, index)


def metadata_of(layer: Any, k: Any, bug: str) -> dict[str, Any]:
    """vLLM's own metadata objects."""
    from vllm.models.deepseek_v41.amd.rocm import DeepseekV41ROCMAiterSparseSWAMetadata
    from vllm.models.deepseek_v41.sparse_mla import DeepseekV4FlashMLAMetadata

    lens = k.swa_lens if bug != "stale" else torch.ones_like(k.swa_lens)
    window = DeepseekV41ROCMAiterSparseSWAMetadata(
        block_table=torch.zeros(1, 8, dtype=torch.int32), slot_mapping=k.slot, block_size=k.swa_block,
        num_decodes=1, num_decode_tokens=ROWS, decode_swa_width=k.window,
        decode_swa_indices=k.swa_idx.view(ROWS, 1, -1), decode_swa_lens=lens, token_to_req_indices=k.t2r,
    )  # fmt: skip
    found: dict[str, Any] = {layer.attn.swa_cache_layer.prefix: window}
    if k.ratio:
        none = torch.zeros(ROWS, dtype=torch.int64)
        found[layer.attn.compressed_cache_prefix] = DeepseekV4FlashMLAMetadata(
            1, ROWS, ROWS, ROWS, None, none, k.comp_bt, None, k.comp_block * k.ratio, k.topk.shape[1]
        )
    return found


main()
