"""A layer drawn in text: a picture a launch (stages from top to bottom, workgroups from left to right), then
what its stages hand to one another and the bytes it moves. 80 columns are enough; past 118 a line also says
where a stage runs and whom it waits for. Where the output cannot show superscripts, letters stand for them.
"""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from ..runtime.plan import KernelPlan, LayerPlan
from ..runtime.plan.layer import handoffs
from ..runtime.plan.placement import Stage
from ..runtime.plan.view import (
    Placed,
    moved,
    part_size,
    passed,
    place_text,
    placed,
    pushed,
    same_limit,
    terms,
)

LABEL = 15
"""Columns ahead of the picture: a stage's name and its tasks."""
NOTES = 41
"""Columns of the notes to its right, in a terminal that has them to spare."""
MARKS = 8
"""Columns from mark to mark of the ruler."""
HERE, PAST, ASCII = "123456789", "¹²³⁴⁵⁶⁷⁸⁹", "abcdefghi"
MORE, NONE, QUEUED = "#", "·", "?"


def print_layer(plan: LayerPlan, console: Console | None = None) -> None:
    """Print pictures, hand-offs and bytes of every launch, then those of the layer."""
    out = console or Console()
    plain = not _can_show(out, PAST + NONE)
    kind = plan.kind
    lines = _wrapped("", f"layer {kind.layer}: {kind.why}", out.width, "bold", 0)
    lines += _wrapped("launches", ", ".join(p.key.id for p in plan.plans), out.width)
    for one in plan.plans:
        lines += [Text(), *_launch(one, out.width, plain, limit=not same_limit(plan.plans))]
    lines += [Text(), *_layer(plan, out.width)]
    for line in lines:
        out.print(line, highlight=False, soft_wrap=True)


