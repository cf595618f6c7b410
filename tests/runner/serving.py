"""A layer as a server has it, on emulated GPUs: what `run layer` makes of a case, and the same by runners."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from flymono.reference.layer import compress
from flymono.reference.layer_case import LayerCase, begins
from flymono.reference.layer_weights import seeded_layer
from flymono.runtime.devices.base import Counters
from flymono.runtime.devices.emulated import EmulatedNode
from flymono.runtime.devices.emulator import EmulatorDevice
from flymono.runtime.plan import K1Plan, K2Plan
from flymono.runtime.run import ffn, k2
from flymono.runtime.run.bind import DTYPES, Bound
from flymono.runtime.run.chain import Chain
from flymono.runtime.run.group import Group, Launched
from flymono.runtime.run.layer import Layer, LayerDone, run_layer
from flymono.runtime.run.layer_command import built, compressor_of, prepare_layer
from flymono.runtime.run.layer_options import LayerOptions
from flymono.runtime.run.modules import Generated
from flymono.runtime.runner import LayerWeights, LocalRanks, Place, Runner, Seam, Step
from flymono.runtime.weights import back_copies, copy_into, device_copies, ffn_copies
from flymono.specs import Specs, load

OUTPUTS = ("out", "res_out", "post_out", "comb_out", "pre_out")


@cache
def specs() -> Specs:
    return load()


def on_ranks(count: int, work: Callable[[int], Any]) -> list[Any]:
    """`work(rank)` on a thread a rank; the first error of any is raised when all have ended."""
    with ThreadPoolExecutor(count) as pool:
        return [f.result() for f in [pool.submit(work, rank) for rank in range(count)]]


def errors_on_ranks(count: int, work: Callable[[int], Any]) -> list[Exception]:
    """What `work` raised on each rank; it has to raise on all."""
    with ThreadPoolExecutor(count) as pool:
        found = [f.exception() for f in [pool.submit(work, rank) for rank in range(count)]]
    assert all(isinstance(e, Exception) for e in found), found
    return found  # type: ignore[return-value]


@dataclass(frozen=True)
class Ground:
    """A layer that `run layer` ran, and found right, on a group of its own."""

    layer: Layer
    done: LayerDone
    experts: tuple[int, ...]

    @property
    def tp(self) -> int:
        return self.layer.tp

    def weights(self, rank: int) -> LayerWeights:
        """The layer's weights on a rank: the tensors that the launches were given, as they are."""
        first, last = self.done.steps[0], self.done.steps[-1]
        own = [{a.name: s.done[rank].bound.tensor(a.name) for a in s.kernel.plan.abi.arguments
                if a.owner == "layer" and a.used} for s in (first, last)]  # fmt: skip
        cos_sin = own[0]["cos_sin"]
        return LayerWeights(self.layer.case.layer, own[0], {}, own[1], cos_sin)

    def outputs(self, rank: int) -> dict[str, Tensor]:
        return self.done.last.done[rank].outputs(self.layer.k2)


@lru_cache(maxsize=2)  # each keeps its layer's weights, 0.5 to 2 GB
def ground(arch: str, tp: int, rows: int, number: int, weights: int = 0) -> Ground:
    """The step of seed 0 with the layer's weights of seed `weights`."""
    layer = built(prepare_layer(LayerOptions(arch=arch, tp=tp, rows=rows, layer=number), specs()))
    if weights:
        layer = replace(layer, weights=seeded_layer(layer.case.model, number, weights))
    return _run(layer, ())


@lru_cache(maxsize=1)
def ground_after(arch: str, tp: int, rows: int, number: int) -> Ground:
    """The same layer once more, fed by itself."""
    before = ground(arch, tp, rows, number)
    return _run(before.layer, before.done.handed_on())


def grounds(arch: str, tp: int, rows: int, numbers: Sequence[int], padded: int = 0) -> list[Ground]:
    """Layers that follow each other, run as one step on one group; the reference has found each right."""
    options = LayerOptions(arch=arch, tp=tp, rows=rows, layer=numbers[0], padded=padded)
    first = prepare_layer(options, specs())
    if begins(first.case.model, numbers[0]):  # all streams begin as the embedding
        k1 = first.case.k1
        same = replace(k1, res_in=k1.res_in[:, :1].expand_as(k1.res_in).contiguous())
        first = replace(first, case=replace(first.case, k1=same))
    model = first.case.model
    chain = Chain(first, lambda n: (seeded_layer(model, n, 0), compressor_of(model, n, 0)))
    device, group = EmulatorDevice(specs().arch[arch], {"seed": 0}), Group.of(first.plan.plans, tp)
    found = list[Ground]()
    for number, _ in chain.places(len(numbers), 1):
        experts = list[tuple[int, ...]]()
        layer = built(chain.layer(number, 0))
        done = chain.ran(run_layer(layer, device, group, chain.carried(number), experts.append))
        assert done.ok, number
        found.append(Ground(layer, done, experts[0]))
    return found


