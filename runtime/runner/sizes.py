"""Numbers of a runner, from the specs alone: what is allocated, and which builds a layer takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from flymono.runtime.plan import BuildKey, SpecSet, WidthReport, width_report
from flymono.runtime.plan.dims import Dims, dims_of
from flymono.runtime.plan.layer import kind_of, layer_keys
from flymono.runtime.plan.layout import layer_layout, peer_of
from flymono.runtime.plan.placement import grid_of
from flymono.runtime.plan.scratch import Scratch
from flymono.runtime.plan.support import model_of
from flymono.runtime.runner.errors import RunnerError
from flymono.specs.schema import ArchSpec, ModelSpec


@dataclass(frozen=True)
class Place:
    """Which kernels: an arch spec, a TP size, a model's prefix."""

    arch: str
    tp: int
    model: str = "dsv41"


@dataclass(frozen=True)
class Sizes:
    """A runner of the target's layers, or of the draft's."""

    place: Place
    model: ModelSpec
    arch: ArchSpec
    draft: bool

    @classmethod
    def of(cls, specs: SpecSet, place: Place, draft: bool) -> Sizes:
        """Raises RunnerError if the specs have no kernels for `place`."""
        model, arch = model_of(specs, place.model), specs.arch.get(place.arch)
        if model is None or arch is None or place.tp not in arch.tp:
            known = "; ".join(f"{a.name} TP{'/'.join(map(str, a.tp))}" for a in specs.arch.values())
            raise RunnerError(
                f"no kernels for {place.model} on {place.arch} TP{place.tp}", fix=f"the specs have {known}"
            )
        return cls(place, model, arch, draft)

    @cached_property
    def report(self) -> WidthReport:
        """Pass width and row limit."""
        return width_report(self.model, self.arch)

    @cached_property
    def dims(self) -> Dims:
        """A rank's sizes."""
        return dims_of(self.model, self.place.tp, draft=self.draft)

    @property
    def limit(self) -> int:
        """Rows of the widest step."""
        return self.report.limit.rows

    @cached_property
    def grid(self) -> int:
        """Workgroups that must be resident."""
        return grid_of(self.arch).workgroups

    @cached_property
    def peer_bytes(self) -> int:
        """Bytes of a rank's peer buffer."""
        return peer_of(self.dims, self.limit, self.limit).total

    def layout(self, rows: int) -> Scratch:
        """The scratch of steps of `rows` rows."""
        key = BuildKey("k2", self.place.arch, self.place.tp, rows, model=self.place.model)
        return layer_layout(self.model, self.arch, key, self.report.width, draft=self.draft)

    def check_widths(self, widths: Iterable[int]) -> None:
        """RunnerError with every width that no step has."""
        wrong = [str(w) for w in widths if not 1 <= w <= self.limit]
        if wrong:
            text = f"steps of {', '.join(wrong)} rows: {self.arch.name} takes 1 to {self.limit} rows"
            raise RunnerError(text, fix="leave such steps to the host's own path")

    def is_draft(self, layer: int) -> bool:
        """Whether a layer is one of the draft's."""
        return layer >= self.model.topology.layers

    def keys(self, kind: str, layer: int, rows: int, fold: bool | None) -> tuple[BuildKey, ...]:
        """The builds of a layer in launch order; kind `layer` or `ffn`. Raises RunnerError for a layer that
        runs
        whole on the other runner, Unsupported for one that the model has not."""
        place = self.place
        if kind == "ffn":
            draft = self.is_draft(layer)
            return (BuildKey("ffn", place.arch, place.tp, rows, model=place.model, draft=draft),)
        if self.is_draft(layer) != self.draft:
            which = "draft" if self.is_draft(layer) else "target"
            raise RunnerError(f"layer {layer} runs whole on the {which}'s runner only")
        first, *others = layer_keys(self.model, self.arch, place.tp, rows, layer)
        own = kind_of(self.model, layer).fold if fold is None else fold
        return (replace(first, fold=own), *others)
