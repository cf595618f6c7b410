"""Rules of a cache's memory, and how many slots it has: what a kernel makes of base, stride and block.

A record lies in block slot // B at base + block * stride (64 bits) and inside it at 32-bit offsets: slot % B
times the record's data bytes, scale words behind the data of all B states (attention.md 2.1). Slots have 32
bits, bit 31 for the compressed cache (2.6).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .codes import StepCode
from .findings import StepFinding
from .given import CACHES, Given, extent

REACH = 1 << 31
WORDS = {"swa": "window cache", "comp": "compressed cache"}
ALIGN = 4


@dataclass(frozen=True)
class Cache:
    """A cache that kernels can address: states (or compressed rows) a block, and blocks its memory holds."""

    name: str
    block: int
    blocks: int

    @property
    def slots(self) -> int:
        """Slots that exist and that a kernel can name."""
        return min(self.blocks * self.block, REACH)

    @property
    def words(self) -> str:
        """The cache and its size, for messages."""
        return f"the {WORDS[self.name]} has {self.slots:,} slots ({self.blocks:,} blocks of {self.block})"


def is_read(given: Given, name: str) -> bool:
    """Whether the launches touch the cache, or it is given beside a table of its rows."""
    if name == "comp" and not given.ratio:
        return False
    return given.is_input(name) or given.arguments.get(name) is not None


def cache_of(given: Given, name: str) -> tuple[Cache | None, list[StepFinding]]:
    """The cache `name` (swa or comp) if its memory can be addressed, and what is wrong with it."""
    data, stride, block = given.tensor(name), given.number(f"{name}_stride"), given.number(f"{name}_block")
    if not is_read(given, name):
        return None, []
    found = _block_faults(name, block) if block is not None else []
    if data is None or stride is None or block is None or found:
        return None, found
    payload = block * given.dims.record_bytes
    found = _stride_faults(name, data, stride, block, payload) + _base_faults(name, data)
    size = extent(data)
    if size < payload:
        limit = f"one block of {block} has {payload:,}"
        fix = f"bind the {WORDS[name]} itself, and the states that one of its blocks has"
        found.append(StepFinding(StepCode.CACHE_SIZE, name, f"{size:,} bytes", limit, fix))
    usable = size >= payload and stride >= payload
    return (Cache(name, block, (size - payload) // stride + 1) if usable else None), found


def _block_faults(name: str, block: int) -> list[StepFinding]:
    argument, what = f"{name}_block", "it counts the states of a block"
    if block > 0:
        return []
    return [StepFinding(StepCode.NUMBER, argument, str(block), what, "take it from the cache's metadata")]


def _stride_faults(name: str, data: Tensor, stride: int, block: int, payload: int) -> list[StepFinding]:
    argument, found = f"{name}_stride", list[StepFinding]()
    fix = f"take the stride of dimension 0 of the {WORDS[name]}, in bytes"
    if stride < payload:
        limit = f"a block of {block} records has {payload:,} bytes, so blocks overlap"
        found.append(StepFinding(StepCode.CACHE_STRIDE, argument, f"{stride:,} bytes", limit, fix))
    if stride % ALIGN:
        limit = f"records are loaded in words of {ALIGN} bytes"
        found.append(StepFinding(StepCode.LAYOUT, argument, f"{stride:,} bytes", limit, fix))
    if payload >= REACH:
        limit = f"offsets inside a block have 31 bits, and this one has {payload:,} bytes"
        less = "make the cache with fewer states a block"
        found.append(StepFinding(StepCode.CACHE_REACH, f"{name}_block", f"{block:,} states", limit, less))
    if data.dim() > 1 and data.shape[0] > 1 and data.stride(0) != stride:
        limit = f"the tensor has {data.stride(0):,} bytes from block to block"
        found.append(StepFinding(StepCode.NUMBER, argument, f"{stride:,} bytes", limit, fix))
    return found


def _base_faults(name: str, data: Tensor) -> list[StepFinding]:
    found = []
    one = data[0] if data.dim() > 1 and data.shape[0] else data
    if not one.is_contiguous():
        fix = f"bind the {WORDS[name]} with whole blocks: records of a block one behind the other"
        got = f"shape {list(data.shape)}, strides {list(data.stride())}"
        found.append(StepFinding(StepCode.LAYOUT, name, got, "a block's bytes must be contiguous", fix))
    if data.device.type != "meta" and data.data_ptr() % ALIGN:
        limit = f"records are loaded in words of {ALIGN} bytes"
        fix = "bind a tensor that starts at a block"
        found.append(StepFinding(StepCode.LAYOUT, name, f"address {data.data_ptr():#x}", limit, fix))
    return found


def caches_of(given: Given) -> tuple[dict[str, Cache], list[StepFinding]]:
    """Both caches by name, as far as they can be addressed, and everything that is wrong with them."""
    got = {name: cache_of(given, name) for name in CACHES}
    known = {name: cache for name, (cache, _) in got.items() if cache is not None}
    return known, [f for _, found in got.values() for f in found]