def _run(layer: Layer, carried: Sequence[Any]) -> Ground:
    device, experts = EmulatorDevice(specs().arch[layer.k1.key.arch], {"seed": 0}), list[tuple[int, ...]]()
    case = layer.case
    if carried:
        layer = replace(layer, case=replace(case, k1=replace(case.k1, **_of_rank_0(layer, carried[0]))))
    done = run_layer(layer, device, Group.of(layer.plan.plans, layer.tp), carried, experts.append)
    assert done.ok
    return Ground(layer, done, experts[0])


def _of_rank_0(layer: Layer, carried: Any) -> dict[str, Tensor]:
    """What the reference is told: every rank was handed the same."""
    k = layer.case.k1
    return {n: t.clone().reshape(getattr(k, n).shape) for n, t in carried.items()}


def cache_view(flat: Tensor, stride: int, block: int, record: int) -> Tensor:
    """A cache as a server has it: [blocks, rows a block, record], blocks apart."""
    blocks = (flat.numel() - block * record) // stride + 1
    return flat.as_strided((blocks, block, record), (stride, record, 1))


@dataclass
class Rank:
    """What one rank of a server holds for a layer's step; its caches are its own."""

    case: LayerCase
    step: Step
    given: Seam
    weights: LayerWeights
    layer: Layer

    @classmethod
    def of(cls, at: Ground, rank: int) -> Rank:
        case, record = at.layer.case, at.layer.k1.dims.record_bytes
        k = case.k1
        comp = None
        if k.ratio:
            comp = cache_view(case.comp.clone(), case.comp_stride, k.comp_block, record)
        swa = cache_view(k.swa.clone(), k.swa_stride, k.swa_block, record)
        topk = k.topk.clone() if not at.layer.plan.kind.index else torch.full_like(k.topk, -7)
        step = Step(k.pos.clone(), k.slot.clone(), swa, k.swa_idx.clone(), k.swa_lens.clone(), k.t2r.clone(),
                    comp, k.comp_bt.clone(), topk)  # fmt: skip
        return cls(case, step, seam_of(case), at.weights(rank), at.layer)

    def select(self, normed: Tensor, qr: Tensor) -> None:
        """What a server's compressor and indexer do, by the reference: records, then the step's lists."""
        assert normed.shape[1] == self.layer.sizes.hidden and qr.shape[0] == normed.shape[0]
        if self.layer.compressor is not None:
            after = compress(self.case, normed, self.layer.compressor, self.layer.sizes)
            assert self.step.comp is not None
            record = self.layer.k1.dims.record_bytes
            self.step.comp.copy_(cache_view(after.comp, after.comp_stride, after.k1.comp_block, record))
        assert self.step.topk is not None
        self.step.topk.copy_(self.case.k1.topk)

    def run(self, runner: Runner, given: Seam | None = None, outs: Seam | None = None) -> Seam:
        select = self.select if self.layer.plan.kind.index else None
        return runner.layer(self.weights, self.step, given or self.given, select=select, outs=outs)


def ranks_of(found: Sequence[Ground], rank: int) -> list[Rank]:
    """What a rank holds for layers of one step: those after the first share the caches that they share in a
    server."""
    own = [Rank.of(at, rank) for at in found]
    for one in own[1:]:
        one.step.comp, one.step.topk = own[0].step.comp, own[0].step.topk
    return own


def run_chain(runner: Runner, own: Sequence[Rank]) -> list[Seam]:
    """The layers one after the other, each on what the one before it left."""
    outs = list[Seam]()
    for one in own:
        outs.append(one.run(runner, outs[-1] if outs else None))
    return outs


def reload(rank: Rank, of: Ground, number: int) -> None:
    """The weights of another ground into the tensors that the runner has packed, as a server reloads."""
    layer, how, tp, ffn = of.layer, rank.layer.k1.strategy, of.tp, rank.weights.ffn
    fresh = device_copies(layer.weights.k1(tp, number), how.fp8, how.weight_layout)
    copy_into(rank.weights.k1, fresh)
    copy_into(ffn, back_copies(layer.weights.back(tp, number), how.fp8, how.weight_layout))
    tail = layer.weights.ffn(tp, number)
    ffn_copies(tail, of.experts, layer.sizes, how.fp8, how.weight_layout, existing=ffn)


