"""The FFN launch through runners: both mixtures on the target's runner; epochs that start anew."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import pytest
import torch
from serving import OUTPUTS, Server, bits, on_ranks, same_bits, specs
from torch import Tensor

from flymono.reference.layer_case import make_ffn_case
from flymono.reference.layer_weights import seeded_layer
from flymono.runtime.devices.emulated import EmulatedNode
from flymono.runtime.devices.emulator import EmulatorDevice
from flymono.runtime.plan import BuildKey, plan_ffn
from flymono.runtime.run import ffn
from flymono.runtime.run.ffn_command import Ready, given, selected
from flymono.runtime.run.group import Group, Kernel
from flymono.runtime.runner import FaultError, InputError, LayerWeights, Seam

TP, ARCH = 2, "gfx950"


@dataclass(frozen=True)
class FfnGround:
    """An FFN launch that was found right, what each rank gave to it, and its outputs' bits."""

    layer: int
    given: tuple[Any, ...]
    outputs: tuple[dict[str, Tensor], ...]

    def inputs(self, rank: int) -> tuple[LayerWeights, Seam]:
        own = self.given[rank]
        plan = plan_ffn(specs(), BuildKey("ffn", ARCH, TP, 1, draft=self.layer >= 40))
        weights = {a.name: own[a.name] for a in plan.abi.arguments if a.owner == "layer" and a.used}
        seam = Seam(*(own[n].clone() for n in ("part", "res_in", "post_in", "comb_in", "pre_in")))
        return LayerWeights(self.layer, ffn=weights), seam


@lru_cache(maxsize=1)
def ffn_ground(number: int) -> FfnGround:
    from flymono.gen import api

    (model,) = specs().model.values()
    plan = plan_ffn(specs(), BuildKey("ffn", ARCH, TP, 1, draft=number >= 40))
    weights = seeded_layer(model, number, 0)
    case = make_ffn_case(model, rows=1, tp=TP, fp8=plan.strategy.fp8)
    ready = Ready(plan, case, weights, "")
    its = given(ready, selected(ready))
    kernel = Kernel(plan, api.build(plan.key, specs()), its)
    done = Group.of([plan], TP).launch(EmulatorDevice(specs().arch[ARCH], {"seed": 0}), [kernel])[0]
    own = [weights.ffn(TP, r) for r in range(TP)]
    assert all(v.ok for v in ffn.judge(plan, case, own, weights.sizes(TP), specs(), done))
    outs = tuple({n: d.outputs(plan)[n].reshape(-1).view(torch.uint8) for n in OUTPUTS} for d in done)
    return FfnGround(number, its, outs)


@pytest.mark.parametrize("number", [40, pytest.param(3, marks=pytest.mark.slow)])
def test_the_ffn_launch_has_the_bits_of_run_ffn(number: int) -> None:
    at, server = ffn_ground(number), Server.start(ARCH, TP, [1])
    inputs = [at.inputs(r) for r in range(TP)]
    outs = on_ranks(TP, lambda r: server.runners[r].ffn(*inputs[r]))
    server.finish()
    for r in range(TP):
        assert same_bits(bits(outs[r]), at.outputs[r]) == [], f"rank {r}"
    server.close()


@pytest.mark.slow
@pytest.mark.parametrize("captured", [False, True])
def test_epochs_start_anew_with_the_same_bits_and_the_same_graphs(captured: bool) -> None:
    at = ffn_ground(40)
    server = Server.start(ARCH, TP, [1], look_every=1)
    limit = server.runners[0].guarding.limit
    inputs = [at.inputs(r) for r in range(TP)]
    outs = [Seam(*(torch.empty_like(t) for t in i[1])) for i in inputs]
    for r in range(TP):
        server.runners[r].ffn(*inputs[r], outs=outs[r])
    server.finish()
    for runner in server.runners:
        runner.buffers.forget_tags()
        runner.peers.forget_tags()
        runner.buffers.epoch[0] = limit - 8
    graphs = [partial(server.runners[r].ffn, *inputs[r], outs=outs[r]) for r in range(TP)]
    if captured:
        for r in range(TP):
            with server.node.gpus[r].capture() as recorded:
                server.runners[r].ffn(*inputs[r], outs=outs[r])
            graphs[r] = recorded[0].replay  # type: ignore[assignment]
    epochs, anew = [], []
    for _ in range(20):
        on_ranks(TP, lambda r: graphs[r]())
        anew.append(on_ranks(TP, lambda r: server.runners[r].guard()))
        epochs.append([runner.epoch() for runner in server.runners])
        for r in range(TP):
            assert same_bits(bits(outs[r]), at.outputs[r]) == [], f"rank {r} after {len(epochs)} launches"
            for tensor in outs[r]:
                assert tensor is not None
                tensor.zero_()
    assert anew == [[n == 7] * TP for n in range(20)]
    assert epochs == [[limit - 7 + n if n < 7 else n - 7] * TP for n in range(20)]
    server.close()


