"""Running K1 in tests: one store for all, results of equal runs kept, everything by build id."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

from flymono.gen import api
from flymono.gen.store import Artefact
from flymono.reference.case import K1Case
from flymono.reference.verdict import Verdict
from flymono.reference.weights import K1Weights
from flymono.runtime.devices.emulator import EmulatorDevice
from flymono.runtime.plan import BuildKey
from flymono.runtime.run import k1
from flymono.runtime.run.command import Options, Prepared, prepare
from flymono.runtime.run.group import Launched
from flymono.specs import load

VARIANTS = tuple(
    (ratio, fold, index, window)
    for ratio in (0, 1, 2)
    for window in ((128, 192) if ratio == 0 else (128,))
    for fold in (True, False)
    for index in (False, True)
)


@cache
def specs():
    return load()


def options(build: str, **changes: object) -> Options:
    """Run options of a build id."""
    key = BuildKey.parse(build)
    stated = {
        "arch": key.arch, "tp": key.tp, "rows": key.rows, "ratio": key.ratio, "fold": key.fold,
        "index": key.index, "window": key.window, "timeline": key.timeline,
    }  # fmt: skip
    return Options(**{**stated, **changes})


def build_id(
    arch: str, tp: int, rows: int, ratio: int = 2, fold: bool = True, index: bool = False, window: int = 128
) -> str:
    return BuildKey(
        kind="k1", arch=arch, tp=tp, rows=rows, ratio=ratio, fold=fold, index=index, window=window,
        timeline=False, model="dsv41",
    ).id  # fmt: skip


@dataclass(frozen=True)
class Ran:
    """A finished launch with all that is needed to judge it or to launch it again."""

    ready: Prepared
    artefact: Artefact
    done: Launched

    @property
    def outputs(self) -> dict[str, torch.Tensor]:
        return self.done.outputs(self.ready.plan)

    def verdicts(self, case: K1Case | None = None, weights: K1Weights | None = None) -> tuple[Verdict, ...]:
        ready = self.ready
        numerics = ready.specs.numerics[ready.plan.key.kind]
        return k1.judge(
            ready.plan, case or ready.case, weights or ready.weights, ready.model, numerics, self.done
        )


def device_of(ready: Prepared, **how: object) -> EmulatorDevice:
    return EmulatorDevice(ready.specs.arch[ready.plan.key.arch], {"seed": 0, **how})


def launch(
    ready: Prepared, artefact: Artefact | None = None, epoch: int = 3, checked: bool = True, **how: object
) -> Ran:
    """Launch a prepared case once."""
    artefact = artefact or api.build(ready.plan.key, ready.specs)
    given = k1.arguments_of(ready.plan, ready.case, ready.weights)
    return Ran(
        ready,
        artefact,
        k1.launch(ready.plan, artefact, device_of(ready, **how), given, epoch, checked=checked),
    )


def run(build: str, **how: object) -> Ran:
    """Prepare and launch a build with the seed's case."""
    return launch(prepare(options(build), specs()), **how)


def wrong(verdicts: tuple[Verdict, ...]) -> list[str]:
    """Names of the outputs that are not within their budget."""
    return [f"{v.name} at {v.where}: {v.worst:.4g} > {v.budget:.4g}" for v in verdicts if not v.ok]


def same_bits(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> list[str]:
    """Names of outputs whose bytes differ."""
    assert a.keys() == b.keys()
    return [
        n
        for n in a
        if not torch.equal(a[n].reshape(-1).view(torch.uint8), b[n].reshape(-1).view(torch.uint8))
    ]
