"""A launch of K1, K2 or the FFN half with everything that its ranks are given, made without the launches
before it; run any number of times, each on fresh buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import torch

from flymono.gen import api
from flymono.reference.case import make_case
from flymono.reference.ffn import Ffn
from flymono.reference.layer_case import make_ffn_case, make_k2_case
from flymono.reference.layer_sizes import LayerSizes
from flymono.reference.layer_weights import BackWeights, FfnWeights, WholeLayer, seeded_layer
from flymono.reference.verdict import Verdict
from flymono.reference.weights import K1Weights
from flymono.runtime.devices.emulator import EmulatorDevice
from flymono.runtime.plan import BuildKey, FfnPlan, K1Plan, K2Plan, KernelPlan, plan_of
from flymono.runtime.run import ffn, k1, k2
from flymono.runtime.run.group import Given, Group, Kernel, Launched
from flymono.specs import Specs, load

Case = Any
"""A K1Case, K2Case or FfnCase, as the plan is one of K1, K2 or the FFN launch."""
HOT = 9  # experts that the step's picks fall on
LAYER = 3


@cache
def specs() -> Specs:
    return load()


@cache
def layer() -> WholeLayer:
    """A seeded layer whose selection bias lifts `HOT` experts above the others."""
    (model,) = specs().model.values()
    whole = seeded_layer(model, LAYER, 1)
    lifted = torch.randperm(model.moe.experts, generator=torch.Generator().manual_seed(1))[:HOT]
    whole.dense["bias"][lifted] += 4.0  # type: ignore[index]
    return whole


@dataclass(frozen=True)
class Weights:
    """Weights of all ranks."""

    k1: tuple[K1Weights, ...]
    back: tuple[BackWeights, ...]
    ffn: tuple[FfnWeights, ...]
    sizes: LayerSizes


@cache
def weights(tp: int) -> Weights:
    whole, ranks = layer(), range(tp)
    return Weights(
        tuple(whole.k1(tp, r) for r in ranks), tuple(whole.back(tp, r) for r in ranks),
        tuple(whole.ffn(tp, r) for r in ranks), whole.sizes(tp),
    )  # fmt: skip


@dataclass(frozen=True)
class Ran:
    """A launch that ended: the ranks' buffers, and the group they belong to."""

    group: Group
    done: tuple[Launched, ...]


@dataclass(frozen=True)
class Bench:
    """A build with a case. `given`: what each rank's launch is given by argument name."""

    plan: KernelPlan
    case: Case
    given: tuple[Given, ...]

    def run(self, code: Any, given: Sequence[Given] = (), **how: Any) -> Ran:
        """Launch `code` (an artefact) on all ranks; `how`: options of the emulator. Raises DeviceError."""
        device = EmulatorDevice(specs().arch[self.plan.key.arch], {"seed": 0, **how})
        group = Group.of([self.plan], len(self.given))
        return Ran(group, self.launch(code, device, group, given)[0])

    def launch(
        self, code: Any, device: EmulatorDevice, group: Group, given: Sequence[Given] = ()
    ) -> list[tuple[Launched, ...]]:
        kernel = Kernel(self.plan, code, tuple(fresh(self.plan, g) for g in given or self.given))
        return group.launch(device, [kernel])

    def judge(self, done: Sequence[Launched]) -> tuple[Verdict, ...]:
        """Verdicts of every stage and end to end."""
        plan, w, s = self.plan, weights(self.plan.key.tp), specs()
        if isinstance(plan, K1Plan):
            return k1.judge_ranks(plan, self.case, w.k1[:1], layer().model, s.numerics["k1"], done)
        if isinstance(plan, K2Plan):
            return k2.judge(plan, self.case, w.back, w.ffn, w.sizes, s, done)
        assert isinstance(plan, FfnPlan)
        return ffn.judge(plan, self.case, w.ffn, w.sizes, s, done)


def fresh(plan: KernelPlan, given: Given) -> dict[str, Any]:
    """Copies of the buffers that a launch writes, the others as they are."""
    written = {a.name for a in plan.abi.arguments if a.written}
    return {n: v.clone() if n in written and isinstance(v, torch.Tensor) else v for n, v in given.items()}


def real(plan: KernelPlan) -> Any:
    """The kernel as a user gets it."""
    return api.build(plan.key, specs())


@lru_cache(maxsize=2)  # each keeps all ranks' buffers
def bench(build: str, contexts: tuple[int, ...] = ()) -> Bench:
    """A case of a build. K1's ranks share nothing: one stands for all."""
    plan = plan_of(specs(), BuildKey.parse(build))
    case = case_of(plan, contexts)
    return Bench(plan, case, given_of(plan, case, weights(plan.key.tp)))


def case_of(plan: KernelPlan, contexts: tuple[int, ...]) -> Case:
    """The seed's step."""
    key, model = plan.key, layer().model
    step: dict[str, Any] = {"rows": key.rows, "tp": key.tp, "fp8": plan.strategy.fp8}
    if isinstance(plan, FfnPlan):
        return make_ffn_case(model, **step)
    step |= {"ratio": key.ratio, "window": key.window, "contexts": contexts}
    if isinstance(plan, K2Plan):
        return make_k2_case(model, keys_inside=key.index, **step)
    return make_case(model, fold=key.fold, index=key.index, **step)


def given_of(plan: KernelPlan, case: Case, w: Weights) -> tuple[Given, ...]:
    """What each rank's launch is given, from weights that need not be those of the reference."""
    if isinstance(plan, K1Plan):
        return (k1.arguments_of(plan, case, w.k1[0]),)
    if isinstance(plan, FfnPlan):
        return ffn.arguments_of(plan, case, w.ffn, experts_of(plan, case), w.sizes)
    copies = ffn.weights_given(plan, w.ffn, experts_of(plan, case), w.sizes)
    return tuple(k2.arguments_of(plan, case, r, w.back[r], own, w.sizes, {}) for r, own in enumerate(copies))


def experts_of(plan: K2Plan | FfnPlan, case: Any) -> tuple[int, ...]:
    """Experts to put in place: the step's and the next best of each row, as in a run."""
    w = weights(plan.key.tp)
    spare = replace(w.sizes, picks=w.sizes.picks + 1)
    if isinstance(plan, K2Plan):
        routing = k2.routes(plan, case, w.back, w.ffn, spare)
    else:
        routing = Ffn(case, w.ffn, spare, ffn.order_of(plan)).routes()
    return ffn.selected(routing, w.sizes.picks, layer())
