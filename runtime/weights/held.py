"""Every weight of a layer as kernels read it, from what vLLM holds after loading: views, or exact copies.

Where kernels read tensors row by row (`row_major`), the host's own tensors serve and are only verified:
dtype, shape, strides. Where they read own copies (`tile_major`), linears are recovered (`dequantised`) and
experts taken from the plain tensors (`held_experts`). Norms, gates and router are the host's own anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ...reference.layer_sizes import LayerSizes
from .copies import Flavour, Layout, encoded
from .errors import WeightFinding, WeightsError
from .fp4_copies import NAMES, empty_routed, routed_refusals, write_routed
from .held_experts import PATHS, HeldExperts, plain_faults, shuffled_faults, shuffled_views
from .held_names import ANY, LINEARS, PARTS, copy_shapes
from .held_reading import Held, Reading

Only = Literal["dense", "routed"]


@dataclass(frozen=True)
class LayerCopies:
    """Launch-argument name -> tensor; `k1` and `back` are empty for a layer whose attention the host runs."""

    k1: dict[str, Tensor]
    back: dict[str, Tensor]
    ffn: dict[str, Tensor]

    @property
    def k2(self) -> dict[str, Tensor]:
        """K2's weights: the attention back's and the FFN half's."""
        return self.back | self.ffn


def held_copies(
    held: Held, sizes: LayerSizes, fp8: Flavour, layout: Layout, *, attention: bool = True,
    only: Only | None = None, selected: Iterable[int] | None = None, existing: LayerCopies | None = None,
) -> LayerCopies:  # fmt: skip
    """A rank's weights of one layer by launch argument, from `held` (see `held_tensors`).

    `attention`: the layer runs whole; else its FFN launch alone. `only`: all but the routed experts, or those
    alone (a host that converts its experts does so at another time than its linears). `selected`: the experts
    to copy, all by default. `existing`: an earlier result, overwritten in place: its tensors, with their
    addresses, are returned, and hold the new values even where the host gave its tensors new memory.

    Raises WeightsError with everything that is wrong, by tensor, block and reason; nothing is then written.
    ValueError for FNUZ in row-major order: no host holds that.
    """
    if layout == "row_major" and fp8 == "fnuz":
        raise ValueError("kernels that read the host's tensors as they are read OCP bytes")
    reading, own = Reading(held, sizes), layout == "tile_major"
    parts = ("k1", "back", "ffn") if attention else ("ffn",)
    made: dict[str, dict[str, Tensor]] = {part: {} for part in ("k1", "back", "ffn")}
    if only != "routed":
        for part in parts:
            made[part] = reading.plain(part) | _linears(reading, part, fp8, layout)
    numbers = sorted(set(range(sizes.experts) if selected is None else selected))
    routed = {name: held[path] for name, path in PATHS.items() if path in held}
    experts = _experts(reading, routed, numbers, fp8) if own and only != "dense" else None
    if not own and only != "dense":
        reading.findings += shuffled_faults(routed, sizes)
    if existing is not None:
        reading.findings += _misfits(existing, reading, layout, parts, only)
    if reading.findings:
        raise WeightsError(reading.findings)
    if only != "dense" and not own:
        made["ffn"] |= shuffled_views(routed)
    result = LayerCopies(**made) if existing is None else _overwritten(existing, made)
    if experts is not None:
        if existing is None:
            result.ffn.update(empty_routed(sizes, layout, routed["w13"].device))
        write_routed(result.ffn, experts, numbers, sizes, fp8, layout)
    return result


def _linears(reading: Reading, part: str, fp8: Flavour, layout: Layout) -> dict[str, Tensor]:
    """A launch part's linears: views, or own copies of what could be recovered."""
    out: dict[str, Tensor] = {}
    for name in (n for n in LINEARS if PARTS[n] == part):
        if layout == "row_major":
            out |= reading.viewed(name, LINEARS[name])
            continue
        pair = reading.recovered(name, LINEARS[name], fp8)
        if pair is not None and not reading.findings:
            out |= encoded({name: pair}, fp8, layout)
    return out


def _experts(reading: Reading, routed: Held, numbers: list[int], fp8: Flavour) -> HeldExperts | None:
    """The experts to copy, None if they cannot be."""
    found = plain_faults(routed, reading.sizes)
    outside = [n for n in numbers if not 0 <= n < reading.sizes.experts]
    if outside:
        what = f"experts {outside} are not of this layer, which has {reading.sizes.experts}"
        found.append(WeightFinding("held weights", PATHS["w13"], what, "select experts of the layer"))
    if not found:
        experts = HeldExperts(routed, reading.sizes)
        found += experts.padding_faults(numbers)
        found += routed_refusals(experts, numbers, reading.sizes, fp8, "tile_major")
    reading.findings += found
    return None if found else experts


def _misfits(
    existing: LayerCopies, reading: Reading, layout: Layout, parts: Iterable[str], only: Only | None
) -> list[WeightFinding]:
    """Tensors of an earlier result that are missing or of another kind."""
    fix = "pass what an earlier call for the same layer and strategy returned"
    found = []
    for part in parts:
        own: dict[str, Tensor] = getattr(existing, part)
        for name, (dtype, shape) in copy_shapes(reading.sizes, layout, part).items():
            if only is not None and (name in NAMES) != (only == "routed"):
                continue
            old = own.get(name)
            if old is None or old.dtype != dtype or not _fits(old.shape, shape):
                kind = "missing" if old is None else f"{old.dtype} {list(old.shape)}"
                what = f"the earlier result is {kind}, expected {dtype} {list(shape)}"
                found.append(WeightFinding("held weights", f"{part}.{name}", what, fix))
    table, old = reading.held.get("attn.rotary_emb.cos_sin_cache"), existing.k1.get("cos_sin")
    if only != "routed" and table is not None and old is not None and table.shape != old.shape:
        what = f"the RoPE table has shape {list(table.shape)}, the earlier one {list(old.shape)}"
        found.append(WeightFinding("held weights", "k1.cos_sin", what, fix))
    return found


def _fits(shape: torch.Size, wanted: tuple[int, ...]) -> bool:
    return len(shape) == len(wanted) and all(w in (ANY, n) for n, w in zip(shape, wanted, strict=True))


def _overwritten(existing: LayerCopies, made: dict[str, dict[str, Tensor]]) -> LayerCopies:
    """`existing` with the values of `made`; tensors that are the host's very own have them already."""
    for part, tensors in made.items():
        for name, new in tensors.items():
            old: Tensor = getattr(existing, part)[name]
            if old.data_ptr() != new.data_ptr():
                old.copy_(new)
    return existing
