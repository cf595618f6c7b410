"""vLLM's real classes on a machine without a GPU: what a worker does before and after it builds a model.

Runs inside the process of a scenario (`scenario.py` starts it), whose environment names arch and fakes.
Nothing of vLLM is replaced but what asks the GPU or AITER: amdsmi, a few names of torch.cuda, one C++
operator, and `torch.zeros` where expert tensors are made (24 GB would not hold a rank's experts if their
pages were committed).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from lazy import lazy_zeros

from flymono.runtime.plan.support import model_of
from flymono.specs import load

UNITS = {"gfx942": 304, "gfx950": 256}
PORT = 29560


def config_json(specs: Any) -> dict[str, Any]:
    """The model's published config, out of its spec."""
    m = model_of(specs, "dsv41")
    a, t, i, r, e, d = m.attention, m.topology, m.indexer, m.rope, m.moe, m.draft
    text = {
        "vocab_size": 1024, "hidden_size": m.hidden, "num_hidden_layers": t.layers,
        "num_attention_heads": a.heads, "num_key_value_heads": a.kv_heads, "head_dim": a.head_dim,
        "q_lora_rank": a.q_lora_rank, "o_lora_rank": a.o_lora_rank, "o_groups": a.o_groups,
        "qk_rope_head_dim": a.rope_dim, "sliding_window": a.window,
        "compress_ratios": list(t.compress_ratios), "kv_source_layer_ids": list(t.kv_source_layers),
        "index_source_layer_ids": list(t.index_source_layers),
        "candidate_source_layer_id": t.candidate_source_layer, "candidate_topk_blocks": i.candidate_blocks,
        "candidate_block_size": i.candidate_block_size, "index_topk": i.topk, "index_n_heads": i.heads,
        "index_head_dim": i.head_dim, "n_routed_experts": e.experts,
        "num_experts_per_tok": e.experts_per_token,
        "n_shared_experts": e.shared_experts, "moe_intermediate_size": e.intermediate,
        "norm_topk_prob": e.norm_topk_prob, "scoring_func": e.scoring, "topk_method": e.topk_method,
        "routed_scaling_factor": e.routed_scaling, "swiglu_limit": e.swiglu_limit, "hidden_act": e.activation,
        "dspark_n_routed_experts": d.experts, "dspark_num_experts_per_tok": d.experts_per_token,
        "n_mtp_layers": t.draft_layers, "dspark_target_layer_ids": list(d.target_layers),
        "dspark_markov_rank": d.markov_rank, "dspark_block_size": d.block_size, "hc_mult": m.hyper.streams,
        "hc_sinkhorn_iters": m.hyper.sinkhorn_iters, "hc_eps": m.hyper.eps, "rms_norm_eps": m.rms_eps,
        "max_position_embeddings": r.max_positions, "rope_theta": float(r.theta),
        "compress_rope_theta": float(r.compress_theta),
        "rope_scaling": {
            "rope_type": r.scaling, "factor": r.factor, "beta_fast": r.beta_fast, "beta_slow": r.beta_slow,
            "original_max_position_embeddings": r.original_max_positions,
        },
        "tie_word_embeddings": False, "num_nextn_predict_layers": t.draft_layers, "bos_token_id": 0,
        "eos_token_id": 1,
    }  # fmt: skip
    q = m.quantisation
    quantisation = {
        "quant_method": q.method, "fmt": "e4m3", "scale_fmt": q.scale_format, "activation_scheme": "dynamic",
        "weight_block_size": list(q.weight_block), "expert_dtype": q.expert_dtype,
    }  # fmt: skip
    return {
        "architectures": [m.architecture], "model_type": m.model_type, "torch_dtype": "bfloat16",
        "quantization_config": quantisation, "text_config": text,
    }  # fmt: skip


