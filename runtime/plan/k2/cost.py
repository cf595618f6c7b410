"""Matrix instructions and bytes of K2's attention half, by its thread maps (attention.md 5.4)."""

from __future__ import annotations

from ..cost import PASS_CLOCKS, MfmaCount
from ..dims import Dims
from ..keys import BuildKey
from ..lds import WAVES
from ..placement import Stage
from ..scratch import PAIR_BYTES
from ..strategy import Strategy
from ..traffic import WORD, Asked
from .stages import AttentionShape

QK_STEP = 32


def split_mfma(d: Dims, a: AttentionShape, stage: Stage, how: Strategy, share: int) -> list[MfmaCount]:
    """QK and PV of a wave: every head tile of its key tile, then its dims over all key tiles."""
    qk, pv = how.bf16_mfma, how.pv_mfma
    scores = a.split.wave_heads * d.head_dim // QK_STEP * qk.per_step
    values = a.split.key_tiles * d.head_tiles * a.split.pv_dims // 16
    waves, turns = stage.tasks * WAVES, stage.per_workgroup * share * PASS_CLOCKS
    return [
        MfmaCount("split", one.name, n, 1, waves * n, n * turns * one.passes)
        for one, n in ((qk, scores), (pv, values))
    ]


def attention_reads(d: Dims, key: BuildKey, a: AttentionShape, again: int) -> dict[str, Asked]:
    """Everything that the attention half reads, at full key lists; GEMV weights are read `again` times."""
    return _records(d, key, a) | _tables(d, key, a) | _weights(d, again)


def _records(d: Dims, key: BuildKey, a: AttentionShape) -> dict[str, Asked]:
    """A lane loads its share of a key's record once; waves with the same keys load them again."""
    s, record = key.rows, d.record_bytes
    window, chosen = s * key.window * record, s * d.topk * record
    again = WAVES // a.split.key_tiles
    heads = s * d.q_rows * 2
    note = f"{again} waves of a task load the same keys" if again > 1 else ""
    return {
        "q": Asked(heads * a.split.chunks, heads, False, "every chunk of a row reads its queries"),
        "swa": Asked(window * again, window, False, note),
        "comp": Asked(chosen * again, chosen, False, note),
        "zrec": Asked(record, record),
        "sink": Asked(a.combine_tasks * WAVES * WORD, d.heads * WORD),
        "cos_sin": Asked(a.combine_tasks * WAVES * d.rope * WORD, s * d.rope * WORD),
        "pos": Asked(a.combine_tasks * WAVES * WORD, s * WORD),
    }


def _tables(d: Dims, key: BuildKey, a: AttentionShape) -> dict[str, Asked]:
    s, entries = key.rows, key.rows * d.topk
    lengths = (a.split_tasks + a.combine_tasks) * WAVES * WORD
    return {
        "kt": Asked(s * d.keys * WORD * (WAVES // a.split.key_tiles), s * d.keys * WORD),
        "klen": Asked(lengths, 2 * s * WORD),
        "slot": Asked(s * WAVES * WORD, s * WORD),
        "swa_idx": Asked(s * key.window * WORD, s * key.window * WORD),
        "swa_lens": Asked(s * WAVES * WORD, s * WORD),
        "t2r": Asked(s * WAVES * WORD, s * WORD),
        "topk": Asked(entries * WORD, entries * WORD),
        "comp_bt": Asked(entries * WORD, entries * WORD),
    }


def _weights(d: Dims, again: int) -> dict[str, Asked]:
    """Each byte once where a task's weights stay in registers over the passes; codes a scalar load a step."""
    found, block = dict[str, Asked](), d.weight_block**2
    for name, rows, k in (("woa", d.o_rows, d.group_k), ("wob", d.hidden, d.o_rows)):
        found[name] = Asked(rows * k * again, rows * k, True)
        found[f"{name}_s"] = Asked(rows * k // 512 * again, rows * k // block)
    return found


def attention_writes(d: Dims, key: BuildKey) -> dict[str, int]:
    """Outputs of the attention half: in index builds the key table."""
    return {"kt": key.rows * d.keys * WORD, "klen": 2 * key.rows * WORD}


def attention_scratch(d: Dims, rows: int, a: AttentionShape) -> tuple[int, int]:
    """(written, read) bytes of scratch at full key lists."""
    units, codes = a.split_tasks, d.mx_group
    partial = units * (d.q_rows * 2 + d.heads * 8)
    xo, x8b = rows * (d.q_rows + d.q_rows // codes * WORD), rows * (d.o_rows + d.o_rows // codes * WORD)
    flags = (units + a.combine_tasks + a.wo_a_tasks) * PAIR_BYTES
    read = partial + xo * a.wo_a_per_group + x8b * a.wo_b_tasks
    polled = (
        a.combine_tasks * a.split.chunks
        + a.wo_a_tasks * rows * a.combine_per_group
        + a.wo_b_tasks * a.wo_a_tasks
    )
    return partial + xo + x8b + flags, read + polled * PAIR_BYTES
