"""The FFN launch as a whole: figures, right results on all ranks, traffic, any order, a lost hand-off."""

from __future__ import annotations

from functools import cache

import ffn
import pytest
import torch
from test_kernel_k1 import ORDERS

from flymono.gen.compiler import Compiler
from flymono.gen.store import Store
from flymono.runtime.runner.faults import fault_report

QUICK = ("dsv41_ffn-gfx942-tp4-s1", "dsv41_ffn-gfx950-tp2-s1")
# The public implementation's figures at 6 rows: (VGPRs, LDS bytes, instructions).
PUBLIC = {"dsv41_ffn-gfx942-tp4-s6": (213, 57024, 13895), "dsv41_ffn-gfx950-tp2-s6": (244, 89792, 10047)}
RIGHT = (
    "dsv41_ffn-gfx942-tp4-s6",
    "dsv41_ffn-gfx942-tp4-s7",  # x in K blocks
    "dsv41_ffn-gfx950-tp2-s6",
    "dsv41_ffn-gfx950-tp4-s6-draft",  # a shared width that ends inside a step, four K slices
)
SLOW = (
    "dsv41_ffn-gfx942-tp4-s17",  # tasks from the counter, x gathered in K blocks
    "dsv41_ffn-gfx942-tp4-s42-draft",
    "dsv41_ffn-gfx942-tp4-s6-draft",
    "dsv41_ffn-gfx950-tp2-s17",  # tasks from the counter, whole rows gathered
    "dsv41_ffn-gfx950-tp2-s17-draft",
    "dsv41_ffn-gfx950-tp4-s48",
)


@pytest.mark.parametrize("build", PUBLIC)
def test_smaller_than_the_public_kernel(build: str, store: Store, compiler: Compiler) -> None:
    _, made = ffn.artefact(build, store, compiler)
    figures, (vgprs, lds, instructions) = made.resources, PUBLIC[build]
    assert figures.vgprs <= vgprs
    assert figures.lds_bytes <= lds
    assert figures.instructions <= instructions // 2
    assert figures.vgpr_spills == figures.sgpr_spills == figures.scratch_bytes == 0


def _is_right(build: str, store: Store, compiler: Compiler) -> None:
    plan, made = ffn.artefact(build, store, compiler)
    one = ffn.group(plan)
    ffn.launch(one, made)
    wrong = [v for v in one.judged() if not v.ok]
    assert not wrong, wrong
    for given in one.given:
        epoch = given["epoch"]
        assert int(epoch[0]) == ffn.EPOCH + 1
        assert not epoch[plan.epoch.stop] and not given["fault"].any()
        assert torch.equal(given["out"], one.given[0]["out"])


@pytest.mark.parametrize("build", RIGHT)
def test_every_stage_is_right_on_all_ranks(build: str, store: Store, compiler: Compiler) -> None:
    _is_right(build, store, compiler)


@pytest.mark.slow
@pytest.mark.parametrize("build", SLOW)
def test_every_stage_is_right_at_other_widths(build: str, store: Store, compiler: Compiler) -> None:
    _is_right(build, store, compiler)


@pytest.mark.parametrize("build", QUICK)
def test_weights_are_asked_for_once(build: str, store: Store, compiler: Compiler) -> None:
    plan, made = ffn.artefact(build, store, compiler)
    result = ffn.launch(ffn.group(plan), made)[0]

    def asked(*names: str) -> float:
        seen = [result.traffic[f"{name} of rank 0"] for name in names]
        return sum(t.load.bytes for t in seen) / sum(t.unique_loaded for t in seen)

    assert asked("w13", "w13_s", "w2", "w2_s") <= 1.02
    assert asked("gate_w") == asked("hc_fn") == asked("sgu") == asked("sw2") == 1.0
    planned = {t.name: t for t in plan.cost.traffic}
    for name in ("part", "res_in", "hc_fn", "gate_w", "sgu", "sw2"):
        assert result.traffic[f"{name} of rank 0"].load.bytes == planned[name].requested_read, name


@cache
def _first_bits(build: str, store: Store, compiler: Compiler) -> str:
    plan, made = ffn.artefact(build, store, compiler)
    one = ffn.group(plan)
    ffn.launch(one, made)
    return one.digest()


@pytest.mark.parametrize("build", QUICK)
def test_any_order_of_workgroups_gives_the_same_bits(build: str, store: Store, compiler: Compiler) -> None:
    plan, made = ffn.artefact(build, store, compiler)
    digests = {_first_bits(build, store, compiler)}
    for options in ORDERS:
        one = ffn.group(plan)
        ffn.launch(one, made, **options)
        digests.add(one.digest())
    assert len(digests) == 1


@pytest.mark.parametrize("build", QUICK)
def test_launches_in_a_row_use_both_halves_and_clear_counters(
    build: str, store: Store, compiler: Compiler
) -> None:
    plan, made = ffn.artefact(build, store, compiler)
    one = ffn.group(plan)
    ffn.launch(one, made, times=2, order="random", seed=3)
    assert one.digest() == _first_bits(build, store, compiler)
    for given in one.given:
        epoch, words = given["epoch"], plan.epoch
        assert int(epoch[0]) == ffn.EPOCH + 2
        for ring in (words.ug_counters, words.down_counters):
            cleared = (epoch[ring : ring + words.ring] == 0).nonzero().flatten().tolist()
            ahead = [(ffn.EPOCH + n + words.ring // 2) % words.ring for n in range(2)]
            assert set(ahead) <= set(cleared)
    for peer in one.peers:
        tags = peer[plan.peer.mark_bytes :].view(torch.int32)[1::2]
        halves = tags.reshape(2, -1)
        used = sum(r.bytes for r in plan.peer.regions.regions) // 8
        assert {plan.tag.at(ffn.EPOCH + n) for n in range(2)} == {int(h[0]) for h in halves}
        assert all((h[:used] == h[0]).all() for h in halves)


@pytest.mark.parametrize("build", QUICK)
def test_a_lost_hand_off_ends_every_rank_and_names_its_site(
    build: str, store: Store, compiler: Compiler
) -> None:
    """Rank 0 runs without the workgroups that norm: its waits give up, and so do its peers'."""
    plan, made = ffn.artefact(build, store, compiler)
    one = ffn.group(plan)
    grids = [plan.stage("norm").first] + [plan.grid] * (plan.key.tp - 1)
    ffn.launch(one, made, grids=grids, check=False, on_standstill="clock")
    for rank, given in enumerate(one.given):
        report = fault_report(rank, given["fault"].tolist(), [plan])
        assert report is not None and report.wait is not None, rank
        assert report.wait.site in {s.name for s in plan.sites} and report.wait.epoch == ffn.EPOCH
        assert report.wait.workgroup < plan.grid
        assert int(given["epoch"][0]) == ffn.EPOCH
