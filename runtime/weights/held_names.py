"""What the host calls a layer's tensors, and what each must be: dtype and shape on one rank.

Names are paths of attributes below a decoder layer (checkpoint sheet 4, runtime sheet 9.5).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...reference.layer_sizes import LayerSizes, padded
from .copies import STEP_K, Layout
from .fp4_copies import shapes
from .held_experts import PATHS

Shape = tuple[int, ...]
ANY = -1
ATTENTION = {"wqkv": "attn.fused_wqa_wkv", "wqb": "attn.wq_b", "woa": "attn.wo_a", "wob": "attn.wo_b"}
SHARED = {"sgu": "ffn.shared_experts.gate_up_proj", "sw2": "ffn.shared_experts.down_proj"}
LINEARS = ATTENTION | SHARED
PARTS = {"wqkv": "k1", "wqb": "k1", "woa": "back", "wob": "back", "sgu": "ffn", "sw2": "ffn"}
PLAIN = {
    "k1": {
        "hc_fn": "hc_attn_fn", "hc_scale": "hc_attn_scale", "hc_base": "hc_attn_base",
        "attn_w": "attn_norm.weight", "qn_w": "attn.q_norm.weight", "kvn_w": "attn.kv_norm.weight",
        "cos_sin": "attn.rotary_emb.cos_sin_cache",
    },
    "back": {"sink": "attn.attn_sink", "cos_sin": "attn.rotary_emb.cos_sin_cache"},
    "ffn": {
        "hc_fn": "hc_ffn_fn", "hc_scale": "hc_ffn_scale", "hc_base": "hc_ffn_base",
        "ffn_w": "ffn_norm.weight", "gate_w": "ffn.gate.weight", "bias": "ffn.gate.e_score_correction_bias",
    },
}  # fmt: skip
"""Launch part -> argument -> path of what kernels read as the host has it, on every arch."""


def held_tensors(layer: object, *, attention: bool = True) -> dict[str, Tensor]:
    """Path -> tensor of what a decoder layer has of the names below; absent ones are left out.

    A scale may be called `weight_scale` or `weight_scale_inv`, whichever the host registered.
    """
    found = {}
    for path in paths(attention=attention):
        for name in (path, f"{path}_inv") if path.endswith(".weight_scale") else (path,):
            value: object = layer
            for part in name.split("."):
                value = getattr(value, part, None)
            if isinstance(value, Tensor):
                found[path] = value.detach()
                break
    return found


def paths(*, attention: bool = True) -> list[str]:
    """All paths that a layer's copies are made from."""
    linears = (ATTENTION if attention else {}) | SHARED
    plain = [p for part in PLAIN for p in PLAIN[part].values() if attention or part == "ffn"]
    ends = [f"{path}.{end}" for path in linears.values() for end in ("weight", "weight_scale")]
    return [*dict.fromkeys(plain), *ends, *PATHS.values()]


def plain_shapes(s: LayerSizes) -> dict[str, tuple[torch.dtype, Shape]]:
    """Path -> dtype and shape of the tensors that kernels read as the host has them."""
    f32, bf16 = torch.float32, torch.bfloat16
    gates = (f32, (s.mix, s.streams * s.hidden)), (f32, (3,)), (f32, (s.mix,))
    hyper = {f"hc_{half}_{end}": one for half in ("attn", "ffn")
             for end, one in zip(("fn", "scale", "base"), gates, strict=True)}  # fmt: skip
    return hyper | {
        "attn_norm.weight": (bf16, (s.hidden,)), "ffn_norm.weight": (bf16, (s.hidden,)),
        "attn.q_norm.weight": (bf16, (s.q_rank,)), "attn.kv_norm.weight": (bf16, (s.kv_dim,)),
        "attn.rotary_emb.cos_sin_cache": (f32, (ANY, s.rope)), "attn.attn_sink": (f32, (s.heads,)),
        "ffn.gate.weight": (bf16, (s.experts, s.hidden)),
        "ffn.gate.e_score_correction_bias": (f32, (s.experts,)),
    }  # fmt: skip


def linear_shapes(s: LayerSizes) -> dict[str, tuple[int, int]]:
    """Launch-argument name -> [N, K] of the MXFP8 linears on this rank."""
    return {
        "wqkv": (s.qkv_rows, s.hidden), "wqb": (s.q_rows, s.q_rank), "woa": (s.o_rows, s.group_k),
        "wob": (s.hidden, s.o_rows), "sgu": (2 * s.shared_inter, s.hidden), "sw2": (s.hidden, s.shared_inter),
    }  # fmt: skip


def copy_shapes(s: LayerSizes, layout: Layout, part: str) -> dict[str, tuple[torch.dtype, Shape]]:
    """Launch argument -> dtype and shape of a launch part's weights (the routed experts are the FFN's)."""
    plain = plain_shapes(s)
    out = {name: plain[path] for name, path in PLAIN[part].items()}
    for name, (rows, columns) in linear_shapes(s).items():
        if PARTS[name] == part:
            wide = padded(columns, STEP_K) if layout == "tile_major" else columns
            block = s.weight_block
            out[name] = torch.uint8, (rows, wide)
            out[f"{name}_s"] = torch.uint8, (rows // block, wide // block)
    routed = shapes(s, layout) if part == "ffn" else {}
    return out | {name: (torch.uint8, shape) for name, shape in routed.items()}
