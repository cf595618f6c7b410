"""What K2's attention half is built for beyond what every layer's tiles need.

Invariant: a model past these limits is refused with the number and its cure, before a kernel is traced.
"""

from __future__ import annotations

from ....specs.schema import ModelSpec
from ..unsupported import Code, Reason

HEAD_DIM = 512
"""Dimensions of a head: 64 lanes of 8 where chunks are combined, 8 waves of 64 where values are weighed."""
ROPE_DIM = 64
"""Rotated dimensions: those of the last wave, which alone reads them from the record's bf16 part."""


def attention_reasons(model: ModelSpec) -> list[Reason]:
    """Which sizes of a head the split and its combination are not built for."""
    at, fix = model.attention, "take a model with heads of that size, or leave its attention to vLLM"
    built = (("head_dim", at.head_dim, HEAD_DIM), ("rope_dim", at.rope_dim, ROPE_DIM))
    return [
        Reason(Code.MODEL_SHAPE, f"attention.{name} = {value}: K2 is built for {only}", fix)
        for name, value, only in built
        if value != only
    ]
