"""Layers in a row and steps in a row: what a layer's case becomes once others have run.

Invariants
 - In a step a layer reads what the layer before it left, and the compressed cache of its kv source as that
   layer's compressor left it in this step; its window cache is its own.
 - In the next step a layer goes on with its own caches as its kernel left them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from flymono.reference.compressor import CompressorWeights
from flymono.reference.layer import following, handed_on
from flymono.reference.layer_case import LayerCase
from flymono.reference.layer_weights import WholeLayer
from flymono.reference.steps import next_step
from flymono.runtime.plan import plan_layer
from flymono.runtime.run.group import Given
from flymono.runtime.run.layer import Layer, LayerDone

Weights = Callable[[int], tuple[WholeLayer, CompressorWeights | None]]


class Chain:
    """Layers from `first` on; `weights` gives those of any layer."""

    def __init__(self, first: Layer, weights: Weights) -> None:
        self.first, self._weights = first, weights
        self._held: dict[int, Layer] = {first.case.layer: first}
        self._done: dict[int, LayerDone] = {}
        self._last: LayerDone | None = None

    def places(self, layers: int, steps: int) -> Iterator[tuple[int, int]]:
        """(layer, step) in the order in which they run."""
        start = self.first.case.layer
        yield from ((n, step) for step in range(steps) for n in range(start, start + layers))

    def layer(self, number: int, step: int) -> Layer:
        """The layer as it is to run now."""
        if number not in self._held:
            weights, compressor = self._weights(number)
            key, model = self.first.k1.key, self.first.case.model
            plan = plan_layer(self.first.specs, key.arch, key.tp, key.rows, number, model.prefix)
            self._held[number] = Layer(self.first.specs, plan, {}, self.first.case, weights, compressor)
        held = self._held[number]
        return replace(held, case=self._case(held, number, step))

    def _case(self, held: Layer, number: int, step: int) -> LayerCase:
        before = self._last if number > self.first.case.layer else None
        if step == 0:
            if before is None:
                return held.case
            return following(before.layer.case, before, before.layer.sizes, held.plan.kind.index)
        done = self._done[number]
        swa = done.steps[0].done[0].bound.tensor("swa")
        case = next_step(done.layer.case, swa, done.k2case.comp, held.sizes, held.compressor is not None)
        return case if before is None else handed_on(replace(case, comp=before.k2case.comp), before.ffn)

    def carried(self, number: int) -> Sequence[Given]:
        """What K1 takes from the layer before on each rank; nothing for the first of a step."""
        return self._last.handed_on() if self._last and number > self.first.case.layer else ()

    def ran(self, done: LayerDone) -> LayerDone:
        """Remember a layer that ran; its experts are not kept in memory."""
        self._last = self._done[done.layer.case.layer] = done
        done.layer.weights.keep_experts(0)
        return done
