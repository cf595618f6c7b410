"""Bytes that one K1 launch asks for, argument by argument, by the thread maps of its stages in `mono/`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..abi import Abi
from ..arith import cdiv
from ..dims import Dims
from ..keys import BuildKey
from ..lds import WAVE, WAVES
from ..passes import Passes
from ..placement import Stage
from ..points import POINTS
from ..scratch import PAIR_BYTES, Scratch
from ..seam import NORM_LANES, norm_chunks, slices_of
from ..traffic import LOAD, SLICE_LANES, WORD, Traffic
from .stages import K_PARTS


@dataclass(frozen=True)
class Maps:
    """What the thread maps depend on."""

    d: Dims
    key: BuildKey
    grid: int
    stages: Mapping[str, Stage]
    gemv: Passes
    kept: Mapping[str, bool]  # GEMV stage -> its weights stay in registers over the passes


Read = tuple[int, int, bool]
"""(requested, unique, promised)."""


def traffic_of(m: Maps, abi: Abi, scratch: Scratch) -> tuple[Traffic, ...]:
    """One entry a pointer argument, in launch order; zeros for what the build does not touch."""
    reads = _seam(m) | _weights(m) | _rows(m) | (_key_table(m) if m.stages["kt"].tasks else {})
    writes = _writes(m)
    written, read = _scratch_bytes(m)
    found = []
    for a in abi.arguments:
        if a.type != "ptr":
            continue
        if a.name == "scratch":
            found.append(Traffic("scratch", read, scratch.total, written, scratch.total, False))
            continue
        asked, once, sure = reads[a.name] if a.read else (0, 0, a.written)
        size = writes.get(a.name, 0) if a.written else 0
        found.append(Traffic(a.name, asked, once, size, size, sure))
    return tuple(found)


def _seam(m: Maps) -> dict[str, Read]:
    """Slices: 16 lanes a row. Norm: 8 columns a lane and chunk. Gate: one wave a row."""
    s, h, c = m.key.rows, m.d.streams, m.d.hidden
    lanes = s * slices_of(m.d) * SLICE_LANES
    return {
        "res_in": (s * h * c * 2, s * h * c * 2, True),
        "pend": (s * c * 2, s * c * 2, True),
        "post_in": (lanes * h * WORD, s * h * WORD, False),
        "comb_in": (lanes * h * h * WORD, s * h * h * WORD, False),
        "pre_in": (lanes * h * WORD, s * h * WORD, False),
        "hc_fn": (m.d.mix * m.d.k_mix * WORD, m.d.mix * m.d.k_mix * WORD, True),
        "hc_scale": (s * WAVE * WORD, 3 * WORD, False),
        "hc_base": (s * WAVE * WORD, m.d.mix * WORD, False),
        "attn_w": (s * NORM_LANES * norm_chunks(m.d) * LOAD, c * 2, False),
    }


def _weights(m: Maps) -> dict[str, Read]:
    """GEMV weights; the codes of a step are one scalar load of a wave, idle waves and workgroups included."""
    d, found = m.d, dict[str, Read]()
    for name, stage, rows, k in (("wqkv", "wqkv", d.qkv_rows, d.hidden), ("wqb", "wq_b", d.q_rows, d.q_rank)):
        shape, held = m.stages[stage].gemv, m.stages[stage].per_workgroup
        assert shape is not None
        again = 1 if m.kept[stage] else m.gemv.count
        steps = m.grid * held * shape.rounds * WAVES
        found[name] = (rows * k * again, rows * k, True)
        found[f"{name}_s"] = (steps * WORD * again, rows * k // d.weight_block**2, False)
    return found


def _rows(m: Maps) -> dict[str, Read]:
    """Norm weights, positions, angles: four waves a row in qkv, all lanes of a rotating wq_b workgroup."""
    s, d = m.key.rows, m.d
    rotating = m.grid * d.rope // d.head_dim * WAVES * WAVE * m.gemv.count
    table = WAVES * WORD if m.stages["kt"].tasks else 0
    return {
        "qn_w": (s * NORM_LANES * LOAD * cdiv(d.q_rank, NORM_LANES * 8), d.q_rank * 2, False),
        "kvn_w": (s * NORM_LANES * WORD * cdiv(d.kv_dim, NORM_LANES * 2), d.kv_dim * 2, False),
        "cos_sin": (s * d.rope * WORD + rotating * 2 * WORD, s * d.rope * WORD, False),
        "pos": (s * (WORD + (table if m.key.ratio else 0)) + rotating * WORD, s * WORD, False),
        "slot": (s * (NORM_LANES // WAVE * WORD + table), s * WORD, False),
        "epoch": (m.grid * WAVES * 2 * WORD, 2 * WORD, False),
    }


def _key_table(m: Maps) -> dict[str, Read]:
    """Key table: a lane an entry; at most as much as rows with full windows and selections need."""
    s, entries = m.key.rows, m.key.rows * m.d.topk
    waves = s * WAVES * WORD
    return {
        "swa_idx": (s * m.key.window * WORD, s * m.key.window * WORD, False),
        "swa_lens": (waves, s * WORD, False),
        "comp_bt": (entries * WORD, entries * WORD, False),
        "topk": (entries * WORD, entries * WORD, False),
        "t2r": (waves, s * WORD, False),
    }


def _writes(m: Maps) -> dict[str, int]:
    """Bytes written; every output byte is stored once."""
    s, h, d = m.key.rows, m.d.streams, m.d
    return {
        "res_out": s * h * d.hidden * 2,
        "post_out": s * h * WORD,
        "comb_out": s * h * h * WORD,
        "pre_out": s * h * WORD,
        "swa": s * d.record_bytes,
        "q": s * d.q_rows * 2,
        "kt": s * d.keys * WORD,
        "klen": 2 * s * WORD,
        "normed_out": s * d.hidden * 2,
        "qr_out": s * d.q_rank * 2,
        "tl": m.grid * len(POINTS["k1"]) * 8,
    }


def _scratch_bytes(m: Maps) -> tuple[int, int]:
    """(written, read): regions once, rows of a pass by every workgroup that multiplies them."""
    s, d = m.key.rows, m.d
    code_row = d.hidden // d.mx_group * WORD
    q_code_row = d.q_rank // d.mx_group * WORD
    lin, pmix = s * d.hidden // 2 * PAIR_BYTES, s * slices_of(d) * (d.mix + 1) * PAIR_BYTES
    qkvp = K_PARTS * s * d.qkv_rows * PAIR_BYTES
    flags = s * (K_PARTS + 1) * PAIR_BYTES
    written = lin + pmix + qkvp + flags + s * (d.hidden + code_row + d.q_rank + q_code_row)
    parts = m.stages["wqkv"].tasks
    polled = s * (NORM_LANES * norm_chunks(d) * 2 * LOAD + qkv_loads(d) * NORM_LANES * LOAD) + pmix
    polled += (parts + m.grid) * WAVE * WORD  # flags: one lane a flag, the rest of the wave repeats the last
    rows = parts * _row_bytes((d.hidden + code_row) // K_PARTS) + m.grid * _row_bytes(d.q_rank + q_code_row)
    return written, polled + s * rows


def _row_bytes(size: int) -> int:
    """Bytes that one wave asks for to load a row slice: whole accesses of 16 bytes a lane."""
    return cdiv(size, WAVE * LOAD) * WAVE * LOAD


def qkv_loads(d: Dims) -> int:
    """16-byte loads of two pairs that a lane of qkv polls: its q and kv columns of each K half."""
    return K_PARTS * (cdiv(d.q_rank, NORM_LANES * 8) * 4 + cdiv(d.kv_dim, NORM_LANES * 2))
