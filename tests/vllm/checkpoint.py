"""A layer of the published form (from a seed) in vLLM's parameters, and vLLM's own processing of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from flymono.reference.layer_sizes import LayerSizes
from flymono.reference.layer_weights import WholeLayer
from flymono.runtime.weights.held_experts import PATHS
from flymono.runtime.weights.held_names import LINEARS, PARTS, PLAIN


def at(layer: Any, path: str) -> Any:
    """What is at a path of attributes."""
    for part in path.split("."):
        layer = getattr(layer, part)
    return layer


def parts_of(whole: WholeLayer, tp: int, rank: int) -> dict[str, dict[str, torch.Tensor]]:
    """Launch part -> argument -> a rank's tensor in the published form."""
    k1, back, ffn = whole.k1(tp, rank), whole.back(tp, rank), whole.ffn(tp, rank)
    return {"k1": k1.tensors(), "back": back.tensors(), "ffn": ffn.tensors()}


def fill(layer: Any, whole: WholeLayer, tp: int, rank: int, experts: Iterable[int]) -> None:
    """What vLLM's weight loaders leave of a checkpoint: linears with a code a row, plain padded experts."""
    parts = parts_of(whole, tp, rank)
    for part, names in PLAIN.items():
        for name, path in names.items():
            value, target = parts[part].get(name), at(layer, path)
            if name == "cos_sin":
                target = target[: len(value)] if value is not None else target
            if value is not None:
                target.data[: len(value)].copy_(value)
    for name, path in LINEARS.items():
        module, own = at(layer, path), parts[PARTS[name]]
        module.weight.data.copy_(own[name].view(torch.float8_e4m3fn))
        module.weight_scale.data.copy_(own[f"{name}_s"].repeat_interleave(32, 0))
    fill_experts(layer, whole, tp, rank, experts)


def fill_experts(layer: Any, whole: WholeLayer, tp: int, rank: int, experts: Iterable[int]) -> None:
    """Some experts of the layer's plain tensors; the others stay zero and take no memory."""
    own, held = whole.ffn(tp, rank).experts, {n: at(layer, p).data for n, p in PATHS.items()}
    wide = held["w13"].shape[1] // 2
    for number in experts:
        e = own.expert(number)
        inter = e.w1.shape[0]
        for first, weight, codes in ((0, e.w1, e.w1_s), (wide, e.w3, e.w3_s)):
            held["w13"][number, first : first + inter] = weight
            held["w13_s"][number, first : first + inter] = codes
        held["w2"][number, :, : inter // 2] = e.w2
        held["w2_s"][number, :, : inter // 32] = e.w2_s


def process(layer: Any) -> list[str]:
    """vLLM's processing of every module after loading; names of those that it processed."""
    done = []
    for name, module in layer.named_modules():
        method = getattr(module, "quant_method", None)
        if hasattr(method, "process_weights_after_loading"):
            method.process_weights_after_loading(module)
            done.append(name)
    return done


def expected(
    whole: WholeLayer, tp: int, rank: int, experts: Iterable[int], sizes: LayerSizes, strategy: Any
) -> Any:
    """Launch part -> argument -> tensor, from the published form by the project's own copies."""
    from flymono.runtime.weights import back_copies, device_copies, ffn_copies

    fp8, layout = strategy.fp8, strategy.weight_layout
    return {
        "k1": device_copies(whole.k1(tp, rank), fp8, layout),
        "back": back_copies(whole.back(tp, rank), fp8, layout),
        "ffn": ffn_copies(whole.ffn(tp, rank), experts, sizes, fp8, layout),
    }


def differing(found: Any, wanted: Any) -> list[str]:
    """Arguments whose shape or bytes differ, padding and experts that were never loaded among them."""
    return [
        f"{part}.{name}"
        for part, tensors in wanted.items()
        for name, value in tensors.items()
        if name != "cos_sin" and not same(getattr(found, part)[name], value)
    ]


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal bytes in the same order; leading dimensions may be put together."""
    a, b = (t.detach().contiguous().view(torch.uint8).reshape(-1) for t in (one, other))
    return a.shape == b.shape and bool(torch.equal(a, b))
