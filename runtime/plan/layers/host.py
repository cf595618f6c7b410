"""What a server says of itself and of its layers, and the reasons that follow from it alone.

Invariants
 - Ints, bools and strings: a host fills these in from its configuration, before weights and without a GPU
   call but for what the GPU is.
 - None is what a host does not know; nothing is held against it.
 - What an arch needs of its host follows from its strategy (`needs_of`), so that no GPU is named here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from ....specs.schema import ArchSpec, ModelSpec
from ..arith import align_up
from ..deployment import KV_DTYPE, Deployed, found_reasons
from ..layer import LayerKind
from ..placement import grid_of
from ..strategy import strategy_of, strategy_reasons
from ..unsupported import Reason
from .codes import ServeCode, reason
from .features import feature_reasons

WINDOW_ALIGN = 64
"""Window lists of drafts are this many entries wide, or a multiple (runtime.md 2.2)."""


class Path(StrEnum):
    """How a layer of a decode step runs."""

    WHOLE = "whole"  # K1 and K2 (and the key list between them), nothing of the host's
    FFN = "ffn"  # the host's attention, then one launch
    STOCK = "stock"  # the host's own path


@dataclass(frozen=True)
class Host:
    """A server: its GPU, ranks, formats and options.

    `drafts` is the count of drafts a request (None: the model's, 0: no draft model), `capture` the row
    counts of its FULL graphs, `builds` the ids of its bundle (None: every width that the plan admits),
    `bundle_arch` what that was made for, `features` names of `features.FEATURES`, `model` the prefix of the
    model's build ids.
    """

    arch: str
    tp: int
    compute_units: int | None = None
    kv_dtype: str = KV_DTYPE
    indexer: str = "fp8"
    moe_backend: str | None = None
    fused_seam: bool | None = None
    expert_parallel: bool = False
    dp: int = 1
    pp: int = 1
    cp: int = 1
    drafts: int | None = None
    capture: tuple[int, ...] = ()
    builds: frozenset[str] | None = None
    bundle_arch: str | None = None
    features: tuple[str, ...] = ()
    model: str = "dsv41"


@dataclass(frozen=True)
class HostLayer:
    """A layer of a server; `made` is the path that the host's object was constructed for, once it is."""

    number: int
    found: Deployed = Deployed()
    indexer: str | None = None
    compressor: bool | None = None
    fused_seam: bool | None = None
    sequence_parallel: bool = False
    made: Path | None = None


@dataclass(frozen=True)
class Needs:
    """What kernels of an arch need of their host; empty or None where anything will do."""

    indexer: str
    option: str
    moe_backend: str | None
    fused_seam: bool


def needs_of(arch: ArchSpec) -> Needs:
    """Where GEMVs are scaled MFMAs, kernels read AITER's tensors and round as its fused seam does, and the
    host's MXFP4 indexer exists. Elsewhere they read copies of their own, no fused seam exists (the host's
    own chain differs by one rounding, which is accepted), and the indexer is FP8 (runtime.md 2.1, 2.2)."""
    if not strategy_reasons(arch) and strategy_of(arch).gemv == "scaled_mfma":
        option = '--attention-config \'{"indexer_kv_dtype":"mxfp4"}\''
        return Needs("mxfp4", option, "AITER_MXFP4_BF16", fused_seam=True)
    return Needs("fp8", '--attention-config \'{"indexer_kv_dtype":"fp8"}\'', None, fused_seam=False)


def drafts_of(host: Host, model: ModelSpec) -> int:
    """Drafts a request."""
    return model.draft.block_size if host.drafts is None else host.drafts


def draft_window(model: ModelSpec, drafts: int) -> int:
    """Entries a row of the draft's window lists: the window and the block, in whole 64s."""
    return align_up(model.attention.window + drafts, WINDOW_ALIGN)


def server_reasons(host: Host, model: ModelSpec, arch: ArchSpec) -> list[Reason]:
    """Every reason against the whole server, but for its arch's and TP size's builds."""
    found = feature_reasons(host.features, experts=model.moe.experts)
    if host.expert_parallel:
        found.append(reason(ServeCode.EXPERT_PARALLEL, experts=model.moe.experts))
    sizes = (
        (ServeCode.DATA_PARALLEL, host.dp),
        (ServeCode.PIPELINE_PARALLEL, host.pp),
        (ServeCode.CONTEXT_PARALLEL, host.cp),
    )
    found += [reason(code, size=size) for code, size in sizes if size > 1]
    found += _gpu_reasons(host, arch)
    return list({r.code: r for r in found}.values())  # a size says more than the name of its feature


def _gpu_reasons(host: Host, arch: ArchSpec) -> list[Reason]:
    """What the GPU, its bundle and the host's tensors say."""
    grid, need, found = grid_of(arch).workgroups, needs_of(arch), list[Reason]()
    if host.compute_units is not None and host.compute_units < grid:
        found.append(reason(ServeCode.COMPUTE_UNITS, units=host.compute_units, grid=grid))
    if host.bundle_arch not in (None, arch.name):
        found.append(reason(ServeCode.BUNDLE_ARCH, found=host.bundle_arch, arch=arch.name, tp=host.tp))
    if need.moe_backend is not None and host.moe_backend not in (None, need.moe_backend):
        values = {"backend": host.moe_backend, "arch": arch.name, "want": need.moe_backend}
        found.append(reason(ServeCode.MOE_BACKEND, **values))
    return found


def layer_reasons(
    host: Host, model: ModelSpec, arch: ArchSpec, kind: LayerKind, layer: HostLayer
) -> list[Reason]:
    """Every reason that is one layer's: what the host's layer is, against what the kernels compute."""
    need, found = needs_of(arch), list[Reason]()
    if layer.sequence_parallel:
        found.append(reason(ServeCode.SEQUENCE_PARALLEL))
    seam = host.fused_seam if layer.fused_seam is None else layer.fused_seam
    if need.fused_seam and seam is False:
        found.append(reason(ServeCode.FUSED_SEAM))
    found += found_reasons(model, kind, _described(host, model, kind, layer.found))
    has_indexer = kind.index if layer.found.index is None else layer.found.index
    indexer = host.indexer if layer.indexer is None else layer.indexer
    if has_indexer and indexer != need.indexer:
        values = {"found": indexer, "arch": arch.name, "want": need.indexer, "option": need.option}
        found.append(reason(ServeCode.INDEXER, **values))
    if layer.compressor and not has_indexer:
        found.append(reason(ServeCode.COMPRESSOR_ALONE))
    return found


def _described(host: Host, model: ModelSpec, kind: LayerKind, found: Deployed) -> Deployed:
    """What a layer says of itself, with the server's word where it says nothing."""
    window = found.window
    if window is None and kind.draft:
        window = draft_window(model, drafts_of(host, model))
    return replace(found, kv_dtype=found.kv_dtype or host.kv_dtype, window=window)


def unknown_layer(model: ModelSpec, number: int) -> Reason:
    """The reason of a layer that the model spec has not."""
    last = len(model.topology.compress_ratios) - 1
    return reason(ServeCode.LAYER_UNKNOWN, model=model.name, layer=number, last=last)
