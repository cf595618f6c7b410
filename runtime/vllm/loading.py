"""Weights of a decoder layer at load and at reload.

Invariants
 - Where kernels read copies of their own, these are made while vLLM loads, so that they are model memory when
   the KV cache is sized: routed experts before vLLM converts them, each linear right after vLLM processed it.
 - A copy is made once. Every later run of the same hook (a reload) writes into it: launches and captured
   graphs hold its address. Copies are no parameters and no buffers, so vLLM's reload does not move them.
 - What kernels read as vLLM has it (all weights where they read row by row; norms, gates and router anywhere)
   is viewed when loading has ended: vLLM's reload keeps the storage of its own tensors.
 - A hook that raises leaves the layer refused (`Copies.broken`), until a later run of all hooks succeeds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...reference.layer_sizes import LayerSizes
from ..plan.layers.codes import ServeCode, reason
from ..plan.strategy import Strategy
from ..plan.unsupported import Reason
from ..runner import LayerWeights
from ..weights.copies import encoded
from ..weights.errors import WeightFinding, WeightsError
from ..weights.fp4_copies import NAMES
from ..weights.held import LayerCopies, held_copies
from ..weights.held_experts import PATHS
from ..weights.held_names import ATTENTION, LINEARS, PARTS, SHARED, held_tensors
from ..weights.held_reading import Reading


class Copies:
    """A layer's weights as kernels read them; `arch` and `tp` are for texts."""

    def __init__(
        self, layer: Any, sizes: LayerSizes, strategy: Strategy, *, attention: bool, where: tuple[str, int]
    ) -> None:
        self.layer, self.sizes, self.strategy, self.attention = layer, sizes, strategy, attention
        self.number, self._where = int(layer.attn.layer_id), where
        self.parts: dict[str, dict[str, Tensor]] = {"k1": {}, "back": {}, "ffn": {}}
        self.broken: dict[str, Reason] = {}
        self._taken: set[int] = set()
        self._loaded = False

    @property
    def own(self) -> bool:
        """Whether kernels read copies."""
        return self.strategy.weight_layout == "tile_major"

    @property
    def nbytes(self) -> int:
        """Bytes of what was copied."""
        return sum(t.nbytes for part in self.parts.values() for t in part.values()) if self.own else 0

    # ------------------------------------------------------------------ hooks

    def hook(self) -> None:
        """Wrap vLLM's processing of the layer's tensors; nothing where kernels read those themselves."""
        if not self.own:
            return
        experts = self.layer.ffn.experts.routed_experts
        _around(experts, before=self._routed_hook)
        for name, path in ((SHARED | ATTENTION) if self.attention else SHARED).items():
            module = self.layer
            for part in path.split("."):
                module = getattr(module, part)
            _around(module, after=partial(self._linear_hook, name))

    def _linear_hook(self, name: str, module: Any) -> None:
        self._guarded(name, partial(self._linear, name))

    def _routed_hook(self, module: Any) -> None:
        self._guarded("routed experts", self._routed)

    def _guarded(self, what: str, action: Callable[[], None]) -> None:
        """Run a part of loading; what it raises stays the layer's state until it succeeds."""
        try:
            action()
        except (WeightsError, torch.OutOfMemoryError) as error:
            self.broken[what] = why = self._why(what, error)
            if isinstance(error, torch.OutOfMemoryError):
                place = f"{self._where[0]} TP{self._where[1]}"
                raise WeightsError([WeightFinding(place, "", why.text, why.fix)]) from error
            raise
        self.broken.pop(what, None)

    def _why(self, what: str, error: Exception) -> Reason:
        text = str(error).strip().splitlines()[0]
        tensor = f"layer {self.number}, {what}"
        if isinstance(error, torch.OutOfMemoryError):
            return reason(ServeCode.OUT_OF_MEMORY, tensor=tensor, what=text, arch=self._where[0])
        code = ServeCode.RELOAD_FAILED if self._loaded else ServeCode.WEIGHTS_UNFIT
        return reason(code, tensor=tensor, what=text)

    def _routed(self) -> None:
        """Take the experts out of the plain tensors; those that are all zero (never loaded) are left out."""
        held = {p: t for p, t in held_tensors(self.layer, attention=False).items() if p in PATHS.values()}
        own = {n: t for n, t in self.parts["ffn"].items() if n in NAMES}
        self._taken |= _filled(held)
        made = held_copies(
            held, self.sizes, self.strategy.fp8, "tile_major", attention=False, only="routed",
            selected=self._taken, existing=LayerCopies({}, {}, own) if own else None,
        )  # fmt: skip
        self.parts["ffn"] |= made.ffn

    def _linear(self, name: str) -> None:
        """Copy one linear, into its earlier copy if there is one."""
        path, part = LINEARS[name], self.parts[PARTS[name]]
        held = {p: t for p, t in held_tensors(self.layer).items() if p.startswith(f"{path}.")}
        reading = Reading(held, self.sizes)
        pair = reading.recovered(name, path, self.strategy.fp8)
        if reading.findings or pair is None:
            raise WeightsError(reading.findings)
        for key, value in encoded({name: pair}, self.strategy.fp8, "tile_major").items():
            if key in part:
                part[key].copy_(value)
            else:
                part[key] = value

    # ------------------------------------------------------------------ after loading

    def weights(self) -> LayerWeights:
        """Everything that the layer's launches read. Raises WeightsError with all findings."""
        held = held_tensors(self.layer, attention=self.attention)
        if not self.own:
            made = held_copies(
                held, self.sizes, self.strategy.fp8, "row_major", attention=self.attention, selected=()
            )
            return LayerWeights(self.number, made.k1, made.back, made.ffn)
        reading = Reading(held, self.sizes)
        plain = {
            part: reading.plain(part) for part in (("k1", "back", "ffn") if self.attention else ("ffn",))
        }
        for name in (n for n in LINEARS if self.attention or PARTS[n] == "ffn"):
            if name not in self.parts[PARTS[name]]:
                reading.fault(f"{LINEARS[name]}.weight", "was not processed at load", "load the whole layer")
        if "w13" not in self.parts["ffn"]:
            reading.fault(PATHS["w13"], "was not processed at load", "load the whole layer")
        if reading.findings:
            raise WeightsError(reading.findings)
        self._loaded = True
        whole = {part: self.parts[part] | plain.get(part, {}) for part in self.parts}
        return LayerWeights(self.number, whole["k1"], whole["back"], whole["ffn"])

    def release(self) -> None:
        """Give the copies back."""
        for part in self.parts.values():
            part.clear()


def _filled(held: dict[str, Tensor]) -> set[int]:
    """Experts of which any weight is not zero."""
    found = set[int]()
    for name in ("w13", "w2"):
        tensor = held.get(PATHS[name])
        if tensor is not None and tensor.dim() == 3 and not tensor.is_meta:
            found |= {n for n in range(len(tensor)) if bool(tensor[n].view(torch.uint8).any())}
    return found


def _around(
    module: Any, before: Callable[[Any], None] | None = None, after: Callable[[Any], None] | None = None
) -> None:
    """Run something before or after vLLM processes `module`'s weights, at load and at every reload."""
    method = module.quant_method
    original = method.process_weights_after_loading

    def process_weights_after_loading(layer: Any) -> Any:
        if layer is module and before is not None:
            before(layer)
        result = original(layer)
        if layer is module and after is not None:
            after(layer)
        return result

    method.process_weights_after_loading = process_weights_after_loading
