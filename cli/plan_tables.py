"""A plan as tables for a terminal: the plan's own names, numbers and reasons; nothing is computed here."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..runtime.plan import FfnPlan, K2Plan, KernelPlan
from ..runtime.plan.abi import Argument
from ..runtime.plan.faults import BOUND, TICKS_PER_SECOND
from ..runtime.plan.passes import Passes

MAX_WIDTH = 150


def print_plan(plan: KernelPlan, console: Console | None = None) -> None:
    """Print the whole plan: head, stages, waits, passes, LDS, scratch, ABI and cost."""
    out = console or Console()
    if out.width > MAX_WIDTH or not out.is_terminal:  # into a file or a pipe: 80 columns would cut names
        out.width = MAX_WIDTH
    _head(plan, out)
    tables = [_stages(plan), _sites(plan), _lds(plan), _scratch(plan), *_ffn(plan), _abi(plan), _mfma(plan)]
    for table in (*tables, _traffic(plan)):
        if not table.rows:
            continue
        out.print(table)
        out.print()
    _tail(plan, out)


def new_table(title: str, columns: str, note: str = "") -> Table:
    """A table with `columns` separated by `|`; numeric ones (named with a leading `>`) stand right."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.caption, table.caption_justify = note, "left"
    for column in columns.split("|"):
        right = column.startswith(">")
        table.add_column(column.lstrip(">"), justify="right" if right else "left", no_wrap=right)
    return table


def put(table: Table, *cells: object) -> None:
    table.add_row(*(f"{c:,}" if type(c) is int else escape(str(c)) for c in cells))


def _head(plan: KernelPlan, out: Console) -> None:
    out.print(f"[bold]{plan.key.id}[/]", highlight=False)
    limit, mix = plan.row_limit, getattr(plan, "mix_passes", None)
    lines = [
        f"grid       {plan.grid} workgroups x {plan.block} lanes ({plan.waves} waves): {plan.grid_why}",
        f"rows       {plan.key.rows} of at most {limit.rows} ({limit.by}: {limit.why})",
        _passes("passes", plan.passes),
    ]
    lines += [] if mix is None else [_passes("gate tiles", mix)]
    lines += [f"{name:<10} {getattr(plan.strategy, name)}: {why}" for name, why in plan.strategy.why]
    for line in lines:
        out.print(line, highlight=False, markup=False)
    out.print()


def _passes(label: str, passes: Passes) -> str:
    tiles = ", ".join(f"{first}..{first + count - 1}" for first, count in passes.tiles)
    return f"{label:<10} {passes.count} of at most {passes.width} rows: {tiles} ({passes.why})"


def _stages(plan: KernelPlan) -> Table:
    columns = "stage|>tasks|workgroups|>each|>lanes|task|waits at|hands on|placement"
    table = new_table("Stages, in program order", columns)
    for s in plan.stages:
        last = s.workgroup_of(min(s.tasks, s.span) - 1)
        where, waits, publishes = (
            f"{s.first}..{last}" + (f" by {s.stride}" if s.stride > 1 else ""),
            " ".join(s.waits) or "-",
            " ".join(s.publishes) or "-",
        )
        where = where if s.tasks else "-"
        put(table, s.name, s.tasks, where, s.per_workgroup, s.threads, s.task, waits, publishes, s.why)
    return table


def _sites(plan: KernelPlan) -> Table:
    columns = ">id|site|stage|for every task of|region|kind|>awaited a task|>lanes|>a load|loads a batch"
    note = f"a wait gives up after the launch argument `bound`, {BOUND // TICKS_PER_SECOND} s in service"
    table = new_table("Waits", columns, note=note)
    for s in plan.sites:
        batches = " + ".join(map(str, s.batches))
        place = (s.id, s.name, s.stage, s.producer, s.region, s.kind)
        put(table, *place, s.awaited, s.threads, s.load_pairs, batches)
    return table


def _lds(plan: KernelPlan) -> Table:
    lds = plan.lds
    title = f"LDS: {lds.total:,} of {lds.budget:,} bytes, one struct at a time ({lds.decides} decides)"
    table = new_table(title, "struct|member|>offset|>bytes|>rows|>words a row|element|content")
    for struct in lds.structs:
        for m in struct.members:
            put(table, struct.name, m.name, m.offset, m.bytes, m.rows, m.row_words, m.element, m.doc)
        put(table, struct.name, "(size)", "", struct.bytes, "", "", "", " ".join(struct.stages))
    return table


