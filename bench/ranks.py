"""One step of K2 or of the FFN launch on all ranks: inputs, weights and buffers, for any kernel of that ABI.

The launch arguments are a plan's. Another implementation with the same arguments is bound to the same values;
it lays its scratch and its peer buffers out as it likes, so they are only made large enough.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flymono.emulator.codeobject import CodeObject
from flymono.emulator.device import Emulator, Job, LaunchResult
from flymono.reference.ffn import Ffn, FfnCase
from flymono.reference.k2 import K2, K2Case
from flymono.reference.layer_case import make_ffn_case, make_k2_case
from flymono.reference.layer_sizes import LayerSizes
from flymono.reference.layer_weights import BackWeights, FfnWeights, seeded_layer
from flymono.runtime.plan import BuildKey, FfnPlan, K2Plan, plan_ffn, plan_k2
from flymono.runtime.plan.faults import BOUND
from flymono.runtime.run.bind import DTYPES, unwritten
from flymono.runtime.run.ffn import order_of
from flymono.runtime.weights.fp4_copies import NAMES
from flymono.runtime.weights.layer_copies import back_copies, ffn_copies
from flymono.specs import load
from flymono.specs.loader import Specs

EPOCH, LAYER, CONTEXTS = 3, 3, (4000,)
OUTPUTS = ("out", "res_out", "post_out", "comb_out", "pre_out")
Recode = Callable[[str, Tensor], Tensor]


@dataclass(frozen=True)
class Buffers:
    """Bytes of scratch and of a rank's peer buffer, words of the epoch buffer."""

    scratch: int
    peer: int
    epoch: int


@dataclass(frozen=True)
class Step:
    """Inputs and weights of a build on every rank. `ids`: selected experts, int [rows, picks]."""

    plan: FfnPlan | K2Plan
    inputs: tuple[dict[str, Any], ...]
    weights: tuple[dict[str, Tensor], ...]
    ids: Tensor

    @property
    def buffers(self) -> Buffers:
        """What this plan's own kernel needs."""
        return Buffers(self.plan.scratch.total, self.plan.peer.total, self.plan.epoch.words)


@dataclass(frozen=True)
class Ran:
    """Results of a launch on all ranks: counts of each and its arguments after it."""

    results: tuple[LaunchResult, ...]
    given: tuple[dict[str, Any], ...]

    @property
    def instructions(self) -> int:
        """Executed by all ranks."""
        return sum(r.instructions for r in self.results)

    def by_pc(self) -> dict[int, int]:
        """PC -> executions on all ranks."""
        out: dict[int, int] = {}
        for result in self.results:
            for pc, count in result.by_pc.items():
                out[pc] = out.get(pc, 0) + count
        return out

    def requested(self, name: str) -> int:
        """Bytes that all ranks asked of an argument's buffer."""
        return sum(self.results[0].traffic[f"{name} {r}"].load.bytes for r in range(len(self.results)))

    def touched(self, name: str) -> int:
        """Distinct bytes of it that were loaded."""
        return sum(self.results[0].traffic[f"{name} {r}"].unique_loaded for r in range(len(self.results)))


@cache
def specs() -> Specs:
    """The specs of this checkout."""
    return load()


def plan_of(build: str) -> FfnPlan | K2Plan:
    """The plan of a K2 or FFN build."""
    key = BuildKey.parse(build)
    return plan_ffn(specs(), key) if key.kind == "ffn" else plan_k2(specs(), key)


def _draw_experts(
    out: dict[str, Tensor], selected: Sequence[int], plan: FfnPlan | K2Plan, codes: tuple[int, int], seed: int
) -> None:
    """Random bytes for the selected experts, in whatever order a device reads them; codes of a range.

    No nibble is -0, which a copy for FNUZ would not hold.
    """
    octets = np.arange(256, dtype=np.uint8)
    octets[octets & 0x0F == 0x08] -= 8
    octets[octets & 0xF0 == 0x80] -= 128
    for name in NAMES:
        experts = out[name].reshape(plan.dims.experts, -1)
        for number in selected:
            draw = np.random.default_rng((seed, number, NAMES.index(name)))
            values = np.frombuffer(draw.bytes(experts.shape[1]), np.uint8)
            low, high = codes
            made = low + values % (high + 1 - low) if name.endswith("_s") else octets[values]
            experts[number] = torch.from_numpy(made.astype(np.uint8))


def _lifted(weights: Sequence[FfnWeights], experts: int, hot: int) -> tuple[FfnWeights, ...]:
    """The bias of `hot` experts lifted above all others, so that all picks fall on them."""
    bias = weights[0].bias.clone()
    bias[torch.randperm(experts, generator=torch.Generator().manual_seed(experts))[:hot]] += 4.0
    return tuple(replace(w, bias=bias) for w in weights)


