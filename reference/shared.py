"""The shared expert: gate and up rounded to bf16, a full-precision silu, MXFP8, down (FFN math 5).

It differs from a routed expert in where it rounds (gate, up, silu and their product are bf16 each) and in its
sigmoid (an accurate exp and an IEEE quotient).
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import f32
from .formats import F32, F64, bf16
from .front import gemv_part
from .layer_sizes import LayerOrder, padded

BF16 = torch.bfloat16
LOG2E_LOW = 1.9259629911266175e-8  # log2(e) minus its float32
UNDERFLOW, OVERFLOW = -103.28, 88.72


def exp(z: Tensor) -> Tensor:
    """Float32 e**z by exp2 of a fraction and an exact power of two."""
    product = z * f32.LOG2E
    whole = f32.rint(product)
    hi, lo = torch.tensor(f32.LOG2E, dtype=F32), torch.tensor(LOG2E_LOW, dtype=F32)
    rest = f32.fma(z, lo, f32.fma(z, hi, -product))
    value = torch.ldexp(f32.exp2((product - whole) + rest), whole.clamp(-160, 130).to(torch.int32))
    value = torch.where(z < UNDERFLOW, 0.0, value)
    return torch.where(z > OVERFLOW, torch.inf, value)


def activation_exact(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    """float64 values on the bf16 grid: bf16(silu) times up, rounded."""
    g, u = gate.to(F64).clamp_max(limit), up.to(F64).clamp(-limit, limit)
    return bf16(bf16(torch.nn.functional.silu(g)) * u)


def activation(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    """bf16 of the same in float32."""
    g, u = gate.to(F32).clamp_max(limit), up.to(F32).clamp(-limit, limit)
    silu = (g / (1 + exp(-g))).to(BF16).to(F32)
    return (silu * u).to(BF16)


def gemv(x: Tensor, w: Tensor, order: LayerOrder) -> Tensor:
    """Float32 [S, N]: K padded to whole steps, waves round robin (rows and columns of zeros add nothing)."""
    extra = padded(x.shape[1], order.k_step) - x.shape[1]
    pad = torch.nn.functional.pad
    return gemv_part(pad(x, (0, extra)), pad(w, (0, extra)), order)