def _can_show(out: Console, text: str) -> bool:
    try:
        text.encode(out.encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _launch(plan: KernelPlan, width: int, plain: bool, *, limit: bool) -> list[Text]:
    lds = plan.lds
    memory = (
        f"{lds.total:,} of {lds.budget:,} bytes of LDS ({lds.decides} decides)" if lds.total else "no LDS"
    )
    head = f"{plan.grid} workgroups of {plan.block} lanes, {memory}"
    lines = [Text(plan.key.id, "bold"), *_wrapped("", head, width, indent=0), Text()]
    lines += _picture(plan, width, plain)
    lines += [Text(), *_handed(plan, width)] if plan.sites else []
    lines += [Text(), *_bytes(plan, width), Text()]
    lines += _limit(plan, width) if limit else []
    lines += _wrapped("bound", f"{plan.cost.bound.ns:,} ns by {plan.cost.bound.by}", width)
    for name, ns, why in terms(plan):
        lines += _wrapped("", f"{name} {ns:,} ns: {why}", width)
    return lines


def _picture(plan: KernelPlan, width: int, plain: bool) -> list[Text]:
    """Ruler, a line a stage (and one for its queue), and what the signs mean."""
    noted = width >= LABEL + NOTES + 64
    each = part_size(plan.grid, width - LABEL - (NOTES if noted else 0))
    rows, stages = placed(plan), {s.name: s for s in plan.stages}
    columns = len(rows[0].columns(each))
    marks = "".join(f"{at * each:<{MARKS}}" for at in range(0, columns, MARKS)).rstrip()
    ticks = "".join("|" if at % MARKS == 0 else "." for at in range(columns))
    tail = f"  {'workgroups':<20}waits for" if noted else ""
    lines = [Text(f"{'':{LABEL}}{marks}"), Text(f"{'stage':<9}{'tasks':>5} {ticks}{tail}", "dim")]
    for row in rows:
        lines.append(_bar(row, each, plain))
        if noted:
            lines[-1].append(_note(stages[row.stage], plan), "dim")
        if row.queued:
            lines.append(Text(f"{'':9}{f'+{row.queued}':>5} ").append(QUEUED * columns, "yellow"))
    return [*lines, *_legend(plan, rows, each, plain, width)]


def _bar(row: Placed, each: int, plain: bool) -> Text:
    bar = Text(f"{row.stage:<9}{row.tasks:>5} ")
    past = ASCII if plain else PAST
    for tasks, beyond in row.columns(each):
        sign = (past if beyond else HERE)[tasks - 1] if 0 < tasks <= 9 else MORE if tasks else NONE
        sign = "." if sign == NONE and plain else sign
        bar.append(sign, "dim" if not tasks else "cyan" if beyond else "green")
    return bar


def _note(stage: Stage, plan: KernelPlan) -> str:
    producers = dict.fromkeys(plan.site(name).producer for name in stage.waits)
    return f"  {place_text(stage):<20}{', '.join(producers)}".rstrip()


def _legend(plan: KernelPlan, rows: tuple[Placed, ...], each: int, plain: bool, width: int) -> list[Text]:
    """What the signs mean, as far as this picture has them."""
    of = f"the busiest of {each} workgroups" if each > 1 else "a workgroup"
    most = max((n for row in rows for n, _ in row.columns(each)), default=0)
    text = f"a digit counts the tasks of {of}"
    text += f"; {MORE} is more than 9" if most > 9 else ""
    if any(row.wraps for row in rows):
        small = "letters (a is 1)" if plain else "raised digits"
        text += f"; {small}: past the end of the grid, on at workgroup 0"
    lines = _wrapped("", text, width)
    for stage in plan.stages:
        if stage.queue is not None and any(r.stage == stage.name and r.queued for r in rows):
            text = f"{QUEUED} tasks of {stage.name} that a queue hands out: {stage.queue.rule}"
            lines += _wrapped("", text, width)
    idle = [s.name for s in plan.stages if not s.tasks]
    return lines + (_wrapped("", f"no task in this build: {', '.join(idle)}", width) if idle else [])


def _handed(plan: KernelPlan, width: int) -> list[Text]:
    """A line a hand-off: who, to whom, what, how large, where, and what the consumer polls."""
    sites = {(s.producer, s.stage, s.kind, s.region): s for s in plan.sites}
    lines = [Text(f"{'hand-off':<21}{'region':<19}{'bytes':>9}  {'in':<9}behind", "dim")]
    for h, site in zip(handoffs(plan), sites.values(), strict=True):
        what = f"flags {site.region}" if h.kind == "flags" else h.kind
        what += f" of {site.ranks} ranks" if site.ranks > 1 else ""
        pair = f"{h.producer:<8} -> {h.stage}"
        lines.append(Text(f"{pair:<20} {h.region:<18} {h.bytes:>9,}  {h.space:<8} {what}"))
    note = "pairs carry the launch's tag themselves; a flag stands for the data that it is behind"
    return lines + _wrapped("", note, width)


def _bytes(plan: KernelPlan, width: int) -> list[Text]:
    """A line a group of arguments, and the reasons for what is asked for more than once."""
    lines = [Text(f"{'bytes moved':<19}{'requested':>15}{'unique':>15}{'ratio':>8}", "dim")]
    for group in moved(plan):
        lines.append(_moved(group.group, group.requested, group.unique))
        for names, note in group.notes:
            lines += _wrapped("", f"{names}: {note}", width, "dim")
    if pushed(plan):
        lines.append(_moved("peer buffers", pushed(plan), pushed(plan)))
        lines += _wrapped("", "pushed to all ranks, its own included; it reads as many", width, "dim")
    return lines


def _moved(name: str, requested: int, unique: int) -> Text:
    if not unique:
        return Text(f"{name:<19}{requested:>15,}{'-':>15}{'-':>8}")
    ratio = requested / unique
    return Text(f"{name:<19}{requested:>15,}{unique:>15,}{ratio:>8,.{2 if ratio < 100 else 0}f}")


def _limit(plan: KernelPlan, width: int) -> list[Text]:
    limit = plan.row_limit
    return _wrapped("rows", f"{plan.key.rows} of at most {limit.rows}, by {limit.by}: {limit.why}", width)


def _layer(plan: LayerPlan, width: int) -> list[Text]:
    """What launches hand on through their arguments, buffers that they share, and sums."""
    lines = [Text(f"layer {plan.kind.layer}", "bold")]
    for pair in dict.fromkeys((p.writer, p.reader) for p in passed(plan)):
        found = [p for p in passed(plan) if (p.writer, p.reader) == pair]
        text = ", ".join(f"{p.name} {p.bytes:,}" for p in found)
        lines += _wrapped(f"{pair[0]} -> {pair[1]}", text, width)
    last = plan.plans[-1]
    peer = getattr(last, "peer", None)
    buffers = f"scratch {last.scratch.total:,} bytes" + (f", peer buffer {peer.total:,}" if peer else "")
    lines += _wrapped("buffers", buffers, width)
    lines += _limit(last, width) if same_limit(plan.plans) else []
    total, ns = (sum(getattr(p.cost.bound, name) for p in plan.plans) for name in ("hbm_bytes", "ns"))
    return lines + _wrapped("total", f"{total:,} bytes of HBM, at least {ns:,} ns", width)


def _wrapped(label: str, text: str, width: int, style: str = "", indent: int = LABEL) -> list[Text]:
    """`text` behind a label, broken at blanks to `width`."""
    lines, pad = list[str](), " " * indent
    for word in text.split(" "):
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append((pad if lines else f"{label:<{indent}}") + word)
    return [Text(line, style) for line in lines]
