"""Capture sizes of a server against the widths of a bundle: the gaps, and the command that fills them."""

from __future__ import annotations

from pathlib import Path

import pytest

from flymono.runtime.bundle import Bundle, gaps, widths
from flymono.runtime.bundle.entry import Build, Listed
from flymono.runtime.bundle.make import Order
from flymono.runtime.bundle.manifest import Manifest
from flymono.specs import Specs

NONE = Listed("none", 0, "")


def of(specs: Specs, order: Order, without: str = "") -> Bundle:
    """A bundle by its manifest alone."""
    ids = [key.id for key in order.keys(specs) if key.id != without]
    builds = {id: Build(id, "", NONE, NONE, {}, (), "", "") for id in ids}
    path = Path("nowhere")
    return Bundle(path, path, Manifest(order.arch, order.tp, order.command, {}, {}, builds))


@pytest.mark.parametrize(("arch", "tp", "limit"), [("gfx942", 4, 42), ("gfx950", 2, 48), ("gfx950", 4, 48)])
def test_what_vllm_captures_is_there(specs: Specs, arch: str, tp: int, limit: int) -> None:
    bundle = of(specs, Order(arch, tp))
    every = [1, 2, 4, *range(8, 513, 8), *range(6, 513, 6)]
    assert gaps(bundle, specs, every, [5 * n for n in range(1, 9)]) == ()
    assert widths(bundle, specs) == tuple(sorted({n for n in every if n <= limit}))
    assert widths(bundle, specs, draft=True) == (5, 10, 15, 20, 25, 30, 35, 40)


def test_a_gap_names_rows_builds_and_command(specs: Specs) -> None:
    bundle = of(specs, Order("gfx950", 2, widths=(3,)))
    first, second, third = gaps(bundle, specs, [1, 3, 9, 7, 500], [5, 45])
    assert [(g.rows, g.draft) for g in (first, second, third)] == [(7, False), (9, False), (45, True)]
    assert "dsv41_k2-gfx950-tp2-s7-r2-index" in first.missing
    assert third.missing == tuple(
        f"dsv41_{name}"
        for name in (
            "k1-gfx950-tp2-s45-r0-nofold-w192", "k1-gfx950-tp2-s45-r0-w192", "k2-gfx950-tp2-s45-r0-draft",
            "ffn-gfx950-tp2-s45-draft",
        )
    )  # fmt: skip
    assert first.command == "flymono bundle --arch gfx950 --tp 2 --widths 3,7,9 --draft-widths 45 -o PATH"
    assert str(first) == f"steps of 7 rows are not in the bundle (12 builds); {first.command} makes them"
    assert str(third).startswith("draft steps of 45 rows")


def test_the_command_fills_the_gaps(specs: Specs) -> None:
    wider = of(specs, Order("gfx950", 2, widths=(3, 7, 9), draft_widths=(45,)))
    assert gaps(wider, specs, [1, 3, 9, 7], [5, 45]) == ()


def test_one_missing_build_makes_a_width_useless(specs: Specs) -> None:
    bundle = of(specs, Order("gfx942", 4), without="dsv41_keylist-gfx942-tp4-s6-r1")
    assert 6 not in widths(bundle, specs)
    (gap,) = gaps(bundle, specs, [6, 12])
    assert (gap.rows, gap.missing) == (6, ("dsv41_keylist-gfx942-tp4-s6-r1",))
    assert gap.command == "flymono bundle --arch gfx942 --tp 4 -o PATH"
