"""Freed memory stays with the process, for work that takes and frees tensors of hundreds of megabytes.

The reference computes in float64 on whole weights. glibc maps every block above 32 MB by itself and gives it
back when it is freed, so each such tensor is made of pages that the kernel clears first: of the judgement of
one layer of 6 rows on two ranks that was more than half of its processor time (1.9 million page faults; 400
with the blocks kept). What is meant to be mapped lazily asks for pages of its own
(`runtime.weights.fp4_copies.lazily_zero`).
"""

from __future__ import annotations

import ctypes
import gc

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX of glibc's malloc.h
KEPT_BYTES = 1 << 30
"""Free memory at the top of the heap that the process keeps."""


def keep_heap() -> bool:
    """Let glibc take large blocks from its heap and keep what is freed; False where there is no glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, KEPT_BYTES))


def give_back() -> None:
    """Every free page of the heap goes back to the system, those between live blocks too (glibc only)."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
