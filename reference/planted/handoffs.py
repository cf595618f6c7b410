"""Planted bugs of the hand-offs: tags, flags, data of another launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ..case import K1Case
from ..compare import Launch
from ..sizes import K1Sizes, SumOrder
from .registry import damaged, folds, has_keys

BF16 = torch.bfloat16


def _region(launch: Launch, name: str, change: Callable[[Tensor], None]) -> Launch:
    """The launch with int32 words of one region changed in place."""
    words = launch.regions[name].view(torch.int32).clone()
    change(words)
    return replace(launch, regions={**launch.regions, name: words.view(torch.uint8)})


def _set(index: int, value: int) -> Callable[[Tensor], None]:
    def change(words: Tensor) -> None:
        words[index] = value

    return change


@damaged("slice.lin_tags", "one pair of the layer input still has an older launch's tag")
def lin_tag_stale(launch: Launch, case: K1Case, sizes: K1Sizes, order: SumOrder) -> Launch:
    return _region(launch, "lin", _set(1, launch.tag - 2))


@damaged("slice.pmix_tags", "one pair of the projections still has an older launch's tag")
def pmix_tag_stale(launch: Launch, case: K1Case, sizes: K1Sizes, order: SumOrder) -> Launch:
    return _region(launch, "pmix", _set(-1, launch.tag - 2))


@damaged("wqkv.qkvp_tags", "one pair of the GEMV's partials still has an older launch's tag")
def qkvp_tag_stale(launch: Launch, case: K1Case, sizes: K1Sizes, order: SumOrder) -> Launch:
    return _region(launch, "qkvp", _set(3, 0))


@damaged("norm.xrdy", "a row's second flag was never set")
def xrdy_stale(launch: Launch, case: K1Case, sizes: K1Sizes, order: SumOrder) -> Launch:
    return _region(launch, "xrdy", _set(3, 0))


@damaged("qkv.qrdy", "a row's flag is that of an older launch")
def qrdy_stale(launch: Launch, case: K1Case, sizes: K1Sizes, order: SumOrder) -> Launch:
    return _region(launch, "qrdy", _set(-1, launch.tag - 2))


@damaged("kt.klen", "the second half of klen lies at the largest width instead of this step's",
         lambda case: has_keys(case) and case.rows > 1)  # fmt: skip
def klen_offset(launch: Launch, case: K1Case, sizes: K1Sizes, order: SumOrder) -> Launch:
    klen = launch.outputs["klen"].clone()
    klen[case.rows :] = 0
    return replace(launch, outputs={**launch.outputs, "klen": klen})


@damaged("slice.res_out", "the residual is copied instead of folded", folds)
def residual_copied(launch: Launch, case: K1Case, sizes: K1Sizes, order: SumOrder) -> Launch:
    return replace(launch, outputs={**launch.outputs, "res_out": case.res_in.clone()})
