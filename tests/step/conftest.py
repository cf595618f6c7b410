"""Plans of a few layers, and steps that fit them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from flymono.reference.attention_back import qk_scale
from flymono.reference.front import key_table
from flymono.reference.layer_case import make_layer_case
from flymono.reference.layer_sizes import LayerSizes
from flymono.runtime.plan import KernelPlan, LayerPlan, plan_layer
from flymono.specs import Specs, load
from flymono.specs.schema import ModelSpec

Arguments = dict[str, Tensor | int]


@pytest.fixture(scope="session")
def specs() -> Specs:
    return load()


@pytest.fixture(scope="session")
def model(specs: Specs) -> ModelSpec:
    return specs.model["deepseek_v41_flash"]


@dataclass(frozen=True)
class Step:
    """A layer's plan and the arguments of a step of it, the key table included."""

    plan: LayerPlan
    arguments: Arguments

    def launch(self, kind: str) -> KernelPlan:
        return next(p for p in self.plan.plans if p.key.kind == kind)

    def copy(self) -> Arguments:
        return {n: v.clone() if isinstance(v, Tensor) else v for n, v in self.arguments.items()}


def step_of(specs: Specs, arch: str, tp: int, rows: int, layer: int, **options: Any) -> Step:
    """A valid step of a layer; options as make_layer_case."""
    model = specs.model["deepseek_v41_flash"]
    plan = plan_layer(specs, arch, tp, rows, layer)
    kind, sizes = plan.kind, LayerSizes.of(model, tp)
    case = make_layer_case(
        model, rows=rows, tp=tp, layer=layer, fp8=specs.arch[arch].fp8.flavour, fold=kind.fold,
        index=kind.index, window=kind.window, **options,
    )  # fmt: skip
    kt, klen = key_table(case.k1, sizes)
    peers = torch.arange(1, tp + 1, dtype=torch.int64) << 20
    given: Arguments = {**case.k1.tensors(), "comp": case.comp, "comp_stride": case.comp_stride}
    names = ("swa_stride", "swa_block", "comp_block", "bt_stride")
    given |= {name: getattr(case.k1, name) for name in names}
    given |= {"kt": kt, "klen": klen, "qk_scale": int(qk_scale(sizes).view(torch.int32)), "rank": 1}
    given |= {"zrec": torch.zeros(1024, dtype=torch.uint8), "peers": peers, "sym": int(peers[1])}
    return Step(plan, given)


@pytest.fixture(scope="session")
def selecting(specs: Specs) -> Step:
    """A layer of ratio 2, with padded rows, a context below the window and one beyond the top-k."""
    return step_of(specs, "gfx942", 4, 12, 3, contexts=(3000, 40), padded=2)


@pytest.fixture(scope="session")
def windowed(specs: Specs) -> Step:
    """A draft layer: ratio 0 and window lists of 192."""
    return step_of(specs, "gfx950", 2, 5, 41, padded=1)


@pytest.fixture(scope="session")
def indexed(specs: Specs) -> Step:
    """An index layer whose key table is a launch of its own."""
    return step_of(specs, "gfx942", 4, 6, 20, contexts=(700,), padded=1)


@pytest.fixture(scope="session")
def inside(specs: Specs) -> Step:
    """An index layer whose key table K2 makes."""
    return step_of(specs, "gfx950", 2, 6, 2, contexts=(700,), padded=1)
