"""K1's weights of one layer on one rank, in the published form, and their dequantised values.

Invariants
 - Bytes are OCP e4m3 and codes are E8M0 as the checkpoint stores them, whatever the architecture: a copy
   re-encoded for a GPU holds the same values or is refused, so the reference needs one form only.
 - Dequantised values are float64 and exact (3 mantissa bits times a power of two).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import torch
from torch import Tensor

from ..specs.schema import ModelSpec
from .draws import Draws
from .formats import F32, OCP, decode_table, pow2, table_take
from .sizes import K1Sizes


def dequantise(data: Tensor, codes: Tensor, block: int) -> Tensor:
    """float64 [N, K] of uint8 [N, K] and its codes [N / block, K / block]."""
    scale = pow2(codes.to(torch.int64) - 127).repeat_interleave(block, 1)
    value = table_take(decode_table(OCP), data)
    return torch.unflatten(value, 0, (-1, block)).mul_(scale[:, None]).flatten(0, 1)


def magnitudes(data: Tensor, codes: Tensor, block: int) -> Tensor:
    """float32 [N, K]: |W| with subnormals counted as the smallest normal value.

    The aligned-truncation model of an MFMA works in units of the largest product *exponent*, which for a
    subnormal is that of the smallest normal; error bounds are sums over these magnitudes.
    """
    table = decode_table(OCP).abs()
    table = torch.where(table > 0, table.clamp_min(2.0**OCP.smallest_exponent), table).to(F32)
    scale = pow2(codes.to(torch.int64) - 127).to(F32).repeat_interleave(block, 1)
    value = table_take(table, data)
    return torch.unflatten(value, 0, (-1, block)).mul_(scale[:, None]).flatten(0, 1)


@dataclass(frozen=True)
class K1Weights:
    """Weights under the names of the launch arguments; shapes for hidden size D, streams C, ranks' rows Q."""

    hc_fn: Tensor  # f32 [C * (C + 2), C * D]
    hc_scale: Tensor  # f32 [3]
    hc_base: Tensor  # f32 [C * (C + 2)]
    attn_w: Tensor  # bf16 [D]
    wqkv: Tensor  # uint8 (OCP e4m3) [q_rank + kv_dim, D]
    wqkv_s: Tensor  # uint8 (E8M0) [rows / 32, D / 32]
    qn_w: Tensor  # bf16 [q_rank]
    kvn_w: Tensor  # bf16 [kv_dim]
    wqb: Tensor  # uint8 (OCP e4m3) [Q, q_rank]: this rank's heads
    wqb_s: Tensor  # uint8 (E8M0) [Q / 32, q_rank / 32]
    block: int = 32

    @cached_property
    def wqkv_values(self) -> Tensor:
        """float64 [q_rank + kv_dim, D]."""
        return dequantise(self.wqkv, self.wqkv_s, self.block)

    @cached_property
    def wqb_values(self) -> Tensor:
        """float64 [Q, q_rank]."""
        return dequantise(self.wqb, self.wqb_s, self.block)

    @cached_property
    def wqkv_magnitudes(self) -> Tensor:
        """float32 [q_rank + kv_dim, D]."""
        return magnitudes(self.wqkv, self.wqkv_s, self.block)

    @cached_property
    def wqb_magnitudes(self) -> Tensor:
        """float32 [Q, q_rank]."""
        return magnitudes(self.wqb, self.wqb_s, self.block)

    def tensors(self) -> dict[str, Tensor]:
        """Name -> tensor in launch-argument order."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "block"}


def without_nan(octets: Tensor) -> Tensor:
    """Uniform bytes as OCP codes over the whole e4m3 range: the two NaN codes become the largest values."""
    return torch.where((octets & 0x7F) == 0x7F, octets - 1, octets)


def random_linear(
    draws: Draws, rows: int, columns: int, block: int, codes: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Bytes [rows, columns] and codes of an MXFP8 linear with the checkpoint's statistics."""
    low, high = codes
    scale = draws.integers(low, high + 1, -(-rows // block), -(-columns // block))
    return without_nan(draws.octets(rows, columns)), scale.to(torch.uint8)


def random_gate(draws: Draws, sizes: K1Sizes) -> tuple[Tensor, Tensor, Tensor]:
    """hc_fn, hc_scale, hc_base with gates away from the easy middle.

    One pre gate in four is nearly closed (so that the eps under it shows), and the spread of the mixing
    logits makes the last Sinkhorn round matter.
    """
    streams = sizes.streams
    fn = draws.normal(sizes.mix, streams * sizes.hidden) * (streams * sizes.hidden) ** -0.5
    base = torch.cat([
        torch.linspace(-12.0, 1.5, streams, dtype=torch.float64),
        draws.normal(streams) * 0.5,
        3.0 * draws.normal(streams * streams),
    ])  # fmt: skip
    scale = torch.tensor([1.0, 0.75, 2.0], dtype=F32)
    return fn.to(F32), scale, base.to(F32)


def random_norm(draws: Draws, columns: int) -> Tensor:
    """bf16 [columns]: a norm weight around one."""
    return (1 + 0.2 * draws.normal(columns)).to(torch.bfloat16)


def random_weights(model: ModelSpec, tp: int, seed: int = 0) -> K1Weights:
    """Weights in memory for tests that need no file (rank-sized wq_b, not a slice of a whole one)."""
    sizes, codes = K1Sizes.of(model, tp), model.quantisation.dense_code_range
    draws = Draws(seed, "weights")
    fn, scale, base = random_gate(draws, sizes)
    attn_w, qn_w, kvn_w = (random_norm(draws, n) for n in (sizes.hidden, sizes.q_rank, sizes.kv_dim))
    wqkv, wqkv_s = random_linear(draws, sizes.qkv_rows, sizes.hidden, sizes.weight_block, codes)
    wqb, wqb_s = random_linear(draws, sizes.q_rows, sizes.q_rank, sizes.weight_block, codes)
    return K1Weights(fn, scale, base, attn_w, wqkv, wqkv_s, qn_w, kvn_w, wqb, wqb_s, sizes.weight_block)