@pytest.mark.slow
def test_a_rank_that_never_launches_ends_its_peer_with_a_report_and_the_fault_stays() -> None:
    """As on a GPU whose peer died: the wait ends at its bound, every rank hears of it, nothing runs after."""
    at = ffn_ground(40)
    how = {"seed": 0, "check": False, "on_standstill": "clock"}  # registers of a wait that ended hold nothing
    node = EmulatedNode(specs(), ARCH, TP, how, patience=0.5)
    server = Server.start(ARCH, TP, [1], node=node)
    inputs = [at.inputs(r) for r in range(TP)]
    one, other = server.runners
    one.health(settled=True)
    assert one.sound() and other.sound()
    outs = one.ffn(*inputs[0])
    node.gpus[0].synchronise()
    assert not one.sound() and not other.sound(), "the mark is in every rank's peer buffer"
    other.health()
    with pytest.raises(FaultError, match="rank 0"):
        other.health(settled=True)
    with pytest.raises(FaultError) as raised:
        one.health()
    (report,) = raised.value.reports
    assert report.rank == 0 and report.origin == 0
    assert report.wait is not None and report.wait.awaited == (1,) and report.wait.epoch == 0
    assert same_bits(bits(outs), at.outputs[0]) != []
    for runner, rank in ((other, 1), (one, 0)):
        untouched = Seam(*(torch.full_like(t, 3.0) for t in inputs[rank][1]))
        runner.ffn(*inputs[rank], outs=untouched)
        node.gpus[rank].synchronise()
        assert all((t == 3.0).all() for t in untouched if t is not None), "the launch returned at once"
    with pytest.raises(FaultError, match="rank 0"):
        other.health()
    with pytest.raises(FaultError):
        one.health()
    server.close()
    one.health()


def test_weights_that_do_not_fit_are_all_named() -> None:
    at, server = ffn_ground(40), Server.start(ARCH, TP, [1])
    weights, given = at.inputs(0)
    bad = {**weights.ffn, "gate_w": weights.ffn["gate_w"][:5], "bias": weights.ffn["bias"].double()}
    del bad["sw2"]
    with pytest.raises(InputError) as raised:
        server.runners[0].ffn(LayerWeights(40, ffn=bad), given)
    assert {f.split(": ")[1] for f in raised.value.findings} == {"gate_w", "bias", "sw2"}
    server.close()


def test_inputs_are_looked_at_in_every_step_and_strides_are_mended() -> None:
    at, server = ffn_ground(40), Server.start(ARCH, TP, [1])
    inputs = [at.inputs(r) for r in range(TP)]
    assert inputs[0][1].comb is not None
    turned = [Seam(s.x, s.residual, s.post, _apart(s.comb), s.pre) for _, s in inputs]
    assert turned[0].comb is not None and not turned[0].comb.is_contiguous()
    outs = on_ranks(TP, lambda r: server.runners[r].ffn(inputs[r][0], turned[r]))
    server.finish()
    assert same_bits(bits(outs[0]), at.outputs[0]) == []
    weights, good = inputs[0]
    assert good.x is not None
    for name, wrong in (
        ("part", good._replace(x=good.x.float())), ("part", good._replace(x=None)),
        ("part", good._replace(x=good.x[:, :5])), ("pre_in", good._replace(pre=good.residual)),
    ):  # fmt: skip
        with pytest.raises(InputError, match=name):
            server.runners[0].ffn(weights, wrong)
    with pytest.raises(InputError, match="not contiguous"):
        server.runners[0].ffn(weights, good, outs=Seam(*turned[0]))
    server.close()


def _apart(value: Tensor | None) -> Tensor | None:
    """The same values with other strides."""
    assert value is not None
    wide = torch.zeros(*value.shape[:-1], 2 * value.shape[-1], dtype=value.dtype)
    wide[..., ::2] = value
    return wide[..., ::2]
