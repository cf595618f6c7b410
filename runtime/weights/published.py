"""A layer's tensors under their published names (checkpoint sheet 3)."""

from __future__ import annotations

from dataclasses import dataclass

from ...reference.layer_sizes import LayerSizes
from ...reference.layer_weights import is_draft
from ...reference.sizes import K1Sizes
from ...specs.schema import ModelSpec


@dataclass(frozen=True)
class Published:
    """One tensor of the checkpoint: name, dtype and whole shape (before any TP split)."""

    name: str
    dtype: str
    shape: tuple[int, ...]


def layer_prefix(model: ModelSpec, layer: int) -> str:
    """`layers.N.` of a backbone layer, `mtp.K.` of a draft layer (numbered after the backbone).

    Raises ValueError for a layer that the model does not have.
    """
    backbone, drafts = model.topology.layers, model.topology.draft_layers
    if not 0 <= layer < backbone + drafts:
        raise ValueError(f"layer {layer}: {model.name} has layers 0 .. {backbone + drafts - 1}")
    return f"layers.{layer}." if layer < backbone else f"mtp.{layer - backbone}."


def _linear(name: str, rows: int, columns: int, block: tuple[int, int]) -> tuple[Published, Published]:
    scale = (-(-rows // block[0]), -(-columns // block[1]))
    return Published(f"{name}.weight", "F8_E4M3", (rows, columns)), Published(
        f"{name}.scale", "F8_E8M0", scale
    )


def k1_tensors(model: ModelSpec, layer: int) -> dict[str, Published]:
    """Key (as the reader uses it) -> published tensor."""
    sizes, prefix, block = K1Sizes.of(model, 1), layer_prefix(model, layer), model.quantisation.weight_block
    projections = sizes.streams * sizes.hidden
    wq_a, wq_a_s = _linear(f"{prefix}attn.wq_a", sizes.q_rank, sizes.hidden, block)
    wkv, wkv_s = _linear(f"{prefix}attn.wkv", sizes.kv_dim, sizes.hidden, block)
    wqb, wqb_s = _linear(f"{prefix}attn.wq_b", sizes.q_rows, sizes.q_rank, block)
    return {
        "hc_fn": Published(f"{prefix}hc_attn_fn", "F32", (sizes.mix, projections)),
        "hc_scale": Published(f"{prefix}hc_attn_scale", "F32", (3,)),
        "hc_base": Published(f"{prefix}hc_attn_base", "F32", (sizes.mix,)),
        "attn_w": Published(f"{prefix}attn_norm.weight", "BF16", (sizes.hidden,)),
        "wq_a": wq_a,
        "wq_a_s": wq_a_s,
        "wkv": wkv,
        "wkv_s": wkv_s,
        "qn_w": Published(f"{prefix}attn.q_norm.weight", "BF16", (sizes.q_rank,)),
        "kvn_w": Published(f"{prefix}attn.kv_norm.weight", "BF16", (sizes.kv_dim,)),
        "wqb": wqb,
        "wqb_s": wqb_s,
    }


def dense_tensors(model: ModelSpec, layer: int) -> dict[str, Published]:
    """Key -> published tensor of a whole layer but its routed experts (keys as WholeLayer has them)."""
    prefix, block = layer_prefix(model, layer), model.quantisation.weight_block
    sizes = LayerSizes.of(model, 1, is_draft(model, layer))
    linears = {
        "woa": ("attn.wo_a", sizes.o_rows, sizes.group_k),
        "wob": ("attn.wo_b", sizes.hidden, sizes.o_rows),
        "sw1": ("ffn.shared_experts.w1", sizes.shared_inter, sizes.hidden),
        "sw3": ("ffn.shared_experts.w3", sizes.shared_inter, sizes.hidden),
        "sw2": ("ffn.shared_experts.w2", sizes.hidden, sizes.shared_inter),
    }
    out = k1_tensors(model, layer)
    for key, (name, rows, columns) in linears.items():
        out[key], out[f"{key}_s"] = _linear(f"{prefix}{name}", rows, columns, block)
    plain = {
        "sink": ("attn.attn_sink", "F32", (sizes.heads,)),
        "hc_ffn_fn": ("hc_ffn_fn", "F32", (sizes.mix, sizes.streams * sizes.hidden)),
        "hc_ffn_scale": ("hc_ffn_scale", "F32", (3,)),
        "hc_ffn_base": ("hc_ffn_base", "F32", (sizes.mix,)),
        "ffn_w": ("ffn_norm.weight", "BF16", (sizes.hidden,)),
        "gate_w": ("ffn.gate.weight", "BF16", (sizes.experts, sizes.hidden)),
        "bias": ("ffn.gate.bias", "F32", (sizes.experts,)),
    }
    return out | {key: Published(prefix + name, dtype, shape) for key, (name, dtype, shape) in plain.items()}


def expert_tensors(model: ModelSpec, layer: int, number: int) -> dict[str, Published]:
    """Field of Expert -> published tensor of one routed expert."""
    sizes = LayerSizes.of(model, 1, is_draft(model, layer))
    at = f"{layer_prefix(model, layer)}ffn.experts.{number}."
    shapes = {"w1": (sizes.inter, sizes.hidden), "w3": (sizes.inter, sizes.hidden)}
    shapes["w2"] = (sizes.hidden, sizes.inter)
    out = {}
    for leaf, (rows, columns) in shapes.items():
        out[leaf] = Published(f"{at}{leaf}.weight", "I8", (rows, columns // 2))
        out[f"{leaf}_s"] = Published(f"{at}{leaf}.scale", "F8_E8M0", (rows, columns // 32))
    return out
