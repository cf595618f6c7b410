"""Sizes of K1 on one rank, derived from a model spec, and the summation order that kernels promise.

`K1Sizes` is what is computed; `SumOrder` is in which order float32 sums run. The second changes low bits
only, and the error budgets count its roundings, so both feed the formulas of specs/numerics.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from ..specs.schema import ModelSpec


@dataclass(frozen=True)
class K1Sizes:
    """Per-rank sizes of the attention front; numbers of elements unless a name says bytes."""

    hidden: int
    streams: int
    q_rank: int
    kv_dim: int
    head_dim: int
    rope: int
    heads: int
    topk: int
    window: int
    group: int
    record_group: int
    weight_block: int
    sinkhorn: int
    eps: float
    hc_eps: float
    post_multiplier: float

    @classmethod
    def of(cls, model: ModelSpec, tp: int) -> K1Sizes:
        """Sizes of `model` on one of `tp` ranks; ValueError if the heads do not divide."""
        attention, hyper, quant = model.attention, model.hyper, model.quantisation
        if attention.heads % tp:
            raise ValueError(f"{attention.heads} heads cannot be split over TP{tp}: use a divisor")
        return cls(
            hidden=model.hidden, streams=hyper.streams, q_rank=attention.q_lora_rank,
            kv_dim=attention.head_dim, head_dim=attention.head_dim, rope=attention.rope_dim,
            heads=attention.heads // tp, topk=model.indexer.topk, window=attention.window,
            group=quant.activation_group, record_group=quant.record_group,
            weight_block=quant.weight_block[0], sinkhorn=hyper.sinkhorn_iters, eps=model.rms_eps,
            hc_eps=hyper.eps, post_multiplier=hyper.post_multiplier,
        )  # fmt: skip

    @property
    def mix(self) -> int:
        """Gate projections: a pre and a post gate a stream, and the stream-mixing matrix."""
        return self.streams * (self.streams + 2)

    @property
    def qkv_rows(self) -> int:
        """Rows of the fused wq_a / wkv weight."""
        return self.q_rank + self.kv_dim

    @property
    def nope(self) -> int:
        """Dims of a head (and of a record) that are not rotated."""
        return self.head_dim - self.rope

    @property
    def q_rows(self) -> int:
        """Rows of wq_b on this rank."""
        return self.heads * self.head_dim

    @property
    def keys(self) -> int:
        """Entries of a key-table row."""
        return self.topk + self.window

    @property
    def record_data_bytes(self) -> int:
        """Bytes of a record's values: e4m3 for the un-rotated dims, bf16 for the rotated ones."""
        return self.nope + 2 * self.rope

    @property
    def record_scale_bytes(self) -> int:
        """Bytes of a record's scale word: a code a group, padded to a power of two."""
        return 1 << ceil(log2(self.nope // self.record_group))

    @property
    def record_bytes(self) -> int:
        """Bytes of one record."""
        return self.record_data_bytes + self.record_scale_bytes


@dataclass(frozen=True)
class SumOrder:
    """How the promised order splits sums (attention sheet 2.5, 3.3, 3.4, 3.6)."""

    lanes: int = 64
    waves: int = 8
    slice_columns: int = 32
    gate_group: int = 8
    gate_k: int = 4
    k_step: int = 128
    k_halves: int = 2
    norm_waves: int = 4
    norm_vector: int = 8
    gemv: str = "scaled_mfma"

    def slices(self, sizes: K1Sizes) -> int:
        """Column slices of the seam."""
        return sizes.hidden // self.slice_columns

    def names(self, sizes: K1Sizes) -> dict[str, float]:
        """Every number that a budget formula may name."""
        threads = self.lanes * self.norm_waves
        numbers = {name: float(v) for name, v in vars(self).items() if isinstance(v, int)}
        numbers |= {name: float(v) for name, v in vars(sizes).items()}
        return numbers | {
            "slices": float(self.slices(sizes)),
            "slice_k": float(self.slice_columns * sizes.streams),
            "norm_values": float(ceil(sizes.hidden / (threads * self.norm_vector)) * self.norm_vector),
            "q_values": float(ceil(sizes.q_rank / (threads * self.norm_vector)) * self.norm_vector),
            "kv_values": float(ceil(sizes.kv_dim / threads)),
            "wqkv_steps": float(ceil(sizes.hidden / self.k_halves / self.k_step / self.waves)),
            "wqb_steps": float(ceil(sizes.q_rank / self.k_step / self.waves)),
        }