def step_of(build: str, seed: int = 1, hot: int = 0) -> Step:
    """A step of a build on all ranks; `hot`: experts that take all picks (0: as the router has them)."""
    plan = plan_of(build)
    key, model = plan.key, next(iter(specs().model.values()))
    layer = seeded_layer(model, model.topology.layers if key.draft else LAYER, seed)
    sizes, ranks = layer.sizes(key.tp), range(key.tp)
    ffn = tuple(layer.ffn(key.tp, r) for r in ranks)
    if hot:
        ffn = _lifted(ffn, sizes.experts, hot)
    fp8, layout = plan.strategy.fp8, plan.strategy.weight_layout
    backs: tuple[BackWeights, ...] = ()
    form: Ffn
    if isinstance(plan, K2Plan):
        backs = tuple(layer.back(key.tp, r) for r in ranks)
        k2 = make_k2_case(
            model, rows=key.rows, tp=key.tp, ratio=key.ratio, window=key.window, fp8=fp8, seed=seed,
            keys_inside=key.index, contexts=CONTEXTS,
        )  # fmt: skip
        form, inputs = _attended(k2, backs, ffn, sizes, plan)
    else:
        case = make_ffn_case(model, rows=key.rows, tp=key.tp, fp8=fp8, seed=seed)
        form, inputs = Ffn(case, ffn, sizes, order_of(plan)), tuple(case.arguments(r) for r in ranks)
    ids = form.route(form.logit(form.normed(form.lin(form.residual(form.attn(form.pushed())))))).ids
    selected = sorted(set(ids.flatten().tolist()))
    weights = []
    for rank in ranks:
        own = ffn_copies(ffn[rank], (), sizes, fp8, layout)
        _draw_experts(own, selected, plan, model.quantisation.expert_code_range, seed * key.tp + rank)
        weights.append(own | (back_copies(backs[rank], fp8, layout) if backs else {}))
    return Step(plan, tuple(inputs), tuple(weights), ids)


def _attended(
    case: K2Case, backs: Sequence[BackWeights], ffn: Sequence[FfnWeights], sizes: LayerSizes, plan: K2Plan
) -> tuple[Ffn, tuple[dict[str, Any], ...]]:
    """The FFN half behind the attention back of every rank, and the launch's inputs."""
    k2 = K2(case, backs, ffn, sizes, order_of(plan))
    kt, klen = k2.keys()
    part = torch.stack([k2.rank_back(r, kt, klen).part for r in range(case.tp)])
    tail = FfnCase(case.rows, case.tp, case.fp8, case.seed, part, case.res_in, case.post_in, case.comb_in,
                   case.pre_in)  # fmt: skip
    return Ffn(tail, ffn, sizes, order_of(plan)), tuple(case.arguments(r, sizes) for r in range(case.tp))


def run(
    step: Step, hsaco: bytes, kernel: str, buffers: Buffers, recode: Recode | None = None,
    stages: Sequence[tuple[str, int, int]] = (), without: Collection[str] = (), **options: Any,
) -> Ran:  # fmt: skip
    """Launch a kernel of this step's ABI on all ranks. `recode` gives another byte order of a weight,
    `without` are arguments that it has not got."""
    plan, tp = step.plan, step.plan.key.tp
    device = Emulator(plan.key.arch, xcds=specs().arch[plan.key.arch].machine.xcds, **options)
    peers = [torch.zeros(buffers.peer, dtype=torch.uint8) for _ in range(tp)]
    table = torch.tensor([device.register(f"peer {r}", p) for r, p in enumerate(peers)])
    device.register("peers", table, writable=False)
    code, queues, bound = CodeObject(hsaco), [], []
    for rank in range(tp):
        given = _given(step, rank, buffers, recode) | {"peers": table, "sym": int(table[rank])}
        for a in plan.abi.arguments:
            if isinstance(given[a.name], Tensor) and a.name != "peers":
                device.register(f"{a.name} {rank}", given[a.name], writable=a.written)
        values = [given[a.name] for a in plan.abi.arguments if a.name not in without]
        queues.append([Job(code, kernel, plan.grid, values, None, tuple(stages))])
        bound.append(given)
    return Ran(tuple(done[0] for done in device.launch_ranks(queues)), tuple(bound))


def _given(step: Step, rank: int, buffers: Buffers, recode: Recode | None) -> dict[str, Any]:
    """Arguments of a rank but for its peers: copies of what a kernel may write, weights as they are."""
    epoch = torch.zeros(buffers.epoch, dtype=torch.int32)
    epoch[0] = EPOCH
    weights = {n: w if n in NAMES else w.clone() for n, w in step.weights[rank].items()}
    if recode:
        weights = {n: recode(n, w) for n, w in weights.items()}
    given: dict[str, Any] = {
        n: v.clone() if isinstance(v, Tensor) else v for n, v in step.inputs[rank].items()
    }
    given |= weights | {
        "rank": rank,
        "epoch": epoch,
        "fault": torch.zeros(step.plan.fault.words, dtype=torch.int32),
        "bound": BOUND,
        "scratch": torch.zeros(buffers.scratch, dtype=torch.uint8),
    }
    for a in step.plan.abi.arguments:
        if a.name not in given and a.name not in ("peers", "sym"):
            made = a.name in OUTPUTS or (a.written and a.used)
            given[a.name] = unwritten(a.shape, DTYPES[a.dtype]) if made and a.name != "tl" else 0
    return given


def held(step: Step, name: str) -> int:
    """Bytes of a weight that the step needs on all ranks: of routed experts the selected ones."""
    total = sum(w[name].nbytes for w in step.weights)
    if name not in NAMES:
        return total
    return total // step.plan.dims.experts * len(set(step.ids.flatten().tolist()))
