"""Fault words, marks and the codes of builds; epochs stay far from where tags repeat."""

from __future__ import annotations

from itertools import product

import pytest

from flymono.runtime.plan import BuildKey, plan_of
from flymono.runtime.plan.faults import (
    CODE_SHIFT,
    FROM,
    HEAD_BYTES,
    MARK_BYTES,
    MARKED,
    MOST_SITES,
    OWN,
    build_code,
    fault_words,
)  # fmt: skip
from flymono.runtime.plan.tags import DRAIN_EPOCH, tags_of
from flymono.specs import Specs, load

BUILDS = (
    "dsv41_k1-gfx942-tp4-s6-r2", "dsv41_k2-gfx942-tp4-s42-r2", "dsv41_k2-gfx950-tp2-s48-r1-index",
    "dsv41_ffn-gfx950-tp2-s6", "dsv41_ffn-gfx942-tp4-s7-draft",
)  # fmt: skip


@pytest.fixture(scope="module")
def specs() -> Specs:
    return load()


def test_every_record_has_its_place() -> None:
    words = fault_words()
    places = [words.head, *(words.stride * n for n in range(1, MOST_SITES + 1)), words.mark]
    assert len({*places}) == len(places) and words.stride * 4 == HEAD_BYTES <= MARK_BYTES
    assert max(places) + words.stride == words.words


@pytest.mark.parametrize("build", BUILDS)
def test_a_plan_agrees_with_its_fault_words(specs: Specs, build: str) -> None:
    """Fields of `where` hold every site, workgroup, wave and rank, and `bound` lies behind `fault`."""
    plan = plan_of(specs, BuildKey.parse(build))
    assert 0 < len(plan.sites) <= MOST_SITES < 1 << 8 and all(s.hold == 1 for s in plan.sites)
    assert plan.grid <= 1 << 12 and plan.waves << 20 <= MARKED < 1 << 24 and plan.key.tp <= 8
    assert plan.abi["bound"].offset == plan.abi["fault"].offset + 8
    assert plan.abi["fault"].shape == (plan.fault.words,)
    assert FROM + plan.key.tp <= 1 << CODE_SHIFT and OWN < FROM
    assert (plan.epoch.epoch, plan.epoch.stop) == (0, 1), "one load has both"


def test_builds_of_a_server_have_codes_of_their_own() -> None:
    codes: dict[int, BuildKey] = {}
    for kind, rows, ratio, fold, index, narrow in product(
        ("k1", "k2"), (1, 6, 48, 63), (0, 1, 2), (True, False), (True, False), (True, False)
    ):
        window = 192 if narrow else 128
        key = BuildKey(kind, "gfx942", 4, rows, ratio, fold, index, window, draft=narrow and kind == "k2")
        code = build_code(key)
        assert 0 < code < 1 << CODE_SHIFT and codes.setdefault(code, key) == key
    for draft in (False, True):
        key = BuildKey("ffn", "gfx942", 4, 6, draft=draft)
        assert codes.setdefault(build_code(key), key) == key


def test_epochs_are_drained_before_tags_lose_their_order() -> None:
    for rule in tags_of().rules:
        assert rule.at(2 * DRAIN_EPOCH - 2) < 1 << 31, "a signed number as large as its epoch"
    assert tags_of().alias_epochs > 2 * DRAIN_EPOCH
