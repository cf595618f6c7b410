"""The memory statement of a rank, in words and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from ..runtime.plan import Code, Reason, Unsupported, width_report
from ..runtime.plan.memory import GIB, Memory, memory_of
from ..specs.findings import UserError
from .plan_tables import new_table, put

if TYPE_CHECKING:
    from ..specs import Specs


def statement(
    specs: Specs, arch: str, tp: int, rows: str, *, whole_drafts: bool, percent: int, loaded: int | None
) -> Memory:
    """The statement; Unsupported for an arch, a TP size or rows that no build has."""
    model, spec = next(iter(specs.model.values())), specs.arch.get(arch)
    if spec is None:
        text = f"there is no arch spec {arch!r}"
        raise Unsupported(
            arch, (Reason(Code.ARCH_UNKNOWN, text, f"take one of {', '.join(sorted(specs.arch))}"),)
        )
    report, widths = width_report(model, spec), _widths(rows)
    offered = ", ".join(f"TP{t}" for t in spec.tp)
    reasons = (
        [] if tp in spec.tp else [Reason(Code.TP_NOT_OFFERED, f"TP{tp} on {arch}", f"take one of {offered}")]
    )
    reasons += [
        Reason(Code.ROWS_OUT_OF_RANGE, f"{s} rows on {arch}", f"take 1 to {report.limit.rows} rows")
        for s in widths
        if not 1 <= s <= report.limit.rows
    ]
    if reasons:
        raise Unsupported(f"memory of {arch} TP{tp}", tuple(reasons))
    return memory_of(
        model, spec, tp, report, widths, whole_drafts=whole_drafts, used_percent=percent, loaded=loaded
    )


def _widths(rows: str) -> list[int]:
    try:
        return sorted({int(text) for text in rows.split(",")})
    except ValueError:
        raise UserError(
            f"{rows!r} is no list of rows", fix="write numbers with commas, for example 6,12"
        ) from None


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
