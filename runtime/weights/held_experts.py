"""Routed experts as the host holds them: plain before its own conversion, or shuffled after it.

Plain (FFN math 4.1): gate rows, zero rows, up rows, zero rows; down columns, then zero bytes. Copies in lane
order are made from these, before the host converts them. Shuffled (4.2): what a host with a block-scaled MFMA
keeps; kernels read those very tensors. The two differ in dtype and in the shape of their codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from ...reference.layer_sizes import LayerSizes
from ...reference.layer_weights import Expert
from .dequantised import as_bytes
from .errors import WeightFinding
from .fp4_copies import NAMES, shapes

PATHS = {
    "w13": "ffn.experts.routed_experts.w13_weight",
    "w13_s": "ffn.experts.routed_experts.w13_weight_scale",
    "w2": "ffn.experts.routed_experts.w2_weight",
    "w2_s": "ffn.experts.routed_experts.w2_weight_scale",
}
BEFORE = "make the copies before the host converts its experts (ahead of process_weights_after_loading)"
AFTER = "run the host's AITER backend for MXFP4 experts (AITER_MXFP4_BF16), and take its converted tensors"


class HeldExperts:
    """A rank's experts out of the host's plain tensors, which `plain_faults` has found nothing against."""

    def __init__(self, tensors: Mapping[str, Tensor], sizes: LayerSizes) -> None:
        self.inter = sizes.inter
        self.w13, self.w13_s, self.w2, self.w2_s = (as_plain(tensors[name]) for name in NAMES)
        self.padded = self.w13.shape[1] // 2

    def expert(self, number: int) -> Expert:
        """The rank's share of expert `number`, as views."""
        gate, up = slice(0, self.inter), slice(self.padded, self.padded + self.inter)
        w13, codes = self.w13[number], self.w13_s[number]
        return Expert(
            w1=w13[gate], w1_s=codes[gate], w3=w13[up], w3_s=codes[up],
            w2=self.w2[number, :, : self.inter // 2], w2_s=self.w2_s[number, :, : self.inter // 32],
        )  # fmt: skip

    def padding_faults(self, numbers: Iterable[int]) -> list[WeightFinding]:
        """Padding of weights that is not zero and would be dropped (codes of padding mean nothing)."""
        found = []
        for number in numbers:
            w13, w2 = self.w13[number], self.w2[number]
            parts = (
                ("w13", "gate row", w13[self.inter : self.padded].any(1), self.inter),
                ("w13", "up row", w13[self.padded + self.inter :].any(1), self.inter),
                ("w2", "column pair", w2[:, self.inter // 2 :].any(0), self.inter // 2),
            )
            for name, what, bad, first in parts:
                places = torch.nonzero(bad).flatten().tolist()
                if places:
                    text = f"expert {number}: {len(places)} {what}s of padding are not zero, first {what} "
                    text += str(first + places[0])
                    fix = "check the TP size and the model: padding starts where the rank's columns end"
                    found.append(WeightFinding("held weights", PATHS[name], text, fix))
        return found


def as_plain(tensor: Tensor) -> Tensor:
    """uint8 view of plain weights or codes."""
    return tensor.view(torch.uint8) if tensor.dtype == torch.int8 else as_bytes(tensor)


def _missing(tensors: Mapping[str, Tensor]) -> list[WeightFinding]:
    fix = "hand over all four tensors of the routed experts"
    return [WeightFinding("held weights", PATHS[n], "missing", fix) for n in NAMES if n not in tensors]


def plain_faults(tensors: Mapping[str, Tensor], sizes: LayerSizes) -> list[WeightFinding]:
    """What is wrong with dtypes and shapes of plain experts."""
    found = _missing(tensors)
    if "w13" not in tensors or tensors["w13"].dim() != 3:
        width = sizes.inter_padded
    else:
        width = max(tensors["w13"].shape[1] // 2, sizes.inter)
    experts, hidden = sizes.experts, sizes.hidden
    wanted = {
        "w13": (experts, 2 * width, hidden // 2), "w13_s": (experts, 2 * width, hidden // 32),
        "w2": (experts, hidden, width // 2), "w2_s": (experts, hidden, width // 32),
    }  # fmt: skip
    for name in (n for n in NAMES if n in tensors):
        tensor = tensors[name]
        if as_plain(tensor).dtype != torch.uint8 or getattr(tensor, "is_shuffled", False):
            what = f"dtype {tensor.dtype}: converted already, plain experts are uint8"
            found.append(WeightFinding("held weights", PATHS[name], what, BEFORE))
        elif tuple(tensor.shape) != wanted[name]:
            what = f"shape {list(tensor.shape)}, expected {list(wanted[name])}"
            found.append(WeightFinding("held weights", PATHS[name], what, BEFORE))
    return found


def shuffled_faults(tensors: Mapping[str, Tensor], sizes: LayerSizes) -> list[WeightFinding]:
    """What is wrong with dtypes, shapes and strides of converted experts."""
    found = _missing(tensors)
    wanted = shapes(sizes, "row_major")
    for name in (n for n in NAMES if n in tensors):
        tensor, is_code = tensors[name], name.endswith("_s")
        right = as_bytes(tensor).dtype == torch.uint8 if is_code else tensor.dtype == torch.float4_e2m1fn_x2
        if not right:
            kind = "uint8 or float8_e8m0fnu" if is_code else "float4_e2m1fn_x2 (plain experts are uint8)"
            what = f"dtype {tensor.dtype}, converted ones are {kind}"
            found.append(WeightFinding("held weights", PATHS[name], what, AFTER))
        if tuple(tensor.shape) != wanted[name]:
            what = f"shape {list(tensor.shape)}, expected {list(wanted[name])}"
            narrow = name == "w2_s" and tensor.dim() == 2 and tensor.shape[1] == sizes.inter_padded // 32
            fix = "take an AITER version that pads the codes of w2 to a multiple of 8 columns"
            found.append(WeightFinding("held weights", PATHS[name], what, fix if narrow else AFTER))
        elif not tensor.is_contiguous():
            what = f"strides {list(tensor.stride())}: not contiguous"
            found.append(WeightFinding("held weights", PATHS[name], what, AFTER))
    return found


def shuffled_views(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """uint8 views of converted experts that `shuffled_faults` has found nothing against."""
    return {name: tensors[name].view(torch.uint8) for name in NAMES}
