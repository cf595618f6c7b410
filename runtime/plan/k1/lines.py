"""The line rule over K1's plain data: who publishes and who reads bytes of x8, x8s, qx8 and qx8s."""

from __future__ import annotations

from ..dims import Dims
from ..lines import CODE_BYTES, Read, Write, line_faults
from ..scratch import Scratch
from .stages import K_PARTS


def k1_line_faults(d: Dims, rows: int, scratch: Scratch, line: int) -> list[str]:
    """The rule over K1's plain data: x8 and x8s from norm to wqkv, qx8 and qx8s from qkv to wq_b."""
    return line_faults(k1_writes(d, rows, scratch), k1_reads(d, rows, scratch), line)


def k1_writes(d: Dims, rows: int, scratch: Scratch, *, halves_apart: bool = False) -> list[Write]:
    """What K1's tasks publish. A norm publishes both K halves of its row together and then sets both flags;
    `halves_apart` plants the scheme in which each half has a publication of its own."""
    writes = []
    for name, row, stage, parts in _published(d):
        parts = parts if halves_apart else 1
        for t in range(rows):
            base = scratch[name].offset + t * row
            writes += [
                Write((stage, t, p), base + p * row // parts, base + (p + 1) * row // parts)
                for p in range(parts)
            ]
    return writes


def k1_reads(
    d: Dims, rows: int, scratch: Scratch, *, halves_apart: bool = False, late_rows: int = 0
) -> list[Read]:
    """What K1's tasks load plainly, one `Read` a kind of reader: the tasks of a kind read and await alike.

    `late_rows` plants a reader that starts before the last so many rows are published."""
    reads = []
    for name, row, stage, parts in _published(d):
        for p in range(parts):
            part = p if halves_apart else 0
            after = frozenset((stage, t, part) for t in range(rows - late_rows))
            reader = f"{'wqkv half ' + str(p) if parts > 1 else 'wq_b'} ({name})"
            for t in range(rows - late_rows):
                base = scratch[name].offset + t * row
                reads.append(Read(reader, base + p * row // parts, base + (p + 1) * row // parts, after))
    return reads


def _published(d: Dims) -> tuple[tuple[str, int, str, int], ...]:
    """(region, bytes a row, writing stage, parts that readers take of a row) of K1's plain data."""
    return (
        ("x8", d.hidden, "norm", K_PARTS),
        ("x8s", d.hidden // d.mx_group * CODE_BYTES, "norm", K_PARTS),
        ("qx8", d.q_rank, "qkv", 1),
        ("qx8s", d.q_rank // d.mx_group * CODE_BYTES, "qkv", 1),
    )
