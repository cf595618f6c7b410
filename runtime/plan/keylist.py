"""The key-list launch: the key table of an index layer, between its indexer and K2 (attention.md 2.6 and
6.4).

A workgroup a row, no hand-offs, no scratch and no LDS. It writes what K1 writes in other layers.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...specs.schema import ArchSpec, ModelSpec
from .abi import RUNTIME, Row, abi_of
from .base import KernelPlan, checked, plan_faults
from .cost import cost_of
from .dims import Dims, dims_of
from .faults import fault_words
from .keys import BuildKey
from .lds import WAVES, LdsMap
from .passes import passes_of
from .placement import BLOCK, stage_of
from .scratch import ALIGN, Scratch
from .strategy import strategy_of
from .tags import epoch_words, tags_of
from .traffic import WORD, Asked, traffic_table
from .width import WidthReport


@dataclass(frozen=True)
class KeyListPlan(KernelPlan):
    """All numbers of one key-list launch; it has one stage, `kt`."""


def make_keylist(model: ModelSpec, arch: ArchSpec, key: BuildKey, report: WidthReport) -> KeyListPlan:
    """The plan of a key that `key_reasons` has nothing against."""
    d, rows = dims_of(model, key.tp), key.rows
    abi, nothing = abi_of(keylist_rows(d, key)), Scratch((), 0, ALIGN)
    why = "a workgroup a row"
    kt = stage_of(rows, "kt", rows, 0, rows, BLOCK, "key table of one row", (), (), why)
    traffic = traffic_table(abi, _reads(d, key), _writes(d, rows), (0, 0, 0))
    plan = KeyListPlan(
        key=key,
        grid=rows,
        block=BLOCK,
        waves=WAVES,
        grid_why=f"{why}: workgroups do not wait for one another",
        dims=d,
        strategy=strategy_of(arch),
        row_limit=report.limit,
        passes=passes_of(rows, rows, "no GEMV: every row at once"),
        stages=(kt,),
        sites=(),
        lds=LdsMap((), 0, arch.workgroup.lds_bytes, "nothing"),
        scratch=nothing,
        tags=tags_of(),
        epoch=epoch_words(rows),
        fault=fault_words(),
        abi=abi,
        cost=cost_of(arch, traffic, (), (), nothing, 0, 0),
    )
    checked(plan_faults(plan, ("kt",)), key)
    return plan


def keylist_rows(d: Dims, key: BuildKey) -> list[Row]:
    """The launch's arguments: K1's of the same names, in K1's order."""
    s = key.rows
    return [
        ("pos", "ptr", "i64", (s,), "vllm", "r", "position of each row; low 32 bits are read"),
        ("slot", "ptr", "i64", (s,), "vllm", "r", "window-cache slot of each row, -1 for a padded row"),
        ("swa_idx", "ptr", "i32", (s, key.window), "vllm", "r", "window slots of each row, then -1"),
        ("swa_lens", "ptr", "i32", (s,), "vllm", "r", "window slots in use"),
        ("comp_block", "int32", "i32", (), "vllm", "r", "compressed rows a block"),
        ("comp_bt", "ptr", "i32", (RUNTIME, RUNTIME), "vllm", "r", "block table [requests, blocks]"),
        ("bt_stride", "int32", "i32", (), "vllm", "r", "elements from request to request of the block table"),
        ("topk", "ptr", "i32", (s, d.topk), "vllm", "r", "selected compressed rows, local, -1 for none"),
        ("t2r", "ptr", "i32", (s,), "vllm", "r", "request of each row"),
        ("kt", "ptr", "i32", (s * d.keys,), "runner", "w", f"key table, {d.keys} entries a row"),
        ("klen", "ptr", "i32", (2 * s,), "runner", "w", "keys of each row, then compressed keys of each row"),
    ]


def _reads(d: Dims, key: BuildKey) -> dict[str, Asked]:
    """A lane an entry, row scalars once a wave; at most what full windows and selections need."""
    s, entries = key.rows, key.rows * d.topk * WORD
    window, waves = s * key.window * WORD, s * WAVES * WORD
    one = Asked(waves, s * WORD)
    lists = {
        "swa_idx": Asked(window, window),
        "topk": Asked(entries, entries),
        "comp_bt": Asked(entries, entries),
    }
    return lists | dict.fromkeys(("pos", "slot", "swa_lens", "t2r"), one)


def _writes(d: Dims, rows: int) -> dict[str, int]:
    return {"kt": rows * d.keys * WORD, "klen": 2 * rows * WORD}
