"""Build ids: one spelling, strictly parsed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flymono.runtime.plan import BadBuildId, BuildKey

KEYS = st.builds(
    BuildKey,
    kind=st.sampled_from(["k1", "k2", "ffn", "keylist"]),
    arch=st.sampled_from(["gfx942", "gfx950", "gfx1250"]),
    tp=st.integers(0, 64),
    rows=st.integers(0, 999),
    ratio=st.integers(0, 9),
    fold=st.booleans(),
    index=st.booleans(),
    window=st.integers(0, 999),
    timeline=st.booleans(),
    model=st.sampled_from(["dsv41", "k3"]),
    draft=st.booleans(),
)


@given(KEYS)
def test_round_trip(key: BuildKey) -> None:
    assert BuildKey.parse(key.id) == key
    assert key.symbol.isidentifier()


@given(KEYS, KEYS)
def test_ids_are_distinct(a: BuildKey, b: BuildKey) -> None:
    assert (a.id == b.id) == (a == b)


def test_spelling() -> None:
    assert BuildKey("k1", "gfx942", 4, 6).id == "dsv41_k1-gfx942-tp4-s6-r2"
    key = BuildKey("k1", "gfx950", 2, 48, ratio=0, fold=False, window=192, timeline=True)
    assert key.id == "dsv41_k1-gfx950-tp2-s48-r0-nofold-w192-timeline"
    assert BuildKey("ffn", "gfx950", 2, 6).id == "dsv41_ffn-gfx950-tp2-s6"
    assert BuildKey("k2", "gfx942", 4, 6, ratio=0, draft=True).id == "dsv41_k2-gfx942-tp4-s6-r0-draft"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dsv41_k1",
        "dsv41_k1-gfx942-tp4-s6",
        "dsv41_ffn-gfx942-tp4-s6-r2",
        "dsv41_k2-gfx942-tp4-s6-r0-timeline-draft",
        "dsv41_k1-gfx942-tp04-s6-r2",
        "dsv41_k1-gfx942-tp4-s6-r2-w128",
        "dsv41_k1-gfx942-tp4-s6-r2-index-nofold",
        "dsv41_k1-gfx942-tp4-s6-r2 ",
        "dsv41_k1-gfx942-tp4-s6-r2\n",
        "dsv41_k1-gfx942-tp4-s-6-r2",
        "dsv41_k1-gfx942-tp4-s6-r2-index-index",
        "DSV41_k1-gfx942-tp4-s6-r2",
        "dsv41_k1-gfx942-tp4-s\u0666-r2",
        "../dsv41_k1-gfx942-tp4-s6-r2",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadBuildId):
        BuildKey.parse(text)


def test_a_misspelling_names_the_spelling() -> None:
    with pytest.raises(BadBuildId) as bad:
        BuildKey.parse("dsv41_k1-gfx942-tp4-s6-r2-w128")
    assert "dsv41_k1-gfx942-tp4-s6-r2" in bad.value.fix
