"""K2's attention half: right bits stage by stage, traffic, lost hand-offs; workgroups run in any order."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import attention
import pytest
import torch
from test_kernel_k1 import ORDERS

from flymono.gen.compiler import Compiler
from flymono.gen.store import Store
from flymono.reference.k2 import K2Case
from flymono.reference.layer_case import make_k2_case
from flymono.reference.layer_sizes import LayerSizes
from flymono.reference.layer_weights import BackWeights
from flymono.runtime.plan import BuildKey, K2Plan
from flymono.runtime.runner.faults import fault_report

QUICK = ("dsv41_k2-gfx942-tp4-s6-r2", "dsv41_k2-gfx950-tp2-s6-r2")
# builds and the contexts of their requests; () draws long, short and middling ones
RIGHT = [
    ("dsv41_k2-gfx942-tp4-s6-r2", ()),
    ("dsv41_k2-gfx942-tp4-s7-r0", (1, 100, 130)),
    ("dsv41_k2-gfx950-tp2-s6-r2-index", ()),
    ("dsv41_k2-gfx950-tp4-s17-r1", (1, 100, 200)),
]
SLOW = [
    ("dsv41_k2-gfx942-tp4-s1-r1", (70000,)),
    ("dsv41_k2-gfx942-tp4-s24-r2", (1, 100, 130, 513, 4000)),
    ("dsv41_k2-gfx942-tp4-s42-r1", ()),
    ("dsv41_k2-gfx950-tp2-s16-r0", ()),
    ("dsv41_k2-gfx950-tp2-s48-r2", (130, 4000)),
    ("dsv41_k2-gfx950-tp4-s1-r2-index", (513,)),
    ("dsv41_k2-gfx950-tp4-s17-r2", (1, 513, 4000)),
    ("dsv41_k2-gfx950-tp4-s48-r1-index", ()),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("templates")


@cache
def _weights(tp: int) -> BackWeights:
    return attention.random_weights(LayerSizes.of(attention.MODEL, tp), seed=tp)


def _case(plan: K2Plan, contexts: tuple[int, ...] = ()) -> K2Case:
    key = plan.key
    return make_k2_case(
        attention.MODEL, rows=key.rows, tp=key.tp, ratio=key.ratio, window=key.window, fp8=plan.strategy.fp8,
        keys_inside=key.index, contexts=contexts,
    )  # fmt: skip


def _digest(done: attention.Done) -> str:
    """Of every byte that a rank may write."""
    written = [done.given["scratch"], *done.peers]
    if done.plan.key.index:
        written += [done.given["kt"].view(torch.uint8), done.given["klen"].view(torch.uint8)]
    return hashlib.sha256(b"".join(t.reshape(-1).numpy().tobytes() for t in written)).hexdigest()


def _check(build: str, contexts: tuple[int, ...], store: Store, compiler: Compiler, folder: Path) -> None:
    plan, made = attention.artefact(BuildKey.parse(build), store, compiler, folder)
    case, weights = _case(plan, contexts), _weights(plan.key.tp)
    done = attention.launch(plan, made, case, weights)
    judge = attention.Judge(done, case, weights, 0)
    judge.check()
    judge.nothing_else_is_pushed()
    assert not done.given["epoch"][plan.epoch.stop] and not done.given["fault"].any()


@pytest.mark.parametrize(("build", "contexts"), RIGHT)
def test_stages(
    build: str, contexts: tuple[int, ...], store: Store, compiler: Compiler, folder: Path
) -> None:
    _check(build, contexts, store, compiler, folder)


@pytest.mark.slow
@pytest.mark.parametrize(("build", "contexts"), SLOW)
def test_stages_of_other_widths(
    build: str, contexts: tuple[int, ...], store: Store, compiler: Compiler, folder: Path
) -> None:
    _check(build, contexts, store, compiler, folder)


@pytest.mark.parametrize("options", [{}, {"order": "random", "seed": 2}])
def test_ranks_push_to_each_other(
    options: dict[str, Any], store: Store, compiler: Compiler, folder: Path
) -> None:
    """Two ranks with their own heads and weights: both end with both partials, and the same bytes."""
    plan, made = attention.artefact(BuildKey.parse(QUICK[1]), store, compiler, folder)
    case, sizes = _case(plan), LayerSizes.of(attention.MODEL, 2)
    weights = [attention.random_weights(sizes, seed) for seed in (2, 3)]
    ranks = attention.launch_all(plan, made, case, weights, **options)
    parts = [attention.Judge(d, case, weights[r], r).check() for r, d in enumerate(ranks)]
    assert not torch.equal(*parts)
    assert torch.equal(ranks[0].pushed(0), ranks[0].pushed(1))


@pytest.mark.parametrize("build", QUICK)
def test_chunks_without_any_key(build: str, store: Store, compiler: Compiler, folder: Path) -> None:
    """A live chunk of -1 entries has sum 0 and the lowest maximum; a row of them alone leaves the sink."""
    plan, made = attention.artefact(BuildKey.parse(build), store, compiler, folder)
    case, chunk = _case(plan), plan.attention.split.chunk
    kt, klen = case.kt.clone(), case.klen.clone()
    kt[0, :chunk] = -1
    kt[1], klen[1] = -1, chunk
    case = replace(case, kt=kt, klen=klen)
    done = attention.launch(plan, made, case, _weights(plan.key.tp))
    judge = attention.Judge(done, case, _weights(plan.key.tp), 0)
    judge.check()
    dead = judge.done.region("pstat", torch.float32, case.rows, -1, judge.sizes.heads, 2)[:2, 0]
    assert (dead[..., 1] == 0).all()
    assert (judge.done.region("xo", torch.uint8, case.rows, -1)[1] & 0x7F == 0).all()  # a rotated 0 may be -0


def test_compressed_records_hold_minus_zero(store: Store, compiler: Compiler, folder: Path) -> None:
    """What the FNUZ fix-up is for is in the cases: OCP's -0 is FNUZ's NaN."""
    plan, _ = attention.artefact(BuildKey.parse(QUICK[0]), store, compiler, folder)
    case = _case(plan)
    assert plan.strategy.fp8 == "fnuz"
    assert (case.comp == 0x80).any()


@pytest.mark.parametrize("build", QUICK)
def test_figures_and_traffic(build: str, store: Store, compiler: Compiler, folder: Path) -> None:
    plan, made = attention.artefact(BuildKey.parse(build), store, compiler, folder)
    figures = made.resources
    assert figures.vgpr_spills == figures.sgpr_spills == figures.scratch_bytes == 0
    done = attention.launch(plan, made, _case(plan), _weights(plan.key.tp))
    for weights in ("woa", "wob"):
        tensors = [done.given[weights], done.given[f"{weights}_s"]]
        asked = sum(done.result.traffic[name].load.bytes for name in (weights, f"{weights}_s"))
        assert sum(t.nbytes for t in tensors) <= asked <= 1.02 * sum(t.nbytes for t in tensors)


@pytest.mark.parametrize("build", [QUICK[0], "dsv41_k2-gfx950-tp2-s6-r2-index"])
def test_any_order_of_workgroups_gives_the_same_bytes(
    build: str, store: Store, compiler: Compiler, folder: Path
) -> None:
    plan, made = attention.artefact(BuildKey.parse(build), store, compiler, folder)
    case, weights = _case(plan), _weights(plan.key.tp)
    orders: list[dict[str, Any]] = [{}, *ORDERS]  # type: ignore[list-item]
    assert len({_digest(attention.launch(plan, made, case, weights, **o)) for o in orders}) == 1


@pytest.mark.parametrize("build", QUICK)
def test_a_lost_hand_off_ends_the_launch_and_names_its_site(
    build: str, store: Store, compiler: Compiler, folder: Path
) -> None:
    """Without the workgroups that combine, wo_a gets no row: every wait gives up, none is endless."""
    plan, made = attention.artefact(BuildKey.parse(build), store, compiler, folder)
    grid = plan.stage("combine").first
    done = attention.launch(plan, made, _case(plan), _weights(plan.key.tp), grid=grid, check=False,
                            on_standstill="clock")  # fmt: skip
    report = fault_report(0, done.given["fault"].tolist(), [plan])
    assert report is not None and report.wait is not None
    assert report.wait.site in ("wo_a_crdy", "wo_b_ardy") and report.wait.workgroup < grid
    assert report.wait.epoch == attention.EPOCH and "1 epochs before" in report.wait.seen
