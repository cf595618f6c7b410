"""Every weight of K2 or of the FFN launch as a device reads it, under the launch arguments' names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor

from ...reference.layer_sizes import LayerSizes
from ...reference.layer_weights import BackWeights, FfnWeights
from .copies import Flavour, Layout, copy_into, dense_copies, misfits
from .errors import WeightFinding, WeightsError
from .fp4_copies import NAMES, empty_routed, routed_of_ranks, routed_refusals, write_routed

BACK, SHARED = ("woa", "wob"), ("sgu", "sw2")
ORDER = ("hc_fn", "hc_scale", "hc_base", "ffn_w", "gate_w", "bias", *NAMES, "sgu", "sgu_s", "sw2", "sw2_s")


def back_copies(weights: BackWeights, fp8: Flavour, layout: Layout) -> dict[str, Tensor]:
    """sink, woa, woa_s, wob, wob_s. Raises WeightsError like `dense_copies`."""
    out = weights.tensors()
    linears = {name: (out[name], out[f"{name}_s"]) for name in BACK}
    return out | dense_copies(linears, weights.block, fp8, layout)


def ffn_copies(
    weights: FfnWeights, selected: Iterable[int], sizes: LayerSizes, fp8: Flavour, layout: Layout,
    existing: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:  # fmt: skip
    """hc_fn .. sw2_s in launch-argument order, routed experts in buffers that hold the selected ones.

    `existing` is an earlier result to overwrite in place; its tensors are then the ones returned. Raises
    WeightsError with every finding, before anything is written.
    """
    numbers = sorted(set(selected))
    routed = empty_routed(sizes, layout)
    dense, refused = _dense(weights, fp8, layout)
    findings = routed_refusals(weights.experts, numbers, sizes, fp8, layout) + refused
    if existing is not None:
        findings += misfits(existing, dense | routed)
    if findings:
        raise WeightsError(findings)
    if existing is not None:
        copy_into(existing, dense)
    out = dict(existing) if existing is not None else dense | routed
    write_routed(out, weights.experts, numbers, sizes, fp8, layout)
    return {name: out[name] for name in ORDER}


def _dense(
    weights: FfnWeights, fp8: Flavour, layout: Layout
) -> tuple[dict[str, Tensor], list[WeightFinding]]:
    """Everything but the routed experts, and why a tensor has no exact copy."""
    dense = weights.tensors()
    try:
        dense |= dense_copies({n: (dense[n], dense[f"{n}_s"]) for n in SHARED}, weights.block, fp8, layout)
    except WeightsError as error:
        return dense, list(error.findings)
    return dense, []


def ffn_copies_of_ranks(
    ranks: Sequence[FfnWeights], selected: Iterable[int], sizes: LayerSizes, fp8: Flavour, layout: Layout
) -> tuple[dict[str, Tensor], ...]:
    """`ffn_copies` of every rank of a group, each expert fetched once. Raises WeightsError, all findings."""
    routed, findings = routed_of_ranks([w.experts for w in ranks], selected, sizes, fp8, layout)
    dense = []
    for weights in ranks:
        own, refused = _dense(weights, fp8, layout)
        dense.append(own)
        findings += refused
    if findings:
        raise WeightsError(findings)
    whole = [own | copies for own, copies in zip(dense, routed, strict=True)]
    return tuple({name: out[name] for name in ORDER} for out in whole)
