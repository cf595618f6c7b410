"""Scratch layouts and tags: nothing overlaps that did not ask to, nothing old looks new."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flymono.runtime.plan.dims import dims_of
from flymono.runtime.plan.k1.regions import k1_regions
from flymono.runtime.plan.scratch import Declared, Kind, lay_out, misfits
from flymono.runtime.plan.tags import epoch_words, tags_of
from flymono.specs import Specs


def declared(name: str, size: int, kind: Kind = "data", shares: str | None = None) -> Declared:
    return Declared(name, size, kind, "i32", "w", "r", ("k1",), "t", shares)


@st.composite
def declarations(draw: st.DrawFn) -> list[Declared]:
    """Regions of any size; some share an earlier one of their kind that is large enough."""
    made: list[Declared] = []
    kinds = st.sampled_from(["pairs", "data", "flags"])
    for i in range(draw(st.integers(1, 12))):
        kind: Any = draw(kinds)
        size = draw(st.integers(1, 5000))
        homes = [d for d in made if d.kind == kind and d.bytes >= size and d.shares is None]
        shared: bool = bool(homes) and draw(st.booleans())
        home = draw(st.sampled_from(homes)).name if shared else None
        made.append(declared(f"r{i}", size, kind, home))
    return made


@given(declarations())
def test_regions_are_disjoint_unless_they_share(regions: list[Declared]) -> None:
    scratch = lay_out(regions)
    assert [r.name for r in scratch.regions] == [d.name for d in regions]
    for a, b in combinations(scratch.regions, 2):
        apart = a.end <= b.offset or b.end <= a.offset
        homes = {a.shares or a.name, b.shares or b.name}
        assert apart == (len(homes) == 2)
        if not apart:
            assert a.kind == b.kind
    assert all(r.offset % scratch.align == 0 and r.end <= scratch.total for r in scratch.regions)
    assert not misfits(scratch, regions)


@given(declarations(), declarations())
def test_appending_moves_nothing(first: list[Declared], later: list[Declared]) -> None:
    more = [declared(f"k2_{d.name}", d.bytes, d.kind) for d in later]
    alone, both = lay_out(first), lay_out([*first, *more])
    assert both.regions[: len(first)] == alone.regions


@pytest.mark.parametrize(
    ("regions", "message"),
    [
        ([declared("a", 8), declared("a", 8)], "declared twice"),
        ([declared("b", 8, shares="a")], "not declared before"),
        ([declared("a", 8, "pairs"), declared("b", 8, "data", "a")], "would be data of another"),
        ([declared("a", 8), declared("b", 9, shares="a")], "needs 9 bytes, 'a' has 8"),
    ],
)
def test_unsound_declarations(regions: list[Declared], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lay_out(regions)


def test_a_build_does_not_fit_a_smaller_layout(specs: Specs) -> None:
    """A draft build whose flags took twice the room once wrote over the next region, unseen."""
    d = dims_of(specs.model["deepseek_v41_flash"], 4)
    six, seven = k1_regions(d, 6), k1_regions(d, 7)
    assert not misfits(lay_out(seven), six)
    assert len(misfits(lay_out(six), seven)) == len(six)
    assert misfits(lay_out(six[1:]), six) == ["x8: not in the layout"]
    turned = [declared("x8", 1, "flags"), *six[1:]]
    assert misfits(lay_out(six), turned) == ["x8: is data in the layout and flags in the build"]


def test_tags_do_not_alias() -> None:
    tags = tags_of()
    for start in (0, 1000, 2**30 - 500, 2**31 - 1001):
        seen = [tags[launch].at(e) for e in range(start, start + 1000) for launch in ("k1", "k2")]
        assert len(set(seen)) == len(seen) and 0 not in seen
    assert tags["k1"].at(0) == 1 and tags["k2"].at(0) == 2 and tags["k1"].at(7) == 15


@given(st.integers(0, 2**31 - 2), st.integers(0, 2**31 - 2))
def test_any_two_epochs_differ(a: int, b: int) -> None:
    tags = tags_of()
    assert a <= tags.alias_epochs and b <= tags.alias_epochs
    words = {(e, launch): tags[launch].at(e) for e in (a, b) for launch in ("k1", "k2")}
    assert len(set(words.values())) == len(words)
    assert 0 not in words.values()


def test_the_alias_period_is_tight() -> None:
    tags = tags_of()
    assert tags["k2"].at(tags.alias_epochs) == 0


def test_epoch_words() -> None:
    words = epoch_words(256)
    assert (words.epoch, words.marks, words.ug_counters, words.down_counters, words.words) == (
        0,
        4,
        320,
        576,
        832,
    )
    for grid in (64, 256, 512, 1024):
        words = epoch_words(grid)
        assert words.marks + grid <= words.ug_counters < words.down_counters < words.words
