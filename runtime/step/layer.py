"""What can be known of a layer before its weights are read: builds, the host's layer, the experts' files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from ...specs.findings import check_all
from ..plan import Deployed, SpecSet, check_deployment
from ..plan.support import model_of
from ..weights import check_layer_weights


def check_layer(
    specs: SpecSet,
    arch: str,
    tp: int,
    rows: int,
    layer: int,
    found: Deployed | None = None,
    *,
    source: Path | None = None,
    selected: Iterable[int] = (),
    prefix: str = "dsv41",
) -> None:
    """Raise everything that is wrong, builds and weights together: Unsupported, WeightsError, or both.

    `source` is a shard or a folder of them, with the layer's dense tensors and the `selected` experts.
    Only headers are read.
    """
    checks: list[Callable[[], object]] = [
        lambda: check_deployment(specs, arch, tp, rows, layer, found or Deployed(), prefix)
    ]
    model = model_of(specs, prefix)
    there = model is not None and 0 <= layer < len(model.topology.compress_ratios)
    if model is not None and there and source is not None:
        place, known = source, model
        checks.append(lambda: check_layer_weights(place, known, layer, selected))
    check_all(*checks)
