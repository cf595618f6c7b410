"""K2 on all ranks against the reference: its attention back, then the FFN half (compare_ffn)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..specs.schema import NumericsSpec
from . import attention_back as back
from .attention_back import Split
from .back_bounds import BackBounds
from .bounds import Operand, Value
from .compare_ffn import FfnComparison, Launches, intervals_of, values_of
from .ffn import FfnCase
from .formats import F64
from .formula import terms_of
from .front import key_table
from .interval import Interval
from .judging import quantised, stored
from .k2 import K2, K2Case
from .layer_regions import BackIntermediates, unpack_back
from .layer_sizes import LayerOrder, LayerSizes
from .layer_weights import BackWeights, FfnWeights
from .verdict import Judge, Verdict


class K2Comparison:
    """Verdicts of one launch on all ranks."""

    def __init__(
        self, case: K2Case, back_weights: Sequence[BackWeights], ffn_weights: Sequence[FfnWeights],
        sizes: LayerSizes, order: LayerOrder, numerics: Mapping[str, NumericsSpec], launches: Launches,
    ) -> None:  # fmt: skip
        self.case, self.sizes, self.order, self.launches = case, sizes, order, launches
        self.back_weights, self.ffn_weights, self.numerics = back_weights, ffn_weights, numerics["k2"]
        self.terms = terms_of(self.numerics, order.names(sizes), order.gemv)
        pairs = zip(back_weights, ffn_weights, strict=True)
        self.bounds = tuple(BackBounds(case, b, f, sizes, order, self.terms) for b, f in pairs)
        tail = FfnCase(case.rows, case.tp, case.fp8, case.seed, torch.zeros(0), case.res_in, case.post_in,
                       case.comb_in, case.pre_in)  # fmt: skip
        self.ffn = FfnComparison(tail, ffn_weights, sizes, order, numerics, launches, pushes=False)

    def _judge(self, stage: str) -> Judge:
        return Judge(self.numerics, stage)

    @property
    def tag(self) -> int:
        """The launch's tag."""
        return self.launches[0].tag

    @cached_property
    def kernel(self) -> tuple[BackIntermediates, ...]:
        """Intermediates of every rank."""
        rows, fp8 = self.case.rows, self.case.fp8
        return tuple(unpack_back(one.regions, self.sizes, self.order, rows, fp8) for one in self.launches)

    def _each(self, name: str, *inner: str) -> Tensor:
        out: list[Any] = list(self.kernel)
        for part in (name, *inner):
            out = [getattr(value, part) for value in out]
        return torch.stack(out)

    @cached_property
    def tables(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """Key table and lengths that each rank's kernel read."""
        rows, keys = self.case.rows, self.sizes.keys
        if not self.case.keys_inside:
            return tuple((self.case.kt, self.case.klen) for _ in self.launches)
        return tuple((one.outputs["kt"].reshape(-1)[: rows * keys].reshape(rows, keys),
                      one.outputs["klen"].reshape(-1)[: 2 * rows]) for one in self.launches)  # fmt: skip

    def _live(self, rank: int) -> Tensor:
        return back.live_chunks(self.tables[rank][1][: self.case.rows], self.order, self.sizes)

    # -------------------------------------------------------------- stages

    def stages(self) -> list[Verdict]:
        """Every stage, in the order of the kernel."""
        keys = self.kt() if self.case.keys_inside else []
        return keys + self.split() + self.combine() + self.wo_a() + self.wo_b() + self.ffn.stages()

    def kt(self) -> list[Verdict]:
        """Key table and lengths of builds that make them here."""
        judge, (kt, klen) = self._judge("kt"), key_table(self.case, self.sizes)
        tables, lengths = (torch.stack([t[i] for t in self.tables]) for i in (0, 1))
        return [
            judge.bits("kt", tables, kt.expand_as(tables)),
            judge.bits("klen", lengths, klen.expand_as(lengths)),
        ]

    def _unit(self, rank: int, row: int, chunk: int) -> tuple[Value, Value, Interval]:
        """Bounds of one split unit's results under the kernel's own largest score."""
        at = chunk * self.order.chunk
        entries = self.tables[rank][0][row, at : at + self.order.chunk]
        case, bounds = self.case, self.bounds[rank]
        keys = back.read_keys(entries, case.window_cache, case.compressed_cache, self.sizes)
        s = bounds.scores(keys, case.q[rank, row])
        p = bounds.weights_of(s, self.kernel[rank].split.top[row, chunk])
        return bounds.top(s), bounds.total(p), bounds.values(p, keys)

    def split(self) -> list[Verdict]:
        """Chunk partials of live units; flags of all units."""
        judge, got = self._judge("split"), [k.split for k in self.kernel]
        units = [(r, t, c) for r in range(len(got)) for t, c in torch.nonzero(self._live(r)).tolist()]
        if not units:
            return [self._flags(judge)]
        tops, totals, parts = zip(*(self._unit(*unit) for unit in units), strict=True)
        at = tuple(torch.tensor(units).T)
        top, total, part = (torch.stack([getattr(s, n) for s in got])[at] for n in ("top", "total", "part"))
        return [
            judge.bound("top", top, values_of(tops)),
            judge.bound("total", total, values_of(totals)),
            stored(judge, "part", part, intervals_of(parts)),
            self._flags(judge),
        ]

    def _flags(self, judge: Judge) -> Verdict:
        """Live units have this launch's flag; what dead units have is anything but that."""
        live = torch.stack([self._live(r) for r in range(len(self.kernel))])
        flags = self._each("srdy")
        want = torch.where(live[..., None], torch.tensor([1, self.tag], dtype=torch.int32), flags)
        stale = flags[..., 1] == self.tag
        want[..., 1] = torch.where(~live & stale, -1, want[..., 1])
        return judge.bits("srdy", flags, want)

    def combine(self) -> list[Verdict]:
        """Softmax over chunks, inverse rotation and MXFP8 from the kernel's partials."""
        judge, ends = self._judge("combine"), []
        for rank, bounds in enumerate(self.bounds):
            parts, live = self.kernel[rank].split, self._live(rank)
            clean = _kept(parts, live)
            ends.append(bounds.rotated_back(bounds.combined(clean, live)))
        xo = replace(self.kernel[0].xo, data=self._each("xo", "data"), codes=self._each("xo", "codes"))
        return [
            *quantised(judge, self.bounds[0], ("xos", "xo"), intervals_of(ends), xo),
            judge.flags("crdy", self._each("crdy"), self.tag),
        ]

    def wo_a(self) -> list[Verdict]:
        """Grouped projection and MXFP8 from the kernel's attention output."""
        judge = self._judge("wo_a")
        ends = [b.z(Operand.of_blocks(k.xo)) for b, k in zip(self.bounds, self.kernel, strict=True)]
        x8b = replace(self.kernel[0].x8b, data=self._each("x8b", "data"), codes=self._each("x8b", "codes"))
        return [
            *quantised(judge, self.bounds[0], ("x8bs", "x8b"), intervals_of(ends), x8b),
            judge.flags("ardy", self._each("ardy"), self.tag),
        ]

    def wo_b(self) -> list[Verdict]:
        """Each rank's partial in every rank's peer buffer."""
        judge, got = self._judge("wo_b"), self._each("attn", "value")
        ends = [b.part(Operand.of_blocks(k.x8b)) for b, k in zip(self.bounds, self.kernel, strict=True)]
        part = intervals_of(ends)
        every = Interval(part.lo.expand(got.shape), part.hi.expand(got.shape))
        return [
            stored(judge, "attn", got, every),
            judge.tags("attn_tags", self._each("attn", "tags"), self.tag),
        ]

    # -------------------------------------------------------------- end to end

    def end_to_end(self) -> list[Verdict]:
        """Partials and outputs against the exact form from the launch's inputs (and the kernel's routes)."""
        exact = K2(self.case, self.back_weights, self.ffn_weights, self.sizes, self.order, True)
        kt, klen = exact.keys()
        parts = torch.stack([exact.rank_back(r, kt, klen).part for r in range(self.case.tp)])
        got, noise = self._each("attn", "value"), self.terms["attn_noise"]
        budget = torch.tensor(noise, dtype=F64)
        verdict = self._judge("end_to_end").relative("attn", got, parts.expand_as(got), budget)
        return [verdict, *self.ffn.end_to_end(parts, noise)]


def _kept(parts: Split, live: Tensor) -> Split:
    """Partials of live units; nothing writes the others, so they hold what earlier launches left."""
    kept = live[..., None]
    top, total = (torch.where(kept, v, torch.zeros_like(v)) for v in (parts.top, parts.total))
    return Split(top, total, torch.where(kept[..., None], parts.part, torch.zeros_like(parts.part)))


def compare_k2_stages(
    case: K2Case, back_weights: Sequence[BackWeights], ffn_weights: Sequence[FfnWeights], sizes: LayerSizes,
    order: LayerOrder, numerics: Mapping[str, NumericsSpec], launches: Launches,
) -> list[Verdict]:  # fmt: skip
    """Verdicts of every stage of K2 from the kernel's own inputs to it."""
    return K2Comparison(case, back_weights, ffn_weights, sizes, order, numerics, launches).stages()


def compare_k2_end_to_end(
    case: K2Case, back_weights: Sequence[BackWeights], ffn_weights: Sequence[FfnWeights], sizes: LayerSizes,
    order: LayerOrder, numerics: Mapping[str, NumericsSpec], launches: Launches,
) -> list[Verdict]:  # fmt: skip
    """Verdicts of K2's results from its inputs alone (and the kernel's routes)."""
    return K2Comparison(case, back_weights, ffn_weights, sizes, order, numerics, launches).end_to_end()
