"""Every FlyDSL call that FlyDSL does not promise, in one package.

Invariants:

- Nothing else in ``mono/`` imports ``flydsl._mlir`` or names a ROCDL builder or an LLVM intrinsic, so a
  new FlyDSL release is met here and nowhere else.
- Offsets are bytes. An offset is a Python int or an ``Int32``; the constant part of a sum folds into the
  instruction. Values come back as ``Int32``, ``Float32`` or a ``Vector`` of them.
- ``device`` marks a helper whose ``if`` / ``for`` / ``while`` on traced values become control flow of
  the kernel. Such a helper takes plain records and never calls a *method* of one inside such a region
  (FlyDSL would try to carry the record through the branch).
"""

import flydsl.compiler as flyc

from .control import assembly, clock, end_program, fresh, memory_changes, opaque, sleep, spin, wait_stores
from .memory import (
    SC1,
    buffer,
    buffer_load,
    buffer_store,
    global_load,
    global_store,
    lds_block,
    lds_load,
    lds_store,
)
from .values import undef
from .vector import (
    any_lane,
    dpp,
    exp2,
    fma,
    gather,
    lane_swap,
    ldexp_one,
    max_plain,
    max_u16x2,
    mfma_f32,
    mfma_fp8,
    mfma_scaled,
    pack_fp8,
    perm,
    rcp,
    read_lane,
    rsq,
    swizzle,
    uniform,
)

__all__ = [
    "SC1",
    "any_lane",
    "assembly",
    "buffer",
    "buffer_load",
    "buffer_store",
    "clock",
    "device",
    "dpp",
    "end_program",
    "exp2",
    "fma",
    "fresh",
    "gather",
    "global_load",
    "global_store",
    "lane_swap",
    "ldexp_one",
    "lds_block",
    "lds_load",
    "lds_store",
    "max_plain",
    "max_u16x2",
    "memory_changes",
    "mfma_f32",
    "mfma_fp8",
    "mfma_scaled",
    "opaque",
    "pack_fp8",
    "perm",
    "rcp",
    "read_lane",
    "rsq",
    "sleep",
    "spin",
    "swizzle",
    "undef",
    "uniform",
    "wait_stores",
]

device = flyc.jit
