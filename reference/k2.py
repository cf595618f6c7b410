"""All of K2 on all ranks of a group, in either form: the attention back, then the FFN half on its partials.

A rank has its own queries, heads and output columns; caches, key table and residual are the same on all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import torch
from torch import Tensor

from . import attention_back as back
from .attention_back import Keys, Split
from .ffn import Ffn, FfnCase, FfnOutputs
from .formats import F32, F64, FLAVOURS, OCP, bf16
from .front import gemv_part, key_table
from .layer_sizes import LayerOrder, LayerSizes
from .layer_weights import BackWeights, FfnWeights
from .quant import Blocks, mxfp8
from .records import RecordCache

BF16 = torch.bfloat16


@dataclass(frozen=True)
class K2Case:
    """Inputs of one K2 launch, the same on every rank but for `q`; names are the launch arguments'.

    Builds with `keys_inside` make the key table themselves (index builds where the arch has no key-list
    kernel): kt and klen are then outputs, and what is here is what they must become.
    """

    rows: int
    tp: int
    ratio: int
    window: int
    fp8: str
    seed: int
    keys_inside: bool
    q: Tensor  # bf16 [tp, S, H, head_dim]
    swa: Tensor  # uint8
    swa_stride: int
    swa_block: int
    comp: Tensor  # uint8
    comp_stride: int
    comp_block: int
    kt: Tensor  # int32 [S, keys]
    klen: Tensor  # int32 [2 S]
    slot: Tensor  # int64 [S]
    swa_idx: Tensor  # int32 [S, window]
    swa_lens: Tensor  # int32 [S]
    t2r: Tensor  # int32 [S]
    topk: Tensor  # int32 [S, topk]
    comp_bt: Tensor  # int32 [requests, bt_stride]
    bt_stride: int
    pos: Tensor  # int64 [S]
    cos_sin: Tensor  # f32 [positions, rope]
    zrec: Tensor  # uint8 [1024], zeros
    res_in: Tensor  # bf16 [S, C, D]
    post_in: Tensor  # f32 [S, C]
    comb_in: Tensor  # f32 [S, C, C]
    pre_in: Tensor  # f32 [S, C]

    @property
    def live(self) -> Tensor:
        """bool [S]: rows that are not padding."""
        return self.slot >= 0

    @property
    def window_cache(self) -> RecordCache:
        """Window records: the arch's flavour."""
        return RecordCache(self.swa, self.swa_stride, self.swa_block, FLAVOURS[self.fp8])

    @property
    def compressed_cache(self) -> RecordCache | None:
        """Compressed records: OCP on every arch; None for layers that read no compressed cache."""
        return RecordCache(self.comp, self.comp_stride, self.comp_block, OCP) if self.ratio else None

    def arguments(self, rank: int, sizes: LayerSizes) -> dict[str, Tensor | int]:
        """Launch-argument name -> input of a rank (weights, outputs and runner buffers are apart)."""
        apart = ("rows", "tp", "ratio", "window", "fp8", "seed", "keys_inside", "q")
        same: dict[str, Tensor | int] = {}
        same |= {f.name: getattr(self, f.name) for f in fields(self) if f.name not in apart}
        scale = int(back.qk_scale(sizes).view(torch.int32))
        return same | {"q": self.q[rank], "qk_scale": scale}


@dataclass(frozen=True)
class RankBack:
    """What the attention back of one rank hands on."""

    split: Split
    xo: Blocks  # [S, H * head_dim]
    x8b: Blocks  # [S, o_rows]
    part: Tensor  # bf16 [S, D]


@dataclass(frozen=True)
class K2Outputs:
    """The key table, what each rank's back hands on, and the FFN half with the launch's outputs."""

    kt: Tensor
    klen: Tensor
    back: tuple[RankBack, ...]
    ffn: FfnOutputs

    def tensors(self, keys_inside: bool) -> dict[str, Tensor]:
        """Launch-argument name -> output tensor."""
        return self.ffn.tensors() | ({"kt": self.kt, "klen": self.klen} if keys_inside else {})


