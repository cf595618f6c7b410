"""Read a whole layer from published files: dense tensors at once, routed experts when they are asked for.

A file may hold only some experts (test files hold what a step selects). Which ones is known before any data
is read; a step that selects one that is absent is refused with every absent tensor.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ...reference.layer_sizes import LayerSizes
from ...reference.layer_weights import Expert, WholeLayer, is_draft
from ...specs.schema import ModelSpec
from .errors import WeightFinding, WeightsError
from .header import Header
from .published import Published, dense_tensors, expert_tensors
from .read import locate, read_rows


class PublishedExperts:
    """Routed experts of one layer in its files."""

    def __init__(self, source: Path, model: ModelSpec, layer: int) -> None:
        self.source, self.model, self.layer = source, model, layer
        count = LayerSizes.of(model, 1, is_draft(model, layer)).experts
        self._tensors = {e: expert_tensors(model, layer, e) for e in range(count)}
        flat = {f"{e}/{leaf}": t for e, own in self._tensors.items() for leaf, t in own.items()}
        self._homes: dict[str, Header] = locate(source, flat, some=True)

    @property
    def present(self) -> tuple[int, ...]:
        """Experts of which every tensor is there, ascending."""
        return tuple(
            e for e, own in self._tensors.items() if all(f"{e}/{leaf}" in self._homes for leaf in own)
        )

    def require(self, selected: Iterable[int]) -> None:
        """WeightsError that lists every tensor of `selected` that no file has."""
        findings = [
            self._absent(tensor)
            for number in sorted(set(selected))
            for leaf, tensor in self._tensors[number].items()
            if f"{number}/{leaf}" not in self._homes
        ]
        if findings:
            raise WeightsError(findings)

    def _absent(self, tensor: Published) -> WeightFinding:
        fix = "give a file with the experts that the step selects, or the whole shard of the layer"
        what = f"missing ({tensor.dtype} {list(tensor.shape)}); the step selects this expert"
        return WeightFinding(str(self.source), tensor.name, what, fix)

    def expert(self, number: int) -> Expert:
        """Expert `number`, whole."""
        self.require([number])
        own = self._tensors[number]
        return Expert(**{leaf: read_rows(self._homes[f"{number}/{leaf}"], t) for leaf, t in own.items()})


def _located(
    source: Path, model: ModelSpec, layer: int
) -> tuple[dict[str, Header], PublishedExperts | None, list[WeightFinding]]:
    """Files of the dense tensors, the experts that are there, and what is wrong with either."""
    findings: list[WeightFinding] = []
    homes: dict[str, Header] = {}
    experts: PublishedExperts | None = None
    try:
        homes = locate(source, dense_tensors(model, layer))
    except WeightsError as error:
        findings += error.findings
    try:
        experts = PublishedExperts(source, model, layer)
    except WeightsError as error:
        findings += [f for f in error.findings if f not in findings]
    return homes, experts, findings


def check_layer_weights(source: Path, model: ModelSpec, layer: int, selected: Iterable[int] = ()) -> None:
    """WeightsError with every finding about a layer and the `selected` experts; only headers are read."""
    _, experts, findings = _located(Path(source), model, layer)
    if experts is not None:
        try:
            experts.require(selected)
        except WeightsError as error:
            findings += error.findings
    if findings:
        raise WeightsError(findings)


def read_layer(source: Path, model: ModelSpec, layer: int) -> WholeLayer:
    """A layer's weights in the published encoding. Raises WeightsError with every finding in the dense
    tensors and in the experts that are there; ValueError for a layer that the model does not have.
    """
    homes, experts, findings = _located(Path(source), model, layer)
    if findings or experts is None:
        raise WeightsError(findings)
    dense = dense_tensors(model, layer)
    tensors = {key: read_rows(homes[key], tensor) for key, tensor in dense.items()}
    return WholeLayer(model, layer, tensors, experts.expert)
