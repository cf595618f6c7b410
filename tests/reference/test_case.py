"""Cases hold what they promise, for any shape of step, and come out the same everywhere."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flymono.reference.case import K1Case, make_case
from flymono.reference.draws import Draws
from flymono.reference.formats import FNUZ, decode_table
from flymono.reference.sizes import K1Sizes
from flymono.specs.schema import ModelSpec


def check(case: K1Case, sizes: K1Sizes) -> None:
    live = case.live
    slots = case.slot[live]
    states = len(case.swa) // case.swa_stride * case.swa_block
    assert len(slots.unique()) == len(slots)
    assert bool((slots < states).all()) and bool((case.swa_idx < states).all())
    assert bool((case.pos >= 0).all()) and int(case.pos.max()) < len(case.cos_sin)
    for row in torch.nonzero(live).flatten().tolist():
        listed = case.swa_idx[row, : case.swa_lens[row]]
        assert bool((listed >= 0).all()) and len(listed.unique()) == len(listed)
        assert int(case.slot[row]) in listed.tolist()
        assert bool((case.swa_idx[row, case.swa_lens[row] :] == -1).all())
        if case.window == sizes.window:
            assert int(case.swa_lens[row]) == min(int(case.pos[row]) + 1, sizes.window)
    assert not case.swa_lens[~live].any()
    assert case.swa_stride >= case.swa_block * sizes.record_bytes


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 48), st.sampled_from([0, 1, 2]), st.integers(0, 1000))
def test_any_step_is_consistent(model: ModelSpec, rows: int, ratio: int, seed: int) -> None:
    case = make_case(model, rows=rows, tp=4, ratio=ratio, seed=seed)
    check(case, K1Sizes.of(model, 4))
    if ratio:
        visible = (case.pos + 1) // ratio
        for row in torch.nonzero(case.live).flatten().tolist():
            used = case.topk[row, : min(int(visible[row]), 512)]
            assert max(used.tolist(), default=-1) < max(int(visible[row]), 1)
            block = case.comp_bt[case.t2r[row]]
            assert int(visible[row]) // case.comp_block < len(block)


@pytest.mark.parametrize("rows", [6, 12, 48])
def test_corner_cases_are_there(model: ModelSpec, rows: int) -> None:
    case = make_case(model, rows=rows, tp=2, ratio=2)
    assert bool((case.slot == -1).any())
    assert bool((case.swa_lens[case.live] < 128).any()) and bool((case.swa_lens == 128).any())
    assert bool((case.res_in.abs().flatten(1).amax(-1)[case.live] < 1e-8).any())
    first = case.topk[0, :512]
    assert bool((first == -1).any()) and bool((first >= 0).any())
    assert not case.res_in[0, :, 64:96].any()


def test_draft_windows_cover_the_whole_block(model: ModelSpec) -> None:
    case = make_case(model, rows=12, tp=2, ratio=0, window=192)
    check(case, K1Sizes.of(model, 2))
    assert case.swa_idx.shape == (12, 192)
    assert int(case.swa_lens.max()) > 128
    same = case.t2r[case.live][1:] == case.t2r[case.live][:-1]
    ends = [case.swa_idx[r, case.swa_lens[r] - 1] for r in range(int(case.live.sum()))]
    assert all(ends[i] == ends[i + 1] for i in torch.nonzero(same).flatten().tolist())


def test_unread_inputs_are_nan(model: ModelSpec) -> None:
    case = make_case(model, rows=3, tp=2, ratio=0, fold=False)
    assert all(torch.isnan(t).all() for t in (case.pend, case.post_in, case.comb_in))


def test_a_fnuz_cache_holds_no_nan(model: ModelSpec) -> None:
    case = make_case(model, rows=3, tp=4, ratio=0, fp8="fnuz")
    assert not torch.isnan(decode_table(FNUZ)[case.swa.to(torch.int64)]).any()


@pytest.mark.parametrize(
    ("options", "said"), [({"padded": 4}, "at least one row"), ({"positions": 9}, "positions 9")]
)
def test_impossible_cases_are_refused(model: ModelSpec, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make_case(model, rows=4, tp=2, ratio=0, **options)


def test_draws_do_not_move() -> None:
    draws = Draws(7, "pinned")
    blob = b"".join(
        t.numpy().tobytes()
        for t in (
            draws.octets(33),
            draws.integers(-3, 9, 5),
            draws.uniform(4),
            draws.normal(6),
            draws.permutation(9),
        )
    )
    assert hashlib.sha256(blob).hexdigest()[:16] == "ef1bd392da8d415f"


def test_select_keeps_rows_whole(model: ModelSpec) -> None:
    case = make_case(model, rows=12, tp=2, ratio=1)
    rows = torch.tensor([5, 0])
    part = case.select(rows)
    assert part.rows == 2
    assert torch.equal(part.res_in, case.res_in[rows]) and torch.equal(part.topk, case.topk[rows])
    assert part.swa is case.swa
