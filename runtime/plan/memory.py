"""Bytes on one rank before anything is allocated: weight copies, scratch, peer and runner buffers, and what
is left.

Copies exist where the arch's weight layout is its own (`strategy.weight_layout`): elsewhere kernels read what
vLLM holds. Which tensors a layer needs depends on its launches: whole layers copy their attention weights
too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ...specs.schema import ArchSpec, ModelSpec
from .abi import ITEM_BYTES, Row
from .dims import Dims, dims_of
from .ffn.abi import ffn_rows
from .k1.abi import k1_abi
from .k2.abi import ZERO_RECORD_BYTES, attention_rows
from .keys import BuildKey
from .layout import layer_layout, peer_of
from .placement import grid_of
from .strategy import Strategy, strategy_of
from .tags import epoch_words
from .width import WidthReport

GIB = 1 << 30
ATTENTION = ("wqkv", "wqkv_s", "wqb", "wqb_s", "woa", "woa_s", "wob", "wob_s")
SHARED = ("sgu", "sgu_s", "sw2", "sw2_s")
ROUTED = ("w13", "w13_s", "w2", "w2_s")
CAPACITIES = (192, 256, 288)
"""GiB of the GPUs that the arch specs name: MI300X, MI325X, MI350X and MI355X."""


@dataclass(frozen=True)
class Copies:
    """Copies of one kind of tensor: `layers` layers of `each` bytes."""

    what: str
    layers: int
    each: int

    @property
    def bytes(self) -> int:
        """Bytes of all layers."""
        return self.layers * self.each


@dataclass(frozen=True)
class Left:
    """What one GPU has left for the KV cache and vLLM's own working memory; negative: it does not start."""

    capacity_gib: int
    admitted: int  # bytes that vLLM may use of it
    bytes: int


@dataclass(frozen=True)
class Memory:
    """The statement of one rank."""

    arch: str
    tp: int
    whole_drafts: bool
    copies: tuple[Copies, ...]
    copied: int
    scratch: tuple[tuple[int, int], ...]  # (rows, bytes) of each step width
    draft_scratch: tuple[tuple[int, int], ...]
    peer: int
    runner: int
    loaded: int | None  # vLLM's own weights
    loaded_source: str
    total: int | None
    left: tuple[Left, ...]

    @property
    def buffers(self) -> int:
        """Scratch of all widths, peer and runner buffers."""
        return sum(size for _, size in (*self.scratch, *self.draft_scratch)) + self.peer + self.runner


def memory_of(
    model: ModelSpec,
    arch: ArchSpec,
    tp: int,
    report: WidthReport,
    widths: Sequence[int],
    *,
    whole_drafts: bool = True,
    used_percent: int = 90,
    loaded: int | None = None,
) -> Memory:
    """The statement for steps of `widths` rows. `whole_drafts`: draft layers run whole and have a runner of
    their own; else as the FFN launch on the target's. `loaded`: bytes of vLLM's weights, if the model spec
    has none."""
    copies = copies_of(model, arch, tp, whole_drafts=whole_drafts)
    copied = sum(c.bytes for c in copies)
    stated = next((one for one in model.loaded if one.tp == tp), None)
    source = stated.source if stated and loaded is None else "given"
    held = loaded if loaded is not None else (round(stated.gib * 1000) * GIB // 1000 if stated else None)
    runners = 2 if whole_drafts else 1
    d = dims_of(model, tp)
    peer = runners * peer_of(d, report.limit.rows, report.limit.rows).total
    runner = runners * runner_bytes(d, report.limit.rows, grid_of(arch).workgroups)
    scratch = _scratch(model, arch, tp, report, widths, draft=False)
    drafts = _scratch(model, arch, tp, report, widths, draft=True) if whole_drafts else ()
    buffers = sum(size for _, size in (*scratch, *drafts)) + peer + runner
    total = None if held is None else held + copied + buffers
    left = [
        Left(gib, gib * GIB * used_percent // 100, gib * GIB * used_percent // 100 - (total or 0))
        for gib in CAPACITIES
        if total is not None
    ]
    return Memory(
        arch=arch.name,
        tp=tp,
        whole_drafts=whole_drafts,
        copies=copies,
        copied=copied,
        scratch=scratch,
        draft_scratch=drafts,
        peer=peer,
        runner=runner,
        loaded=held,
        loaded_source=source if held is not None else "unknown",
        total=total,
        left=tuple(left),
    )


def copies_of(model: ModelSpec, arch: ArchSpec, tp: int, *, whole_drafts: bool) -> tuple[Copies, ...]:
    """Weight copies of a rank; none where kernels read the tensors as loaded."""
    how = strategy_of(arch)
    if how.weight_layout == "row_major":
        return ()
    target, draft = (_tensor_bytes(dims_of(model, tp, draft=is_draft), how) for is_draft in (False, True))
    layers, drafts = model.topology.layers, model.topology.draft_layers
    return (
        Copies("routed experts", layers, _sum(target, ROUTED)),
        Copies("routed experts of draft layers", drafts, _sum(draft, ROUTED)),
        Copies("shared experts", layers + drafts, _sum(target, SHARED)),
        Copies("attention linears", layers + (drafts if whole_drafts else 0), _sum(target, ATTENTION)),
    )


def _tensor_bytes(d: Dims, how: Strategy) -> dict[str, int]:
    """Bytes of every launch argument that has a fixed size, by name."""
    key = BuildKey("k2", "", d.tp, 1)
    rows: list[Row] = attention_rows(d, key, how)
    rows += ffn_rows(d, 1, how, 1, 0, k2=True, timeline=False)
    found = {name: prod(shape) * ITEM_BYTES[dtype] for name, _, dtype, shape, *_ in rows}
    return found | {a.name: a.bytes or 0 for a in k1_abi(d, key, how, 1, 0).arguments if a.owner == "layer"}


def _sum(sizes: dict[str, int], names: Sequence[str]) -> int:
    return sum(sizes[name] for name in names)


def runner_bytes(d: Dims, limit: int, grid: int) -> int:
    """Buffers that a runner keeps from K1 to K2 and for the indexer, at the widest step."""
    seam = d.streams * d.hidden * 2 + (d.streams * (2 + d.streams)) * 4 + d.streams * 4
    row = d.q_rows * 2 + d.keys * 4 + 2 * 4 + d.hidden * 2 + d.q_rank * 2 + seam
    return limit * row + epoch_words(grid).words * 4 + ZERO_RECORD_BYTES


def _scratch(
    model: ModelSpec, arch: ArchSpec, tp: int, report: WidthReport, widths: Sequence[int], *, draft: bool
) -> tuple[tuple[int, int], ...]:
    return tuple(
        (s, layer_layout(model, arch, BuildKey("k2", arch.name, tp, s), report.width, draft=draft).total)
        for s in widths
    )