class Echo:
    """A TP group of which every rank says what this one says."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def all_gather(self, value: object, seconds: float) -> list[Any]:
        return [value] * self.size


class Supplies:
    """Resources of the plugin: a group, a GPU and kernels that a scenario gives."""

    def __init__(self, ranks: Any, gpu: Any = None, kernels: Any = None) -> None:
        self._ranks, self._gpu, self._kernels = ranks, gpu, kernels or AnyBuild()

    def ranks(self) -> Any:
        return self._ranks

    def gpu(self, specs: Any) -> Any:
        assert self._gpu is not None, "this scenario launches nothing"
        return self._gpu

    def kernels(self, specs: Any, arch: str, tp: int) -> Any:
        self._kernels.arch = arch
        return self._kernels


class AnyBuild:
    """Kernels for whatever the plan admits; code from `code` if there is one."""

    builds, arch, id = None, "", "test"

    def __init__(self, code: Any = None) -> None:
        self._code = code

    def code(self, plan: Any) -> tuple[bytes, str]:
        return self._code.code(plan)


COMPILER = (
    "flydsl", "ziglang", "flymono.mono", "flymono.gen.api", "flymono.gen.build",
    "flymono.gen.compiler", "flymono.gen.linker", "flymono.gen.render", "flymono.gen.worker",
)  # fmt: skip


class NoCompiler:
    """An import system that has none of what makes code objects."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if any(name == b or name.startswith(f"{b}.") for b in COMPILER):
            raise ImportError(f"{name}: this server has no compiler")


def take_compiler_away(cache: Path) -> None:
    """From here on nothing can compile: no such modules (loaded ones are forgotten), programs or cache.
    (jinja2 stays: vLLM itself has chat templates.)"""
    for name in [n for n in sys.modules if any(n == b or n.startswith(f"{b}.") for b in COMPILER)]:
        del sys.modules[name]
    sys.meta_path.insert(0, NoCompiler())
    os.environ |= {"PATH": "", "ROCM_PATH": "/nowhere", "FLYMONO_CACHE": str(cache)}


class FromBundle(Supplies):
    """A server whose kernels are those of the bundle that FLYMONO_BUNDLE names."""

    def kernels(self, specs: Any, arch: str, tp: int) -> Any:
        from flymono.runtime.vllm.resources import VllmResources

        return VllmResources().kernels(specs, arch, tp)


class Nothing:
    """A stream or an event on which nothing happens."""

    def __init__(self, *_: object, **__: object) -> None:
        pass


@contextmanager
def fake_cuda(arch: str) -> Any:
    """The few names of torch.cuda that vLLM's host code asks."""
    found = SimpleNamespace(
        gcnArchName=f"{arch}:sramecc+:xnack-", multi_processor_count=UNITS.get(arch, 304), name="none",
        total_memory=256 << 30, major=9, minor=4,
    )  # fmt: skip
    names = {
        "get_device_properties": lambda *_: found,
        "current_device": lambda: 0,
        "is_current_stream_capturing": lambda: False,
        "Event": Nothing,
        "Stream": Nothing,
    }
    with ExitStack() as stack:
        for name, value in names.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value))
        yield


def lazy_experts() -> Any:
    """Expert tensors of zeros that take no memory before somebody writes them."""
    import vllm.model_executor.layers.quantization.mxfp4 as mxfp4

    def zeros(*shape: Any, dtype: Any = None, device: Any = None, **how: Any) -> torch.Tensor:
        size = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if torch.empty(0, device=device).is_meta:
            return torch.empty(size, dtype=dtype, device="meta")
        return lazy_zeros(tuple(size), dtype)

    own = SimpleNamespace(**{n: getattr(torch, n) for n in dir(torch) if not n.startswith("__")})
    own.zeros = zeros
    return mock.patch.object(mxfp4, "torch", own)


@contextmanager
def on_cpu_alone() -> Any:
    """Groups without a communicator of GPUs, which would load NCCL and AITER's all-reduce."""
    from vllm.distributed import parallel_state

    make = parallel_state.init_model_parallel_group

    def without(*given: Any, **how: Any) -> Any:
        return make(*given, **(how | {"use_device_communicator": False}))

    with mock.patch.object(parallel_state, "init_model_parallel_group", without):
        yield