class K2(Ffn):
    """One evaluation, a method a stage; the FFN half is inherited and fed with the back's partials."""

    def __init__(
        self,
        case: K2Case,
        back_weights: Sequence[BackWeights],
        ffn_weights: Sequence[FfnWeights],
        sizes: LayerSizes,
        order: LayerOrder | None = None,
        exact: bool = False,
    ) -> None:
        tail = FfnCase(case.rows, case.tp, case.fp8, case.seed, torch.zeros(0), case.res_in, case.post_in,
                       case.comb_in, case.pre_in)  # fmt: skip
        super().__init__(tail, ffn_weights, sizes, order, exact)
        self.k2case, self.back_weights = case, tuple(back_weights)

    # -------------------------------------------------------------- keys

    def keys(self) -> tuple[Tensor, Tensor]:
        """2.6: kt int32 [S, keys] and klen int32 [2 S]."""
        if not self.k2case.keys_inside:
            return self.k2case.kt, self.k2case.klen
        return key_table(self.k2case, self.sizes)

    def read(self, kt: Tensor, row: int, chunk: int) -> Keys:
        """Keys of one split unit; entries past the table's end are no keys."""
        at = chunk * self.order.chunk
        case = self.k2case
        return back.read_keys(kt[row, at : at + self.order.chunk], case.window_cache, case.compressed_cache,
                              self.sizes)  # fmt: skip

    # -------------------------------------------------------------- attention

    def split(self, rank: int, kt: Tensor, klen: Tensor) -> Split:
        """4.1: chunk partials."""
        rows, sizes, chunks = self.k2case.rows, self.sizes, self.order.chunks(self.sizes)
        dtype, small = (F64, F64) if self.exact else (F32, BF16)
        m = torch.zeros(rows, chunks, sizes.heads, dtype=dtype)
        out = Split(m, m.clone(), torch.zeros(rows, chunks, sizes.heads, sizes.head_dim, dtype=small))
        live = back.live_chunks(klen[:rows], self.order, sizes)
        for row, chunk in torch.nonzero(live).tolist():
            unit = self.unit(self.read(kt, row, chunk), self.k2case.q[rank, row])
            out.top[row, chunk], out.total[row, chunk], out.part[row, chunk] = unit
        return out

    def unit(self, keys: Keys, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One split unit: (m, l, o)."""
        if not self.exact:
            return back.split(keys, q, self.sizes, self.order)
        m, total, o = back.split_exact(keys, q, self.sizes)
        return m, total, bf16(o)

    def combined(self, rank: int, parts: Split, klen: Tensor) -> Tensor:
        """4.3: bf16 [S, H, head_dim]."""
        live = back.live_chunks(klen[: self.k2case.rows], self.order, self.sizes)
        sink = self.back_weights[rank].sink
        if self.exact:
            return bf16(back.combine_exact(parts, sink, live)).to(BF16)
        return back.combine(parts, sink, live)

    def rotated_back(self, o: Tensor) -> Tensor:
        """4.4 before MXFP8: unrounded [S, H, head_dim]."""
        half = self.sizes.rope // 2
        table = self.k2case.cos_sin[self.k2case.pos].to(F64 if self.exact else F32)
        return back.rotate_back(o.to(table.dtype), table[:, :half], table[:, half:], self.sizes.nope)

    def xo(self, y: Tensor) -> Blocks:
        """4.4: MXFP8 in groups of a head's dims."""
        return mxfp8(y.flatten(1), self.sizes.group, self.flavour)

    def z(self, rank: int, xo: Blocks) -> Tensor:
        """4.5: bf16 [S, o_rows]."""
        w = self.back_weights[rank].values("woa")
        y = back.grouped(xo.values(), w, self.sizes, None if self.exact else self.order)
        return (bf16(y) if self.exact else y).to(BF16)

    def x8b(self, z: Tensor) -> Blocks:
        """4.5: its MXFP8."""
        return mxfp8(z, self.sizes.group, self.flavour)

    def part(self, rank: int, x8b: Blocks) -> Tensor:
        """4.6: bf16 [S, D], the rank's partial."""
        x, w = x8b.values(), self.back_weights[rank].values("wob")
        return (bf16(x @ w.T) if self.exact else gemv_part(x, w, self.order)).to(BF16)

    # -------------------------------------------------------------- all of it

    def rank_back(self, rank: int, kt: Tensor, klen: Tensor) -> RankBack:
        """The attention back of one rank."""
        parts = self.split(rank, kt, klen)
        xo = self.xo(self.rotated_back(self.combined(rank, parts, klen)))
        x8b = self.x8b(self.z(rank, xo))
        return RankBack(parts, xo, x8b, self.part(rank, x8b))

    def pushed(self) -> Tensor:
        """Every rank's partial as all ranks receive it."""
        return torch.stack([rank.part for rank in self.backs])

    @cached_property
    def backs(self) -> tuple[RankBack, ...]:
        """The attention back of every rank."""
        kt, klen = self.keys()
        return tuple(self.rank_back(r, kt, klen) for r in range(self.k2case.tp))

    def run_all(self) -> K2Outputs:
        """All stages on all ranks."""
        return K2Outputs(*self.keys(), self.backs, self.run())


def k2_outputs(
    case: K2Case,
    back_weights: Sequence[BackWeights],
    ffn_weights: Sequence[FfnWeights],
    sizes: LayerSizes,
    order: LayerOrder | None = None,
    form: str = "promised",
) -> K2Outputs:
    """Evaluate K2 on all ranks; weights have one entry a rank."""
    return K2(case, back_weights, ffn_weights, sizes, order, form == "exact").run_all()
