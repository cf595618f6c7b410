"""K1 as a whole: its figures, its traffic, a lost hand-off, and that the order of workgroups is free.

Whether the outputs are right is asked by the tests of `runtime/run`, which compare every stage.
"""

from __future__ import annotations

import hashlib
from functools import cache

import pytest
import small
import torch

from flymono.emulator.codeobject import CodeObject
from flymono.emulator.device import Emulator, LaunchResult
from flymono.gen.build import Settings, build
from flymono.gen.compiler import Compiler
from flymono.gen.store import Artefact, Store
from flymono.gen.units import unit_of
from flymono.reference.case import make_case
from flymono.reference.weights import random_weights
from flymono.runtime.plan import BuildKey, K1Plan, plan_k1
from flymono.runtime.run.bind import Bound, bind
from flymono.runtime.run.group import Group
from flymono.runtime.run.k1 import arguments_of
from flymono.runtime.runner.faults import fault_report

# The public implementation's figures at 6 rows, ratio 2, fold: (VGPRs, LDS bytes, instructions).
PUBLIC = {"gfx942": (154, 42752, 4551), "gfx950": (192, 59136, 3842)}
ORDERS = [
    {"order": "reversed"},
    {"order": "random", "seed": 4, "sampling": "random"},
    {"order": "starve:3", "sampling": "early"},
    {"lds_race": True},
]


@cache
def _weights(tp: int) -> object:
    return random_weights(next(iter(small.SPECS.model.values())), tp, seed=1)


def _artefact(key: BuildKey, store: Store, compiler: Compiler) -> tuple[K1Plan, Artefact]:
    unit, plan = unit_of(small.SPECS, key), plan_k1(small.SPECS, key)
    return plan, build(unit, Settings(store), compiler)[0]


def _bound(plan: K1Plan, seed: int = 1) -> Bound:
    key, model = plan.key, next(iter(small.SPECS.model.values()))
    case = make_case(
        model, rows=key.rows, tp=key.tp, ratio=key.ratio, fold=key.fold, index=key.index, window=key.window,
        seed=seed, fp8=plan.strategy.fp8,
    )  # fmt: skip
    return bind(plan, {**arguments_of(plan, case, _weights(key.tp)), **Group.of([plan], 1).arguments(0)})  # type: ignore[arg-type]


def _launch(plan: K1Plan, artefact: Artefact, bound: Bound, grid: int = 0, **options: object) -> LaunchResult:
    device = Emulator(plan.key.arch, **options)  # type: ignore[arg-type]
    for argument in plan.abi.arguments:
        if isinstance(bound.values[argument.name], torch.Tensor):
            device.register(argument.name, bound.values[argument.name], writable=argument.written)
    values = [bound.values[a.name] for a in plan.abi.arguments]
    return device.launch(CodeObject(artefact.hsaco), artefact.kernel, grid or plan.grid, values)


def _digest(plan: K1Plan, bound: Bound) -> str:
    """Of every byte that a kernel may write, scratch included."""
    sha = hashlib.sha256()
    for argument in plan.abi.arguments:
        if argument.written:
            sha.update(
                bound.tensor(argument.name).contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            )
    return sha.hexdigest()


@pytest.mark.parametrize("arch", small.ARCHS)
def test_smaller_than_the_public_kernel(arch: str, store: Store, compiler: Compiler) -> None:
    _, artefact = _artefact(small.KEYS[arch], store, compiler)
    figures, (vgprs, lds, instructions) = artefact.resources, PUBLIC[arch]
    assert figures.vgprs <= vgprs
    assert figures.lds_bytes <= lds
    assert figures.instructions <= instructions
    assert figures.vgpr_spills == figures.sgpr_spills == figures.scratch_bytes == 0


@pytest.mark.parametrize("arch", small.ARCHS)
def test_weights_are_asked_for_once(arch: str, store: Store, compiler: Compiler) -> None:
    plan, artefact = _artefact(small.KEYS[arch], store, compiler)
    bound = _bound(plan)
    result = _launch(plan, artefact, bound)
    for weights, codes in (("wqkv", "wqkv_s"), ("wqb", "wqb_s")):
        size = bound.tensor(weights).nbytes + bound.tensor(codes).nbytes
        asked = result.traffic[weights].load.bytes + result.traffic[codes].load.bytes
        assert size <= asked + bound.tensor(codes).nbytes
        assert asked <= 1.02 * size
    assert result.traffic["hc_fn"].load.bytes == bound.tensor("hc_fn").nbytes


@pytest.mark.parametrize("arch", small.ARCHS)
def test_any_order_of_workgroups_gives_the_same_bytes(arch: str, store: Store, compiler: Compiler) -> None:
    plan, artefact = _artefact(small.KEYS[arch], store, compiler)
    digests = set()
    for options in ({}, *ORDERS):
        bound = _bound(plan)
        _launch(plan, artefact, bound, **options)
        digests.add(_digest(plan, bound))
    assert len(digests) == 1


@pytest.mark.parametrize("arch", small.ARCHS)
def test_a_lost_hand_off_ends_the_launch_and_names_its_site(
    arch: str, store: Store, compiler: Compiler
) -> None:
    """Without the workgroups that norm, nobody gets a row: every wait gives up, none is endless."""
    plan, artefact = _artefact(small.KEYS[arch], store, compiler)
    bound = _bound(plan)
    grid = plan.stage("norm").first
    _launch(plan, artefact, bound, grid=grid, check=False, on_standstill="clock")
    epoch = bound.tensor("epoch")
    report = fault_report(0, bound.tensor("fault").tolist(), [plan])
    assert report is not None and report.wait is not None
    assert report.wait.site == "wqkv_xrdy" and report.wait.build == plan.key.id
    assert report.wait.workgroup < grid and report.wait.wave < plan.waves
    assert report.wait.epoch == int(epoch[plan.epoch.epoch])
    assert int(epoch[plan.epoch.stop]) == 1


@pytest.mark.parametrize("arch", small.ARCHS)
def test_a_launch_without_faults_leaves_no_record(arch: str, store: Store, compiler: Compiler) -> None:
    plan, artefact = _artefact(small.KEYS[arch], store, compiler)
    bound = _bound(plan)
    before = bound.tensor("epoch").clone()
    _launch(plan, artefact, bound)
    assert torch.equal(bound.tensor("epoch"), before)
    assert not bound.tensor("fault").any()


def test_timeline_has_a_clock_at_every_point(store: Store, compiler: Compiler) -> None:
    key = BuildKey("k1", "gfx942", 4, 1, ratio=0, timeline=True)
    plan, artefact = _artefact(key, store, compiler)
    bound = _bound(plan)
    bound.tensor("tl").fill_(-1)
    _launch(plan, artefact, bound)
    points = bound.tensor("tl").reshape(plan.grid, len(plan.points))
    assert (points >= 0).all() and (points.diff(dim=1) >= 0).all()
