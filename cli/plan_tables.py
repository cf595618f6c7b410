"""A plan as tables for a terminal: the plan's own names, numbers and reasons; nothing is computed here."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..runtime.plan import K1Plan
from ..runtime.plan.abi import Argument
from ..runtime.plan.passes import Passes

MAX_WIDTH = 150


def print_plan(plan: K1Plan, console: Console | None = None) -> None:
    """Print the whole plan: head, stages, waits, passes, LDS, scratch, ABI and cost."""
    out = console or Console()
    if out.width > MAX_WIDTH or not out.is_terminal:  # into a file or a pipe: 80 columns would cut names
        out.width = MAX_WIDTH
    _head(plan, out)
    for table in (
        _stages(plan),
        _sites(plan),
        _lds(plan),
        _scratch(plan),
        _abi(plan),
        _mfma(plan),
        _traffic(plan),
    ):
        out.print(table)
        out.print()
    _tail(plan, out)


def _table(title: str, columns: str, note: str = "") -> Table:
    """A table with `columns` separated by `|`; numeric ones (named with a leading `>`) stand right."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.caption, table.caption_justify = note, "left"
    for column in columns.split("|"):
        right = column.startswith(">")
        table.add_column(column.lstrip(">"), justify="right" if right else "left", no_wrap=right)
    return table


def _row(table: Table, *cells: object) -> None:
    table.add_row(*(f"{c:,}" if type(c) is int else escape(str(c)) for c in cells))


def _head(plan: K1Plan, out: Console) -> None:
    out.print(f"[bold]{plan.key.id}[/]", highlight=False)
    limit = plan.row_limit
    lines = [
        f"grid       {plan.grid} workgroups x {plan.block} lanes ({plan.waves} waves): {plan.grid_why}",
        f"rows       {plan.key.rows} of at most {limit.rows} ({limit.by}: {limit.why})",
        _passes("passes", plan.passes),
        _passes("gate tiles", plan.mix_passes),
    ]
    lines += [f"{name:<10} {getattr(plan.strategy, name)}: {why}" for name, why in plan.strategy.why]
    for line in lines:
        out.print(line, highlight=False, markup=False)
    out.print()


def _passes(label: str, passes: Passes) -> str:
    tiles = ", ".join(f"{first}..{first + count - 1}" for first, count in passes.tiles)
    return f"{label:<10} {passes.count} of at most {passes.width} rows: {tiles} ({passes.why})"


def _stages(plan: K1Plan) -> Table:
    columns = "stage|>tasks|workgroups|>each|>lanes|task|waits at|hands on|placement"
    table = _table("Stages, in program order", columns)
    for s in plan.stages:
        last = s.first + min(s.tasks, s.span) - 1
        where, waits, publishes = f"{s.first}..{last}", " ".join(s.waits) or "-", " ".join(s.publishes) or "-"
        where = where if s.tasks else "-"
        _row(table, s.name, s.tasks, where, s.per_workgroup, s.threads, s.task, waits, publishes, s.why)
    return table


def _sites(plan: K1Plan) -> Table:
    columns = ">id|site|stage|for every task of|region|kind|>awaited a task|>lanes|>a load|loads a batch"
    limit = max(s.limit for s in plan.sites)
    table = _table("Waits", columns, note=f"a wait gives up after {limit:,} polls of a batch")
    for s in plan.sites:
        batches = " + ".join(map(str, s.batches))
        place = (s.id, s.name, s.stage, s.producer, s.region, s.kind)
        _row(table, *place, s.awaited, s.threads, s.load_pairs, batches)
    return table


def _lds(plan: K1Plan) -> Table:
    lds = plan.lds
    title = f"LDS: {lds.total:,} of {lds.budget:,} bytes, one struct at a time ({lds.decides} decides)"
    table = _table(title, "struct|member|>offset|>bytes|>rows|>words a row|element|content")
    for struct in lds.structs:
        for m in struct.members:
            _row(table, struct.name, m.name, m.offset, m.bytes, m.rows, m.row_words, m.element, m.doc)
        _row(table, struct.name, "(size)", "", struct.bytes, "", "", "", " ".join(struct.stages))
    return table


def _scratch(plan: K1Plan) -> Table:
    scratch = plan.scratch
    title = f"Scratch: {scratch.total:,} bytes, regions at multiples of {scratch.align}"
    table = _table(title, "region|>offset|>bytes|kind|element|index|written by|read by|launches")
    for r in scratch.regions:
        launches = " ".join(r.lifetime)
        _row(table, r.name, r.offset, r.bytes, r.kind, r.element, r.index, r.writer, r.reader, launches)
    return table


def _abi(plan: K1Plan) -> Table:
    title = f"Arguments: {len(plan.abi.arguments)}, {plan.abi.kernarg_bytes} bytes"
    table = _table(title, ">#|name|type|>offset|dtype|shape|owner|access|content")
    for a in plan.abi.arguments:
        _row(table, a.index, a.name, a.type, a.offset, a.dtype, _shape(a), a.owner, _access(a), a.doc)
    return table


def _shape(a: Argument) -> str:
    return "[" + ", ".join("?" if n < 0 else str(n) for n in a.shape) + "]" if a.shape else "scalar"


def _access(a: Argument) -> str:
    words = [word for word, is_so in (("read", a.read), ("written", a.written)) if is_so]
    return " ".join(words) or "-"


def _mfma(plan: K1Plan) -> Table:
    note = "in the source: of one wave, loops once; executed: all waves of the launch"
    columns = "stage|instruction|>in the source|>passes|>executed|>clocks of a SIMD"
    table = _table("Matrix instructions", columns, note)
    for m in plan.cost.mfma:
        _row(table, m.stage, m.instruction, m.static, m.passes, m.executed, m.clocks)
    return table


def _traffic(plan: K1Plan) -> Table:
    note = "requested: what lanes ask for, loads and stores; unique: each byte once"
    table = _table("Bytes moved", "argument|>requested|>unique read|>unique written|requested is", note)
    for t in plan.cost.traffic:
        if t.requested_read or t.requested_write:
            how = "promised" if t.promised else "by thread map"
            _row(table, t.name, t.requested_read + t.requested_write, t.unique_read, t.unique_write, how)
    return table


def _tail(plan: K1Plan, out: Console) -> None:
    bound = plan.cost.bound
    tags = ", ".join(f"{r.launch}: {r.scale}e + {r.offset}" for r in plan.tags.rules)
    lines = [f"weights    {r.stage}: {r.why}" for r in plan.cost.residency]
    lines += [
        f"tags       {tags}; epoch e in word {plan.epoch.epoch} of {plan.epoch.words}",
        f"bound      {bound.ns:,} ns by {bound.by} (HBM {bound.hbm_ns:,}, matrix pipe {bound.mfma_ns:,}, "
        f"hand-offs {bound.handoff_ns:,})",
        f"           {bound.why}",
    ]
    for line in lines:
        out.print(line, highlight=False, markup=False)
