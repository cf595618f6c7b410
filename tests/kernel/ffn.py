"""The FFN launch on all ranks of a group, on a reference case whose picks fall on a few experts, judged."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import small
import torch

from flymono.emulator.codeobject import CodeObject
from flymono.emulator.device import Emulator, Job, LaunchResult
from flymono.gen.build import Settings, build
from flymono.gen.compiler import Compiler
from flymono.gen.store import Artefact, Store
from flymono.gen.units import unit_of
from flymono.reference.compare import Launch
from flymono.reference.compare_ffn import compare_ffn_end_to_end, compare_ffn_stages
from flymono.reference.ffn import Ffn, FfnCase
from flymono.reference.layer_case import make_ffn_case
from flymono.reference.layer_sizes import LayerOrder, LayerSizes
from flymono.reference.layer_weights import FfnWeights, seeded_layer
from flymono.reference.verdict import Verdict
from flymono.runtime.plan import BuildKey, FfnPlan, plan_ffn
from flymono.runtime.plan.faults import BOUND
from flymono.runtime.run.bind import DTYPES, unwritten
from flymono.runtime.run.ffn import order_of
from flymono.runtime.weights.fp4_copies import NAMES
from flymono.runtime.weights.layer_copies import ffn_copies

EPOCH, HOT = 3, 9
MODEL = next(iter(small.SPECS.model.values()))
OUTPUTS = ("out", "res_out", "post_out", "comb_out", "pre_out")


def artefact(build_id: str, store: Store, compiler: Compiler) -> tuple[FfnPlan, Artefact]:
    """Plan and code object of a build."""
    key = BuildKey.parse(build_id)
    plan, unit = plan_ffn(small.SPECS, key), unit_of(small.SPECS, key)
    return plan, build(unit, Settings(store), compiler)[0]


@cache
def _weights(tp: int, draft: bool) -> tuple[LayerSizes, tuple[FfnWeights, ...]]:
    """Weights of all ranks, whose selection bias lifts `HOT` experts above the others."""
    layer = seeded_layer(MODEL, MODEL.topology.layers if draft else 3, 1)
    sizes = layer.sizes(tp)
    generator = torch.Generator().manual_seed(tp)
    lifted = torch.randperm(sizes.experts, generator=generator)[:HOT]
    whole = [layer.ffn(tp, rank) for rank in range(tp)]
    bias = whole[0].bias.clone()
    bias[lifted] += 4.0
    return sizes, tuple(replace(w, bias=bias) for w in whole)


@dataclass(frozen=True)
class Group:
    """A case with everything that its ranks are given, by argument name."""

    plan: FfnPlan
    case: FfnCase
    sizes: LayerSizes
    order: LayerOrder
    weights: tuple[FfnWeights, ...]
    given: tuple[dict[str, Any], ...]
    peers: tuple[torch.Tensor, ...]
    table: torch.Tensor

    def digest(self) -> str:
        """Of the outputs of all ranks."""
        sha = hashlib.sha256()
        for given in self.given:
            for name in OUTPUTS:
                sha.update(given[name].contiguous().view(torch.uint8).numpy().tobytes())
        return sha.hexdigest()

    def judged(self, epoch: int = EPOCH) -> list[Verdict]:
        """Every stage from the kernel's own hand-offs, then end to end."""
        plan, numerics = self.plan, small.SPECS.numerics
        launches = [self._launch(rank, epoch) for rank in range(plan.key.tp)]
        args = (self.case, self.weights, self.sizes, self.order, numerics, launches)
        return [*compare_ffn_stages(*args), *compare_ffn_end_to_end(*args)]

    def _launch(self, rank: int, epoch: int) -> Launch:
        plan, given = self.plan, self.given[rank]
        regions = {r.name: given["scratch"][r.offset : r.end] for r in plan.scratch.regions}
        half = self.peers[rank][plan.peer.half_at(epoch) :]
        regions |= {r.name: half[r.offset : r.end] for r in plan.peer.regions.regions}
        return Launch({name: given[name] for name in OUTPUTS}, regions, plan.tag.at(epoch))


