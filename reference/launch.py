"""What a launch left behind, as the comparisons take it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Launch:
    """One launch on one rank.

    `outputs` by launch-argument name (of K1: res_out, post_out, comb_out, pre_out, swa, q, kt, klen, and in
    index builds normed_out and qr_out; of K2 and the FFN launch: out, res_out, post_out, comb_out, pre_out,
    and kt and klen where K2 makes them), `regions` by scratch-region name (with the peer regions attn and
    ffn of the half that the launch used), and the tag the launch ran under.
    """

    outputs: Mapping[str, Tensor]
    regions: Mapping[str, Tensor]
    tag: int