def seam_of(case: LayerCase) -> Seam:
    """The layer's input as vLLM gives it; what is not folded in is not there."""
    k = case.k1
    if not k.fold:
        first = k.pre_in.new_tensor([1.0] + [0.0] * (k.pre_in.shape[1] - 1))
        is_first = bool((k.pre_in == first).all())
        return Seam(None, k.res_in.clone(), None, None, None if is_first else k.pre_in.clone())
    post = k.post_in.clone().unsqueeze(-1)
    return Seam(k.pend.clone(), k.res_in.clone(), post, k.comb_in.clone(), k.pre_in.clone())


@dataclass
class Server:
    """Runners on all ranks of a node."""

    node: EmulatedNode
    runners: tuple[Runner, ...]

    @classmethod
    def start(
        cls, arch: str, tp: int, widths: Sequence[int] = (), *, draft: bool = False, node: Any = None, **how:
        Any
    ) -> Server:  # fmt: skip
        node = node or EmulatedNode(specs(), arch, tp)
        group, place, modules = LocalRanks.make(tp), Place(arch, tp), Generated(specs())
        made = on_ranks(tp, lambda r: Runner.create(
            node.gpus[r], specs(), place, group[r], modules, draft, widths, **how
        ))  # fmt: skip
        return cls(node, tuple(made))

    @property
    def tp(self) -> int:
        return len(self.runners)

    def finish(self) -> None:
        on_ranks(self.tp, lambda r: self.node.gpus[r].synchronise())

    def close(self) -> None:
        for runner in self.runners:
            runner.close()

    def run(self, ranks: Sequence[Rank], **how: Any) -> list[Seam]:
        """One layer on all ranks, to its end."""
        outs = on_ranks(self.tp, lambda r: ranks[r].run(self.runners[r], **how))
        self.finish()
        return outs


def bits(outs: Seam) -> dict[str, Tensor]:
    """A layer's outputs as bytes, by launch argument."""
    return {n: t.contiguous().reshape(-1).view(torch.uint8) for n, t in zip(OUTPUTS, outs, strict=True)}


def same_bits(one: dict[str, Tensor], other: dict[str, Tensor]) -> list[str]:
    """Outputs that differ."""
    return [n for n in one if not torch.equal(one[n], other[n])]


def wanted(at: Ground, rank: int) -> dict[str, Tensor]:
    """What `run layer` left, as `bits`."""
    found = at.outputs(rank)
    return {n: found[n].contiguous().reshape(-1).view(torch.uint8) for n in OUTPUTS}


def judged(at: Ground, server: Server, ranks: Sequence[Rank], outs: Sequence[Seam]) -> list[Any]:
    """The reference's verdicts on what the runners' launches left, all stages of K2. K1's regions are K2's by
    then (its seam takes LIN and PMIX again); K1 is held to the bits of `run layer`."""
    layer, tp = at.layer, at.tp
    epoch = server.runners[0].epoch() - 1
    last = [_left(layer.k2, server, r, ranks[r], outs[r], epoch) for r in range(tp)]
    back, tail = [layer.weights.back(tp, r) for r in range(tp)], [layer.weights.ffn(tp, r) for r in range(tp)]
    found = k2.judge(layer.k2, at.done.k2case, back, tail, layer.sizes, specs(), last)
    return [*found, *ffn.same_bits(layer.k2, last)]


def _left(plan: K1Plan | K2Plan, server: Server, rank: int, own: Rank, outs: Seam, epoch: int) -> Launched:
    """What a launch left, as `run layer` hands it to the reference."""
    runner, rows = server.runners[rank], plan.key.rows
    call = next(c for b in runner._bound.values() for c in b.calls
                if c.plan.key.kind == plan.key.kind and c.plan.key.rows == rows)  # fmt: skip
    values: dict[str, Any] = dict(zip(OUTPUTS, outs, strict=True)) if isinstance(plan, K2Plan) else {}
    for a in (a for a in plan.abi.arguments if a.written and a.name not in values):
        if a.name == "swa":
            swa = own.step.swa
            values["swa"] = swa.as_strided((own.case.k1.swa.numel(),), (1,))
        elif a.name in call._held:
            memory = call.constant(a.name)
            count = a.bytes or memory.nbytes
            flat = memory.tensor[:count]  # type: ignore[union-attr]
            values[a.name] = flat.view(DTYPES[a.dtype]).reshape(a.shape) if a.used else flat
        else:
            values[a.name] = torch.zeros(0)
    half = None
    if isinstance(plan, K2Plan):
        peer = runner.peers.own
        assert peer is not None
        half = peer.tensor[plan.peer.half_at(epoch) :][: plan.peer.half_bytes]
    bound = Bound(values, frozenset(a.name for a in plan.abi.arguments if a.written))
    return Launched(bound, Counters(), plan.tag.at(epoch), half)
