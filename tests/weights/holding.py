"""A host that holds a layer as vLLM 0.33.0 does after loading, made from the published form.

`dequantised` hosts multiply linears out to bf16 and repeat each code over its rows; others keep bytes and
block codes. Routed experts are plain with zero padding, or converted: right dtypes and shapes, any bytes.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor

from flymono.reference.layer_sizes import LayerSizes
from flymono.reference.layer_weights import WholeLayer
from flymono.runtime.weights.held_experts import PATHS
from flymono.runtime.weights.held_names import LINEARS
from flymono.specs.schema import ModelSpec

E4M3, E8M0, FP4 = torch.float8_e4m3fn, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2
Held = dict[str, Tensor]


def multiplied_out(data: Tensor, codes: Tensor) -> Tensor:
    """bf16 [N, K]: every byte times 2^(code - 127), by torch's own conversions."""
    scale = torch.exp2(codes.to(torch.float32) - 127).repeat_interleave(32, 0).repeat_interleave(32, 1)
    return (data.view(E4M3).to(torch.float32) * scale).to(torch.bfloat16)


def holder(whole: WholeLayer, tp: int, rank: int, *, dequantised: bool) -> Held:
    """All tensors of a rank but the routed experts."""
    k1, back, ffn = whole.k1(tp, rank), whole.back(tp, rank), whole.ffn(tp, rank)
    held: Held = {
        "hc_attn_fn": k1.hc_fn, "hc_attn_scale": k1.hc_scale, "hc_attn_base": k1.hc_base,
        "attn_norm.weight": k1.attn_w, "attn.q_norm.weight": k1.qn_w, "attn.kv_norm.weight": k1.kvn_w,
        "attn.rotary_emb.cos_sin_cache": torch.arange(64 * 9, dtype=torch.float32).reshape(9, 64),
        "attn.attn_sink": torch.cat([back.sink, torch.full((3,), -torch.inf)]), "hc_ffn_fn": ffn.hc_fn,
        "hc_ffn_scale": ffn.hc_scale, "hc_ffn_base": ffn.hc_base, "ffn_norm.weight": ffn.ffn_w,
        "ffn.gate.weight": ffn.gate_w, "ffn.gate.e_score_correction_bias": ffn.bias,
    }  # fmt: skip
    for name, path in LINEARS.items():
        owner = next(o for o in (k1, back, ffn) if hasattr(o, name))
        data, codes = getattr(owner, name), getattr(owner, f"{name}_s")
        if dequantised:
            held[f"{path}.weight"] = multiplied_out(data, codes)
            held[f"{path}.weight_scale"] = codes.repeat_interleave(32, 0)
        else:
            held[f"{path}.weight"] = data.clone().view(E4M3)
            held[f"{path}.weight_scale"] = codes.clone().view(E8M0)
    return {name: tensor.clone() for name, tensor in held.items()}


def plain_experts(whole: WholeLayer, tp: int, rank: int, sizes: LayerSizes, numbers: tuple[int, ...]) -> Held:
    """The four plain tensors, with `numbers` filled in."""
    wide, experts = sizes.inter_padded, whole.ffn(tp, rank).experts
    shapes = {
        "w13": (2 * wide, sizes.hidden // 2), "w13_s": (2 * wide, sizes.hidden // 32),
        "w2": (sizes.hidden, wide // 2), "w2_s": (sizes.hidden, wide // 32),
    }  # fmt: skip
    held = {n: torch.zeros(sizes.experts, *shape, dtype=torch.uint8) for n, shape in shapes.items()}
    for number in numbers:
        one = experts.expert(number)
        for name, gate, up, down in (
            ("w13", one.w1, one.w3, one.w2),
            ("w13_s", one.w1_s, one.w3_s, one.w2_s),
        ):
            held[name][number, : sizes.inter] = gate
            held[name][number, wide : wide + sizes.inter] = up
            held[name.replace("13", "2")][number, :, : down.shape[1]] = down
    return {PATHS[name]: tensor for name, tensor in held.items()}


def converted_experts(sizes: LayerSizes) -> Held:
    """The four tensors after the host's conversion."""
    wide, columns = sizes.inter_padded, -(-sizes.inter_padded // 256) * 8
    rows, hidden = sizes.experts * 2 * wide, sizes.hidden
    octets = {
        "w13": torch.randint(256, (sizes.experts, 2 * wide, hidden // 2), dtype=torch.uint8),
        "w13_s": torch.randint(255, (rows, hidden // 32), dtype=torch.uint8),
        "w2": torch.randint(256, (sizes.experts, hidden, wide // 2), dtype=torch.uint8),
        "w2_s": torch.randint(255, (sizes.experts * hidden, columns), dtype=torch.uint8),
    }
    views = {"w13": FP4, "w13_s": E8M0, "w2": FP4, "w2_s": torch.uint8}
    return {PATHS[name]: octets[name].view(kind) for name, kind in views.items()}


def small_model(full: ModelSpec) -> ModelSpec:
    """The release's model, narrow enough for milliseconds."""
    attention = full.attention.model_copy(
        update={"heads": 4, "q_lora_rank": 256, "o_groups": 2, "o_lora_rank": 128}
    )
    moe = full.moe.model_copy(update={"intermediate": 384, "experts": 8})
    return full.model_copy(update={"hidden": 512, "attention": attention, "moe": moe})


def placed(held: Held) -> SimpleNamespace:
    """A layer that has the tensors as parameters at their paths."""
    layer = SimpleNamespace()
    for path, tensor in held.items():
        *way, last = path.split(".")
        at = layer
        for name in way:
            if not hasattr(at, name):
                setattr(at, name, SimpleNamespace())
            at = getattr(at, name)
        setattr(at, last, torch.nn.Parameter(tensor, requires_grad=False))
    return layer