def _noise(words: torch.Tensor, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    words.copy_(torch.randint(-(2**31), 2**31 - 1, words.shape, generator=generator, dtype=torch.int64))


def _buffers(plan: FfnPlan) -> tuple[torch.Tensor, torch.Tensor]:
    """Scratch and peer buffer as earlier epochs left them."""
    scratch = torch.zeros(plan.scratch.total, dtype=torch.uint8)
    words = scratch.view(torch.int32)
    _noise(words, 5)
    for region in plan.scratch.regions:
        if region.kind != "data":
            words[region.offset // 4 + 1 : region.end // 4 : 2] = plan.tag.at(EPOCH - 1)
    peer = torch.zeros(plan.peer.total, dtype=torch.uint8)
    _noise(peer.view(torch.int32), 6)
    peer.view(torch.int32)[1::2] = plan.tag.at(EPOCH - 2)
    peer[: plan.peer.mark_bytes] = 0
    return scratch, peer


def group(plan: FfnPlan) -> Group:
    """A case of a plan's build, bound on every rank."""
    key = plan.key
    sizes, weights = _weights(key.tp, key.draft)
    case = make_ffn_case(MODEL, rows=key.rows, tp=key.tp, fp8=plan.strategy.fp8, seed=1)
    order = order_of(plan)
    form = Ffn(case, weights, sizes, order)
    routing = form.route(form.logit(form.normed(form.lin(form.residual(form.attn(form.pushed()))))))
    selected = sorted(set(routing.ids.flatten().tolist()))
    buffers = [_buffers(plan) for _ in range(key.tp)]
    table = torch.tensor([peer.data_ptr() for _, peer in buffers])
    given = []
    for rank, (scratch, peer) in enumerate(buffers):
        epoch = torch.zeros(plan.epoch.words, dtype=torch.int32)
        epoch[plan.epoch.epoch] = EPOCH
        epoch[plan.epoch.ug_counters :] = 77
        for ring in (plan.epoch.ug_counters, plan.epoch.down_counters):
            epoch[ring + EPOCH : ring + EPOCH + 2] = 0
        copies = ffn_copies(weights[rank], selected, sizes, plan.strategy.fp8, plan.strategy.weight_layout)
        inputs = case.arguments(rank) | copies
        mine: dict[str, Any] = {k: v if k in NAMES else v.clone() for k, v in inputs.items()}
        mine |= {"scratch": scratch, "epoch": epoch, "sym": peer.data_ptr(), "peers": table, "rank": rank}
        mine |= {"fault": torch.zeros(plan.fault.words, dtype=torch.int32), "bound": BOUND}
        given.append(mine | _rest(plan, mine))
    return Group(plan, case, sizes, order, weights, tuple(given), tuple(p for _, p in buffers), table)


def _rest(plan: FfnPlan, mine: dict[str, Any]) -> dict[str, Any]:
    missing = [a for a in plan.abi.arguments if a.name not in mine]
    return {a.name: unwritten(a.shape, DTYPES[a.dtype]) if a.name in OUTPUTS else 0 for a in missing}


def launch(
    one: Group, made: Artefact, times: int = 1, grids: Sequence[int] = (), **options: Any
) -> list[LaunchResult]:
    """All ranks side by side, `times` launches each; results of the first. `grids`: a rank's workgroups."""
    plan, code = one.plan, CodeObject(made.hsaco)
    device = Emulator(plan.key.arch, **options)
    device.register("peers", one.table, writable=False)
    queues = []
    for rank, given in enumerate(one.given):
        device.register(f"peer buffer of rank {rank}", one.peers[rank])
        for a in plan.abi.arguments:
            if isinstance(given[a.name], torch.Tensor) and a.name != "peers":
                device.register(f"{a.name} of rank {rank}", given[a.name], writable=a.written)
        values = [given[a.name] for a in plan.abi.arguments]
        grid = grids[rank] if grids else plan.grid
        job = Job(code, made.kernel, grid, values, None, tuple(made.stage_ranges))
        queues.append([job] * times)
    return [queue[0] for queue in device.launch_ranks(queues)]
