"""Sizes of a whole layer on one rank, and the summation orders that K2 and the FFN launch promise.

Both extend K1's, so that every function of the seam, the norms and the key table takes either. What a plan
may choose (chunk of keys, order of bytes inside a region, tile of picks) is a field of `LayerOrder`; the
defaults are those of the scaled-MFMA strategy, `LayerOrder.of` gives those of either.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal

from ..specs.schema import ModelSpec
from .sizes import K1Sizes, SumOrder

ByteOrder = Literal["natural", "even_odd"]
MidOrder = Literal["natural", "lane_grouped"]


@dataclass(frozen=True)
class LayerSizes(K1Sizes):
    """K1's sizes, the attention back's and the FFN half's, on one of `tp` ranks."""

    tp: int
    groups: int  # wo_a groups of this rank
    o_rank: int  # rows of a group
    experts: int
    picks: int  # experts a token takes
    inter: int  # this rank's columns of a routed expert
    shared_inter: int  # this rank's columns of the shared expert
    limit: float  # of gate and up, before and in the activation
    routed_scale: float

    @classmethod
    def of(cls, model: ModelSpec, tp: int, draft: bool = False) -> LayerSizes:
        """Sizes of `model` (or of its draft layers) on one of `tp` ranks; ValueError if not divisible."""
        attention, moe = model.attention, model.moe
        for what, count in (("wo_a groups", attention.o_groups), ("intermediate columns", moe.intermediate)):
            if count % tp:
                raise ValueError(f"{count} {what} cannot be split over TP{tp}: use a divisor")
        front = K1Sizes.of(model, tp)
        return cls(
            **vars(front), tp=tp, groups=attention.o_groups // tp, o_rank=attention.o_lora_rank,
            experts=model.draft.experts if draft else moe.experts,
            picks=model.draft.experts_per_token if draft else moe.experts_per_token,
            inter=moe.intermediate // tp, shared_inter=moe.intermediate * moe.shared_experts // tp,
            limit=moe.swiglu_limit, routed_scale=moe.routed_scaling,
        )  # fmt: skip

    @property
    def group_k(self) -> int:
        """Columns of a wo_a group: its heads' dims."""
        return self.heads // self.groups * self.head_dim

    @property
    def o_rows(self) -> int:
        """Rows of wo_a, and columns of wo_b, on this rank."""
        return self.groups * self.o_rank

    @property
    def inter_padded(self) -> int:
        """A routed expert's columns rounded up to a step of 128, as they are loaded and as MID rows lie."""
        return padded(self.inter)


def padded(columns: int, step: int = 128) -> int:
    """`columns` rounded up to whole steps."""
    return -(-columns // step) * step


@dataclass(frozen=True)
class LayerOrder(SumOrder):
    """How K2's sums are split and how the bytes of its regions lie (attention sheet 2.5, 4; FFN math 7)."""

    chunk: int = 64  # keys of a split unit
    key_tile: int = 16
    bf16_k: int = 32  # products of the bf16 MFMA of scores and router
    value_k: int = 16  # keys of one value MFMA
    woa_waves: int = 4  # waves that share a wo_a tile, contiguous steps each
    router_parts: int = 4
    router_k: int = 32
    up_slices: int = 2
    down_chains: int = 2
    route_copies: int = 8
    pick_tile: int = 16  # picks of one up/gate unit; steps of at most so many rows take an expert whole
    up_groups: int = 2  # groups of 32 columns of one up/gate task
    x8r_order: ByteOrder = "natural"
    mid_order: MidOrder = "natural"
    mids_by_step: bool = True  # a row's codes lie [block of the step][step] instead of ascending
    mid_row: int = 0  # bytes from pick to pick of MID; 0: the padded columns
    mids_row: int = 0  # words from pick to pick of its codes; 0: one a group of the padded columns

    @classmethod
    def of(cls, gemv: str, chunk: int = 64, **changes: int) -> LayerOrder:
        """The orders of a GEMV strategy: block-scaled MFMA, or FP8 MFMAs with own weight copies."""
        if gemv == "scaled_mfma":
            return cls(gemv=gemv, chunk=chunk, **changes)  # type: ignore[arg-type]
        own: dict[str, object] = {
            "bf16_k": 16, "down_chains": 1, "pick_tile": 6, "x8r_order": "even_odd",
            "mid_order": "lane_grouped", "mids_by_step": False,
        }  # fmt: skip
        return cls(gemv=gemv, chunk=chunk, **(own | changes))  # type: ignore[arg-type]

    def mid_rows(self, sizes: LayerSizes) -> tuple[int, int]:
        """Bytes of a MID row and words of a row of its codes."""
        wide = sizes.inter_padded
        return self.mid_row or wide, self.mids_row or wide // sizes.group

    def chunks(self, sizes: K1Sizes) -> int:
        """Split units of a token."""
        return ceil(sizes.keys / self.chunk)

    def names(self, sizes: K1Sizes) -> dict[str, float]:
        """Every number that a budget formula may name."""
        numbers = super().names(sizes)
        if not isinstance(sizes, LayerSizes):
            return numbers
        step = self.k_step
        return numbers | {
            "chunks": float(self.chunks(sizes)),
            "key_tiles": float(ceil(self.chunk / self.key_tile)),
            "score_steps": float(ceil(sizes.head_dim / self.bf16_k)),
            "value_steps": float(ceil(self.chunk / self.value_k)),
            "woa_steps": float(ceil(sizes.group_k / step / self.woa_waves)),
            "wob_steps": float(ceil(sizes.o_rows / step / self.waves)),
            "router_steps": float(ceil(sizes.hidden / self.router_parts / self.router_k / self.waves)
                                  * self.router_k // self.bf16_k),
            "shared_up_steps": float(ceil(sizes.hidden / step / self.waves)),
            "shared_down_steps": float(ceil(ceil(sizes.shared_inter / step) / self.waves)),
            "up_steps": float(ceil(sizes.hidden / step / self.up_slices)),
            "down_steps": float(ceil(ceil(sizes.inter / step) / self.down_chains)),
        }  # fmt: skip