def _scratch(plan: KernelPlan) -> Table:
    scratch = plan.scratch
    title = f"Scratch: {scratch.total:,} bytes, regions at multiples of {scratch.align}"
    table = new_table(title, "region|>offset|>bytes|kind|element|index|written by|read by|launches")
    for r in scratch.regions:
        launches = " ".join(r.lifetime)
        put(table, r.name, r.offset, r.bytes, r.kind, r.element, r.index, r.writer, r.reader, launches)
    return table


def _ffn(plan: KernelPlan) -> list[Table]:
    """Shapes of K2's halves, the peer buffer, and the ways in which gate/up may hold x."""
    if not isinstance(plan, (K2Plan, FfnPlan)):
        return []
    found = [_fields("Attention half", plan.attention)] if isinstance(plan, K2Plan) else []
    peer = new_table(
        f"Peer buffer: {plan.peer.total:,} bytes in two halves, taken by {plan.peer.parity}; "
        f"a rank pushes {plan.peer.pushed:,} bytes",
        "region|>offset in a half|>bytes|index|written by|read by",
    )
    for r in plan.peer.regions.regions:
        put(peer, r.name, r.offset, r.bytes, r.index, r.writer, r.reader)
    ways = new_table(
        "Routed gate/up, x in LDS", "way|>picks a tile|>K block|>LDS|fits|>worst reads|chosen|why"
    )
    for w in plan.stagings:
        yes = ("yes" if w.fits else "no", "yes" if w.chosen else "no")
        put(ways, w.name, w.pick_width, w.k_block, w.lds_bytes, yes[0], w.worst_reads, yes[1], w.why)
    return [*found, _fields("FFN half", plan.ffn), peer, ways]


def _fields(title: str, shape: object) -> Table:
    """The plain numbers of a shape, in the order of its class."""
    table = new_table(title, "name|>value|name|>value|name|>value")
    pairs = [(k, v) for k, v in vars(shape).items() if isinstance(v, (int, str, tuple))]
    for i in range(0, len(pairs), 3):
        put(table, *(cell for pair in pairs[i : i + 3] for cell in pair))
    return table


def _abi(plan: KernelPlan) -> Table:
    title = f"Arguments: {len(plan.abi.arguments)}, {plan.abi.kernarg_bytes} bytes"
    table = new_table(title, ">#|name|type|>offset|dtype|shape|owner|access|content")
    for a in plan.abi.arguments:
        put(table, a.index, a.name, a.type, a.offset, a.dtype, _shape(a), a.owner, _access(a), a.doc)
    return table


def _shape(a: Argument) -> str:
    return "[" + ", ".join("?" if n < 0 else str(n) for n in a.shape) + "]" if a.shape else "scalar"


def _access(a: Argument) -> str:
    words = [word for word, is_so in (("read", a.read), ("written", a.written)) if is_so]
    return " ".join(words) or "-"


def _mfma(plan: KernelPlan) -> Table:
    note = "in the source: of one wave, loops once; executed: all waves of the launch"
    columns = "stage|instruction|>in the source|>passes|>executed|>clocks of a SIMD"
    table = new_table("Matrix instructions", columns, note)
    for m in plan.cost.mfma:
        put(table, m.stage, m.instruction, m.static, m.passes, m.executed, m.clocks)
    return table


def _traffic(plan: KernelPlan) -> Table:
    note = "requested: what lanes ask for, loads and stores; unique: each byte once"
    table = new_table(
        "Bytes moved", "argument|>requested|>unique read|>unique written|requested is|on purpose", note
    )
    for t in plan.cost.traffic:
        if t.requested_read or t.requested_write:
            how = "promised" if t.promised else "by thread map"
            put(
                table,
                t.name,
                t.requested_read + t.requested_write,
                t.unique_read,
                t.unique_write,
                how,
                t.note,
            )
    return table


def _tail(plan: KernelPlan, out: Console) -> None:
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
