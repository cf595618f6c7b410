"""Planted bugs of K2 and the FFN launch: kernels wrong in one known way, and the verdicts that reject them.

Each is an evaluation with one stage replaced, on all ranks, or a change of what a launch leaves behind. Later
stages run on the wrong stage's results, so a budget is right only if the stage that is wrong is rejected and
no other. A bug of the FFN half is an `Ffn` and is mixed into K2, whose FFN half is the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..ffn import Ffn, FfnCase
from ..k2 import K2, K2Case
from ..launch import Launch
from ..layer_regions import ffn_launches, k2_launches
from ..layer_sizes import LayerOrder, LayerSizes
from ..layer_weights import BackWeights, FfnWeights


@dataclass(frozen=True)
class Bench:
    """One case of K2 (or of the FFN launch, without `back`) with its weights."""

    case: K2Case | FfnCase
    back: Sequence[BackWeights]
    ffn: Sequence[FfnWeights]
    sizes: LayerSizes
    order: LayerOrder

    @property
    def k2(self) -> K2Case | None:
        """The case, if it is one of K2."""
        return self.case if isinstance(self.case, K2Case) else None


Shows = Callable[[Bench], bool]
Damage = Callable[[list[Launch], Bench], list[Launch]]


@dataclass(frozen=True)
class Bug:
    """Its name, the table, stage and output that reject it, what is wrong, and the benches it shows on."""

    name: str
    table: str
    stage: str
    output: str
    what: str
    evaluation: type[Ffn] | None
    damage: Damage | None
    shows: Shows


REGISTRY: dict[str, Bug] = {}


def always(bench: Bench) -> bool:
    """Shows on every bench."""
    return True


def _register(bug: Bug) -> None:
    if bug.name in REGISTRY:
        raise ValueError(f"two planted bugs are named {bug.name}")
    REGISTRY[bug.name] = bug


def planted(output: str, what: str, shows: Shows = always) -> Callable[[type[Any]], type[Any]]:
    """Register an evaluation; `output` is table.stage.output, e.g. ffn.slice.lin."""

    def register(evaluation: type[Any]) -> type[Any]:
        table, stage, name = output.split(".")
        _register(Bug(evaluation.__name__, table, stage, name, what, evaluation, None, shows))
        return evaluation

    return register


def damaged(output: str, what: str, shows: Shows = always) -> Callable[[Damage], Damage]:
    """Register a change of what the launch leaves behind."""

    def register(damage: Damage) -> Damage:
        table, stage, name = output.split(".")
        label = "".join(part.capitalize() for part in damage.__name__.split("_"))
        _register(Bug(label, table, stage, name, what, None, damage, shows))
        return damage

    return register


def launches_of(bug: Bug | None, bench: Bench, tag: int = 6) -> list[Launch]:
    """What a kernel with `bug` (None: a right one) leaves behind on every rank."""
    evaluation = bug.evaluation if bug and bug.evaluation else Ffn
    sizes, order = bench.sizes, bench.order
    if bench.k2 is not None:
        kind: Any = K2 if evaluation is Ffn else _over_k2(evaluation)
        whole = kind(bench.k2, bench.back, bench.ffn, sizes, order).run_all()
        launches = k2_launches(whole, order, sizes, tag, bench.k2.keys_inside)
    else:
        assert isinstance(bench.case, FfnCase)
        launches = ffn_launches(evaluation(bench.case, bench.ffn, sizes, order).run(), order, sizes, tag)
    return bug.damage(launches, bench) if bug and bug.damage else launches


def _over_k2(evaluation: type[Ffn]) -> type[Ffn]:
    """The evaluation itself if it is a K2, else K2 with its FFN stages replaced."""
    if issubclass(evaluation, K2):
        return evaluation
    return type(evaluation.__name__, (evaluation, K2), {})


def is_k2(bench: Bench) -> bool:
    """K2, not the FFN launch."""
    return bench.k2 is not None


def is_ffn(bench: Bench) -> bool:
    """The FFN launch."""
    return bench.k2 is None


def compressed(bench: Bench) -> bool:
    """Some keys are compressed records."""
    return bench.k2 is not None and bench.k2.ratio > 0


def keys_inside(bench: Bench) -> bool:
    """K2 makes the key table."""
    return bench.k2 is not None and bench.k2.keys_inside


def many_ranks(bench: Bench) -> bool:
    """A sum over ranks depends on its order from three ranks on."""
    return bench.case.tp > 2
