"""Comparisons that every launch has: bf16 tensors, and quantised groups, against what their inputs allow."""

from __future__ import annotations

from torch import Tensor

from .bounds import Bounds
from .formats import bf16_ordinal, fp8_ordinal
from .interval import Interval
from .quant import MXFP8, Blocks, CodeRule
from .verdict import Judge, Verdict, steps_outside


def stored(judge: Judge, name: str, got: Tensor, y: Interval) -> Verdict:
    """A bf16 tensor."""
    steps = steps_outside(*(bf16_ordinal(v) for v in (got, y.lo, y.hi)))
    return judge.rounded(name, "absolute", got, y.lo, y.hi, steps)


def quantised(
    judge: Judge, bounds: Bounds, names: tuple[str, str], y: Interval, got: Blocks, rule: CodeRule = MXFP8
) -> list[Verdict]:
    """Codes within what y allows, bytes within what y allows under the kernel's codes."""
    group = y.lo.shape[-1] // got.codes.shape[-1]
    low, high = bounds.codes(y, group, rule)
    lo, hi = (fp8_ordinal(b, got.flavour) for b in bounds.quantised(y, got.codes.clamp(0, 254)))
    data = fp8_ordinal(got.data, got.flavour)
    return [
        judge.rounded(names[0], "codes", got.codes, low, high, steps_outside(got.codes, low, high)),
        judge.rounded(names[1], "e4m3 steps", data, lo, hi, steps_outside(data, lo, hi)),
    ]
