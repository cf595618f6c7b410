"""The 128-byte line rule: K1 keeps it, and each way of breaking it is found."""

from __future__ import annotations

import pytest

from flymono.runtime.plan.dims import Dims, dims_of
from flymono.runtime.plan.k1.lines import k1_line_faults, k1_reads, k1_writes
from flymono.runtime.plan.k1.regions import k1_regions
from flymono.runtime.plan.lines import Read, Write, line_faults
from flymono.runtime.plan.scratch import Scratch, lay_out
from flymono.specs import Specs

LINE = 128


def front(specs: Specs, rows: int) -> tuple[Dims, Scratch]:
    d = dims_of(specs.model["deepseek_v41_flash"], 4)
    return d, lay_out(k1_regions(d, rows))


@pytest.mark.parametrize("rows", [1, 2, 6, 7, 42, 48])
def test_k1_keeps_the_rule(specs: Specs, rows: int) -> None:
    d, scratch = front(specs, rows)
    assert k1_line_faults(d, rows, scratch, LINE) == []


def test_the_rule_covers_every_published_byte(specs: Specs) -> None:
    """Writers and readers of the rule each cover the data regions whole: none is forgotten."""
    d, scratch = front(specs, 6)
    want = {b for r in scratch.regions if r.kind == "data" for b in range(r.offset, r.end)}
    assert {b for w in k1_writes(d, 6, scratch) for b in range(w.lo, w.hi)} == want
    assert {b for r in k1_reads(d, 6, scratch) for b in range(r.lo, r.hi)} == want


def test_halves_published_apart_break_it(specs: Specs) -> None:
    """Codes of a K half are 320 bytes, 2.5 lines: a reader of half 0 pulls half 1's first codes."""
    d, scratch = front(specs, 6)
    faults = line_faults(
        k1_writes(d, 6, scratch, halves_apart=True), k1_reads(d, 6, scratch, halves_apart=True), LINE
    )
    assert faults and all("(x8s)" in f for f in faults)
    assert len(faults) == 12  # the shared line of each row, seen from either half


def test_a_reader_that_does_not_wait_for_all_rows_breaks_it(specs: Specs) -> None:
    """q codes of a row are 160 bytes: a reader of rows 0 .. 4 pulls the line in which row 5 begins."""
    d, scratch = front(specs, 6)
    faults = line_faults(k1_writes(d, 6, scratch), k1_reads(d, 6, scratch, late_rows=1), LINE)
    assert faults == [
        f"wq_b (qx8s) reads the line at byte {scratch['qx8s'].offset + 768} before qkv 5 part 0"
    ]


def test_regions_without_line_padding_break_it(specs: Specs) -> None:
    """Packed right behind x8s, qx8 would begin in a line that wqkv reads before qkv writes it."""
    d, scratch = front(specs, 1)
    at = {"x8": 0, "x8s": 5120, "qx8": 5120 + 640 - 64, "qx8s": 8192}
    packed = Scratch(
        tuple(
            r if r.name not in at else type(r)(**{**vars(r), "offset": at[r.name]}) for r in scratch.regions
        ),
        scratch.total,
        scratch.align,
    )
    faults = k1_line_faults(d, 1, packed, LINE)
    assert faults and "wqkv" in faults[0] and "before qkv 0" in faults[0]


def test_longer_lines_break_what_short_ones_allow() -> None:
    writes = [Write(("a", 0, 0), 0, 128), Write(("b", 0, 0), 128, 256)]
    read = Read("r", 0, 128, frozenset({("a", 0, 0)}))
    assert line_faults(writes, [read], 128) == []
    assert line_faults(writes, [read], 256) == ["r reads the line at byte 0 before b 0 part 0"]
