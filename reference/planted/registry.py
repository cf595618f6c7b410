"""Planted bugs: kernels that are wrong in one known way, and the verdicts that must reject them.

Each is an evaluation (`k1.K1`) with one stage replaced, or a change of what a launch leaves behind. Later
stages run on the wrong stage's results, as they would on a GPU, so a budget is right only if the stage that
is wrong is rejected and no other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..case import K1Case
from ..compare import Launch
from ..k1 import K1
from ..regions import pack
from ..sizes import K1Sizes, SumOrder
from ..weights import K1Weights


@dataclass(frozen=True)
class Planted:
    """One bug: its name, what is wrong, the verdict that rejects it, and the cases it can show in.

    `evaluation` replaces a stage of the computation, `damage` changes the launch afterwards.
    """

    name: str
    stage: str
    output: str
    what: str
    evaluation: type[K1] = K1
    damage: Callable[[Launch, K1Case, K1Sizes, SumOrder], Launch] | None = None
    shows: Callable[[K1Case], bool] = lambda case: True


REGISTRY: dict[str, Planted] = {}


def _shows_always(case: K1Case) -> bool:
    return True


def planted(
    output: str, what: str, shows: Callable[[K1Case], bool] = _shows_always
) -> Callable[[type[K1]], type[K1]]:
    """Register an evaluation under its class name; `output` is the stage.output that rejects it."""

    def register(evaluation: type[K1]) -> type[K1]:
        stage, _, name = output.partition(".")
        label = evaluation.__name__
        REGISTRY[label] = Planted(label, stage, name, what, evaluation, shows=shows)
        return evaluation

    return register


Damage = Callable[[Launch, K1Case, K1Sizes, SumOrder], Launch]


def damaged(
    output: str, what: str, shows: Callable[[K1Case], bool] = _shows_always
) -> Callable[[Damage], Damage]:
    """Register a change of the launch."""

    def register(damage: Damage) -> Damage:
        stage, _, name = output.partition(".")
        label = "".join(part.capitalize() for part in damage.__name__.split("_"))
        REGISTRY[label] = Planted(label, stage, name, what, damage=damage, shows=shows)
        return damage

    return register


def launch_of(
    bug: Planted | None, case: K1Case, weights: K1Weights, sizes: K1Sizes, order: SumOrder, tag: int = 3
) -> Launch:
    """What a kernel with `bug` (None: a right one) leaves behind."""
    evaluation = (bug.evaluation if bug else K1)(case, weights, sizes, order)
    outputs = evaluation.run()
    launch = Launch(outputs.tensors(), pack(outputs, tag), tag)
    return bug.damage(launch, case, sizes, order) if bug and bug.damage else launch


def folds(case: K1Case) -> bool:
    """The build folds the previous sublayer in."""
    return case.fold


def has_topk(case: K1Case) -> bool:
    """K1 writes a key table with compressed entries."""
    return case.ratio > 0 and not case.index


def has_keys(case: K1Case) -> bool:
    """K1 writes the key table, and no norm is stored (not an index build)."""
    return not case.index


def stores_norms(case: K1Case) -> bool:
    """An index build: both norms are stored."""
    return case.index


def fnuz(case: K1Case) -> bool:
    """MXFP8 and records are FNUZ."""
    return case.fp8 == "fnuz"
