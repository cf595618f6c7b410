"""What vLLM's configuration, its decoder layer and its GPU say, as the plan asks for it.

Invariant: everything is read from live objects of vLLM and nothing is decided here; the plan has the reasons.
"""

from __future__ import annotations

from typing import Any

from ..plan.deployment import Deployed
from ..plan.layers import Host, HostLayer
from ..plan.layers.host import Path
from ..plan.support import Routing

MXFP4 = "mxfp4"
FP8 = "fp8"


def host_of(
    layer: Any, config: Any, *, tp: int, builds: frozenset[str] | None = None, bundle_arch: str | None = None
) -> Host:
    """The server that is building `layer` (of any path) under vLLM's `config`."""
    parallel, speculation = config.parallel_config, config.speculative_config
    arch, units = gpu_of()
    return Host(
        arch=arch,
        tp=tp,
        compute_units=units,
        kv_dtype=kv_dtype_of(layer.attn),
        indexer=indexer_of(config),
        moe_backend=_backend(layer),
        fused_seam=bool(layer.fuse_seam_norm),
        expert_parallel=bool(parallel.enable_expert_parallel or parallel.enable_eplb),
        dp=parallel.data_parallel_size,
        pp=parallel.pipeline_parallel_size,
        cp=parallel.decode_context_parallel_size * parallel.prefill_context_parallel_size,
        drafts=speculation.num_speculative_tokens if speculation is not None else 0,
        capture=tuple(config.compilation_config.cudagraph_capture_sizes or ()),
        builds=builds,
        bundle_arch=bundle_arch,
        features=features_of(config),
    )


def gpu_of() -> tuple[str, int]:
    """The current GPU's arch without its feature flags, and the compute units that it shows."""
    import torch

    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    return str(found.gcnArchName).split(":")[0].lower(), int(found.multi_processor_count)


def features_of(config: Any) -> tuple[str, ...]:
    """Names (`plan.layers.FEATURES`) of what is on."""
    import vllm.envs as envs

    cache, parallel = config.cache_config, config.parallel_config
    on = {
        "dbo": parallel.enable_dbo,
        "lora": config.lora_config is not None,
        "sleep-mode": config.model_config.enable_sleep_mode,
        "kv-transfer": config.kv_transfer_config is not None,
        "kv-offload": bool(cache.kv_offloading_size),
        "moe-a4w4": envs.VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4,
    }
    return tuple(sorted(name for name, value in on.items() if value))


def indexer_of(config: Any) -> str:
    """The format of the indexer's cache; vLLM's default for this model is FP8."""
    said = str(config.attention_config.resolve_indexer_kv_dtype(FP8))
    return MXFP4 if said == MXFP4 else FP8


def kv_dtype_of(attn: Any) -> str:
    """The record format of the KV cache, by vLLM's name."""
    return "mxfp8" if attn.kv_mxfp8 else str(attn.kv_cache_dtype)


def layer_of(layer: Any, made: Path | None = None) -> HostLayer:
    """What a decoder layer says of itself."""
    attn, indexer = layer.attn, layer.attn.indexer
    return HostLayer(
        number=int(attn.layer_id),
        found=Deployed(
            routing=_routing(layer.ffn),
            kv_dtype=kv_dtype_of(attn),
            ratio=int(attn.compress_ratio),
            index=indexer is not None,
        ),
        indexer=_indexer(indexer),
        compressor=attn.compressor is not None,
        fused_seam=bool(layer.fuse_seam_norm),
        sequence_parallel=bool(layer.use_sequence_parallel),
        made=made,
    )


def _indexer(indexer: Any) -> str | None:
    """The kind of an indexer that the selection can drive, else the name of its class."""
    if indexer is None:
        return None
    from vllm.models.deepseek_v41.amd.rocm import DeepseekV41RocmMxfp4Indexer
    from vllm.models.deepseek_v41.attention import DeepseekV4Indexer

    if isinstance(indexer, DeepseekV41RocmMxfp4Indexer):
        return MXFP4
    return FP8 if isinstance(indexer, DeepseekV4Indexer) else type(indexer).__name__


def _routing(ffn: Any) -> Routing:
    return Routing(
        experts=int(ffn.n_routed_experts),
        per_token=int(ffn.n_activated_experts),
        scoring=str(ffn.scoring_func),
        renormalise=bool(ffn.renormalize),
        scaling=float(ffn.routed_scaling_factor),
        limit=float(ffn.swiglu_limit or 0.0),
        shared_experts=int(ffn.shared_experts is not None),
        by_hash=ffn.gate.tid2eid is not None,
    )


def _backend(layer: Any) -> str | None:
    """The backend of the routed experts, None where the layer has none."""
    experts = getattr(getattr(layer.ffn, "experts", None), "routed_experts", None)
    backend = getattr(getattr(experts, "quant_method", None), "mxfp4_backend", None)
    return None if backend is None else str(backend.name)
