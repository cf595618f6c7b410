"""The memory statement of a rank, in words and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from ..runtime.plan import Code, Reason, Unsupported, width_report
from ..runtime.plan.memory import GIB, Memory, memory_of
from ..specs.findings import UserError, check_all
from .plan_tables import new_table, put

if TYPE_CHECKING:
    from ..specs import Specs

MOST_GIB = 1 << 20
"""A bound on what a rank may have loaded, far above any GPU: what is past it is a slip of the pen."""


def statement(
    specs: Specs, arch: str, tp: int, rows: str, *, whole_drafts: bool, percent: int, loaded_gib: float | None
) -> Memory:
    """The statement; raises everything that is wrong: arch, TP size, rows that no build has, no numbers."""
    widths, loaded = list[int](), list[int]()
    check_all(
        lambda: widths.extend(_widths(rows)),
        lambda: loaded.extend(_loaded(loaded_gib)),
        lambda: _offered(specs, arch, tp, rows),
    )
    model, spec = next(iter(specs.model.values())), specs.arch[arch]
    return memory_of(
        model, spec, tp, width_report(model, spec), sorted(set(widths)), whole_drafts=whole_drafts,
        used_percent=percent, loaded=loaded[0] if loaded else None,
    )  # fmt: skip


def _offered(specs: Specs, arch: str, tp: int, rows: str) -> None:
    """Unsupported with every reason against the arch, the TP size and those rows that are numbers."""
    model, spec = next(iter(specs.model.values())), specs.arch.get(arch)
    if spec is None:
        text, fix = f"there is no arch spec {arch!r}", f"take one of {', '.join(sorted(specs.arch))}"
        raise Unsupported(arch, (Reason(Code.ARCH_UNKNOWN, text, fix),))
    report, reasons = width_report(model, spec), list[Reason]()
    if tp not in spec.tp:
        fix = f"take one of {', '.join(f'TP{t}' for t in spec.tp)}"
        reasons.append(Reason(Code.TP_NOT_OFFERED, f"TP{tp} on {arch}", fix))
    reasons += [
        Reason(Code.ROWS_OUT_OF_RANGE, f"{s} rows on {arch}", f"take 1 to {report.limit.rows} rows")
        for s in sorted({int(part) for part in rows.split(",") if _is_number(part)})
        if not 1 <= s <= report.limit.rows
    ]
    if reasons:
        raise Unsupported(f"memory of {arch} TP{tp}", tuple(reasons))


def _is_number(text: str) -> bool:
    digits = text.strip().removeprefix("-")
    return digits.isascii() and digits.isdigit()


def _widths(rows: str) -> list[int]:
    if not all(map(_is_number, rows.split(","))):
        raise UserError(f"{rows!r} is no list of rows", fix="write numbers with commas, for example 6,12")
    return [int(text) for text in rows.split(",")]


def _loaded(gib: float | None) -> list[int]:
    """Bytes of vLLM's own weights in whole MiB, if they are given."""
    if gib is not None and not 0 <= gib < MOST_GIB:
        raise UserError(f"--loaded-gib {gib} is no size", fix=f"give 0 to {MOST_GIB:,} GiB")
    return [] if gib is None else [int(gib * 1024) << 20]


def print_memory(memory: Memory, console: Console | None = None) -> None:
    """Print the statement."""
    out = console or Console()
    drafts = (
        "whole, with a runner of their own"
        if memory.whole_drafts
        else "as the FFN launch, on the target's runner"
    )
    out.print(f"{memory.arch} TP{memory.tp}, one rank; draft layers {drafts}", highlight=False)
    table = new_table("Weight copies", "what|>layers|>bytes a layer|>bytes|>GiB")
    for c in memory.copies:
        put(table, c.what, c.layers, c.each, c.bytes, gib(c.bytes))
    put(table, "all copies", "", "", memory.copied, gib(memory.copied))
    out.print(table)
    table = new_table("Buffers", "what|>bytes|>GiB")
    for rows, size in memory.scratch:
        put(table, f"scratch of {rows} rows", size, gib(size))
    for rows, size in memory.draft_scratch:
        put(table, f"scratch of {rows} rows, draft layers", size, gib(size))
    put(table, "peer buffers", memory.peer, gib(memory.peer))
    put(table, "runner buffers", memory.runner, gib(memory.runner))
    out.print(table)
    _left(memory, out)


def _left(memory: Memory, out: Console) -> None:
    if memory.loaded is None or memory.total is None:
        out.print(
            f"vLLM's own weights at TP{memory.tp}: unknown; with --loaded-gib, what is left shows",
            highlight=False,
        )
        return
    table = new_table(
        "Left for the KV cache and vLLM's working memory",
        ">GPU GiB|>may be used|>weights, copies, buffers|>left",
    )
    for left in memory.left:
        put(table, str(left.capacity_gib), gib(left.admitted), gib(memory.total), gib(left.bytes))
    table.caption = f"vLLM's own weights: {gib(memory.loaded)} GiB ({memory.loaded_source})"
    out.print(table)


def gib(size: int) -> str:
    """Bytes as GiB with two decimals."""
    return f"{size / GIB:,.2f}"