class Worker:
    """A worker's process: configuration, groups, and layers on demand."""

    def __init__(
        self, arch: str, tp: int, rank: int = 0, drafts: int = 5, world: str | None = None, **engine: Any
    ) -> None:
        """`world`: a file that the processes of the group meet at; None: this process stands for it."""
        self.arch, self.tp, self.rank, self.specs, self._world = arch, tp, rank, load(), world
        self._stack = ExitStack()
        self._stack.enter_context(fake_cuda(arch))
        self.config = self._config(drafts, engine)
        self.buffer: torch.Tensor | None = None

    def _config(self, drafts: int, engine: dict[str, Any]) -> Any:
        from vllm.engine.arg_utils import EngineArgs

        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "config.json").write_text(json.dumps(config_json(self.specs)))
        speculation = {
            "method": "dspark", "num_speculative_tokens": drafts, "draft_sample_method": "probabilistic",
            "rejection_sample_method": "block", "enable_adaptive_verification": False,
        }  # fmt: skip
        given = {
            "model": str(folder), "monokernel": True, "max_model_len": 4096, "skip_tokenizer_init": True,
            "load_format": "dummy", "max_num_seqs": 8, "max_num_batched_tokens": 4096,
            "kv_cache_dtype": "fp8",
            "speculative_config": speculation if drafts else None,
            "moe_backend": "aiter" if needs_aiter(self.arch) else "auto",
        }  # fmt: skip
        return EngineArgs(**(given | engine)).create_engine_config()

    def __enter__(self) -> Worker:
        from vllm.config import set_current_vllm_config
        from vllm.distributed import get_tp_group, init_distributed_environment, initialize_model_parallel

        clamp = torch.library.Library("_C", "FRAGMENT")
        clamp.define("silu_and_mul_with_clamp(Tensor(a!) out, Tensor x, float limit) -> ()")
        self._clamp = clamp
        self._stack.enter_context(set_current_vllm_config(self.config))
        if self._world is None:
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(PORT + os.getpid() % 2000))
            init_distributed_environment(1, 0, "env://", 0, "gloo")
            initialize_model_parallel(1, backend="gloo")
            group = get_tp_group()
            group.world_size, group.rank_in_group = self.tp, self.rank
        else:
            init_distributed_environment(self.tp, self.rank, f"file://{self._world}", self.rank, "gloo")
            with on_cpu_alone():
                initialize_model_parallel(self.tp, backend="gloo")
        torch.set_default_dtype(torch.bfloat16)
        self._stack.enter_context(lazy_experts())
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def layer(self, number: int, device: str = "meta", **how: Any) -> Any:
        """A real decoder layer."""
        import vllm.models.deepseek_v41.amd.model as home

        if self.buffer is None or self.buffer.device.type != device:
            topk = self.config.model_config.hf_config.index_topk
            self.buffer = torch.full((4096, topk), -1, dtype=torch.int32, device=device)
        with torch.device(device):
            return home.DeepseekV4DecoderLayer(
                self.config, prefix=f"model.layers.{number}", topk_indices_buffer=self.buffer, **how
            )

    def draft_model(self, device: str = "meta") -> Any:
        """The real draft model."""
        from vllm.models.deepseek_v41.amd.dspark import DSparkDeepseekV4ForCausalLM

        with torch.device(device):
            return DSparkDeepseekV4ForCausalLM(vllm_config=self.config, prefix="draft")


def needs_aiter(arch: str) -> bool:
    """Whether kernels of `arch` read the tensors of AITER's backend."""
    from flymono.runtime.plan.layers.host import needs_of

    known = load().arch
    return arch in known and needs_of(known[arch]).moe_backend is not None


def serve(supplies: Supplies) -> None:
    """What vLLM does first in a process: its plugins, of which ours is one; then our resources."""
    from vllm.plugins import load_general_plugins

    from flymono.runtime.vllm import resources

    load_general_plugins()
    resources.use(supplies)


def answer(**values: Any) -> None:
    """The scenario's answer, the last line of its output."""
    sys.stdout.flush()
    print("ANSWER " + json.dumps(values, default=str), flush=True)
