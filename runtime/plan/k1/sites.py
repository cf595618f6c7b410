"""Wait sites of K1 (attention.md 5.7 and 5.9)."""

from __future__ import annotations

from ..dims import Dims
from ..seam import NORM_LANES, gate_groups, gate_slices, norm_chunks, slices_of
from ..waits import Site, Wanted, batches_of, numbered
from .stages import K_PARTS
from .traffic import qkv_loads


def sites_of(d: Dims, rows: int) -> tuple[Site, ...]:
    """K1's wait sites in program order; each awaits every task of its producer."""
    columns = d.mix + 1
    pmix, lanes = slices_of(d) * columns, gate_groups(d) * columns
    qkvp, norm_loads = K_PARTS * d.qkv_rows, norm_chunks(d) * 2  # 8 columns are 4 pairs a chunk, two a load
    lin, gates, parts = d.hidden // 2, batches_of(gate_slices(d)), batches_of(qkv_loads(d))
    wanted = (
        Wanted("norm_lin", "norm", "slice", "lin", "pairs", lin, NORM_LANES, 2, batches_of(norm_loads), True),
        Wanted("gate_pmix", "gate", "slice", "pmix", "pairs", pmix, lanes, 1, gates, True),
        Wanted("wqkv_xrdy", "wqkv", "norm", "xrdy", "flags", rows, rows, 1, (1,), True),
        Wanted("qkv_qkvp", "qkv", "wqkv", "qkvp", "pairs", qkvp, NORM_LANES, 2, parts, True),
        Wanted("wq_b_qrdy", "wq_b", "qkv", "qrdy", "flags", rows, rows, 1, (1,), True),
    )  # fmt: skip
    return numbered(wanted)
