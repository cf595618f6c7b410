"""A kernel's launch against the reference: stage by stage from its own intermediates, and end to end.

Stage by stage, each stage's reference is computed from what the kernel itself fed to that stage, so one wrong
stage gives one wrong verdict and the rest of the table stays meaningful.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..specs.schema import NumericsSpec
from . import front, seam
from .bounds import K1Bounds, Operand, Value
from .case import K1Case
from .formats import F64
from .formula import terms_of
from .interval import Interval
from .judging import quantised, stored
from .launch import Launch
from .quant import RECORD, Blocks
from .regions import Intermediates, unpack
from .sizes import K1Sizes, SumOrder
from .verdict import Judge, Verdict
from .weights import K1Weights


@dataclass(frozen=True)
class Record:
    """Records of the live rows, read back from the cache."""

    nope: Blocks  # [live, nope]
    rope: Tensor  # bf16 [live, rope]


class Comparison:
    """Verdicts of one launch."""

    def __init__(
        self,
        case: K1Case,
        weights: K1Weights,
        sizes: K1Sizes,
        order: SumOrder,
        numerics: NumericsSpec,
        launch: Launch,
    ) -> None:
        self.case, self.weights, self.sizes, self.launch = case, weights, sizes, launch
        self.numerics, self.order = numerics, order
        terms = terms_of(numerics, order.names(sizes), order.gemv)
        self.bounds = K1Bounds(case, weights, sizes, order, terms)

    def _judge(self, stage: str) -> Judge:
        return Judge(self.numerics, stage)

    def _out(self, name: str) -> Tensor:
        shapes = {
            "res_out": (self.case.rows, self.sizes.streams, self.sizes.hidden),
            "post_out": (self.case.rows, self.sizes.streams),
            "comb_out": (self.case.rows, self.sizes.streams, self.sizes.streams),
            "pre_out": (self.case.rows, self.sizes.streams),
            "q": (self.case.rows, self.sizes.heads, self.sizes.head_dim),
            "kt": (self.case.rows, self.sizes.keys),
            "klen": (2 * self.case.rows,),
            "normed_out": (self.case.rows, self.sizes.hidden),
            "qr_out": (self.case.rows, self.sizes.q_rank),
            "swa": tuple(self.case.swa.shape),
        }
        return self.launch.outputs[name].reshape(shapes[name])

    @cached_property
    def kernel(self) -> Intermediates:
        """The launch's intermediates."""
        return unpack(self.launch.regions, self.sizes, self.order, self.case.rows, self.case.fp8)

    @cached_property
    def record(self) -> Record:
        """Live rows' records in the cache after the launch."""
        cache, sizes = self._out("swa"), self.sizes
        data, scales = [], []
        for row in torch.nonzero(self.case.live).flatten().tolist():
            at, scale_at = front.record_address(self.case, sizes, row)
            data.append(cache[at : at + sizes.record_data_bytes])
            scales.append(cache[scale_at : scale_at + sizes.record_scale_bytes])
        values, codes = torch.stack(data), torch.stack(scales)
        groups = sizes.nope // sizes.record_group
        nope = Blocks(values[:, : sizes.nope], codes[:, :groups].to(torch.int32), self.bounds.flavour)
        rope = values[:, sizes.nope :].contiguous().view(torch.bfloat16)
        return Record(nope, rope)

    # -------------------------------------------------------------- stages

    def stages(self) -> list[Verdict]:
        """Every stage, in the order of the kernel."""
        kt = [] if self.case.index else self.kt()
        return self.slice() + self.gate() + self.norm() + kt + self.wqkv() + self.qkv() + self.wq_b()

    def _residual(self) -> Tensor:
        case = self.case
        return seam.residual_of(case.res_in, case.pend, case.post_in, case.comb_in, case.fold, exact=False)

    def slice(self) -> list[Verdict]:
        """Fold, collapse and the slices' projections."""
        judge, kernel, residual = self._judge("slice"), self.kernel, self._out("res_out")
        mix = self.bounds.partials(residual)
        last = self.sizes.mix
        return [
            judge.bits("res_out", residual, self._residual()),
            judge.bits("lin", kernel.lin, seam.collapse(residual, self.case.pre_in)),
            judge.tags("lin_tags", kernel.lin_tags, self.launch.tag),
            judge.bound("pmix", kernel.pmix[..., :last], Value(mix.exact[..., :last], mix.error[..., :last])),
            judge.bound(
                "pmix_squares", kernel.pmix[..., last], Value(mix.exact[..., last], mix.error[..., last])
            ),
            judge.tags("pmix_tags", kernel.pmix_tags, self.launch.tag),
        ]

    def gate(self) -> list[Verdict]:
        """Gates from the kernel's partial projections."""
        partial = self.kernel.pmix.to(F64)
        values = self.bounds.gates(Value(partial, torch.zeros_like(partial)))
        judge = self._judge("gate")
        return [judge.bound(name, self._out(name), value) for name, value in values.items()]

    def norm(self) -> list[Verdict]:
        """RMSNorm and MXFP8 of the kernel's layer input."""
        judge = self._judge("norm")
        y = self.bounds.norm(Interval.point(self.kernel.lin), self.weights.attn_w, "norm_rstd")
        verdicts: list[Verdict] = []
        if self.case.index:
            normed = self._out("normed_out")
            verdicts.append(stored(judge, "normed", normed, y))
            y = Interval.point(normed)
        verdicts += quantised(judge, self.bounds, ("x8s", "x8"), y, self.kernel.x8)
        return [*verdicts, judge.flags("xrdy", self.kernel.xrdy, self.launch.tag)]

    def kt(self) -> list[Verdict]:
        """Key table and lengths."""
        kt, klen = front.key_table(self.case, self.sizes)
        judge = self._judge("kt")
        return [judge.bits("kt", self._out("kt"), kt), judge.bits("klen", self._out("klen"), klen)]

    def wqkv(self) -> list[Verdict]:
        """Fused wq_a / wkv from the kernel's MXFP8."""
        judge = self._judge("wqkv")
        parts = self.bounds.wqkv(Operand.of_blocks(self.kernel.x8))
        value = Value(parts.middle, (parts.hi - parts.lo) / 2)
        return [
            judge.bound("qkvp", self.kernel.qkvp, value),
            judge.tags("qkvp_tags", self.kernel.qkvp_tags, self.launch.tag),
        ]

    def qkv(self) -> list[Verdict]:
        """Both norms, MXFP8 of the query latent, and the record, from the kernel's partials."""
        judge, sizes = self._judge("qkv"), self.sizes
        rows = self.bounds.qkv(Interval.point(self.kernel.qkvp))
        y = self.bounds.norm(rows[:, : sizes.q_rank], self.weights.qn_w, "q_rstd")
        verdicts: list[Verdict] = []
        if self.case.index:
            qr = self._out("qr_out")
            verdicts.append(stored(judge, "qr", qr, y))
            y = Interval.point(qr)
        verdicts += quantised(judge, self.bounds, ("qx8s", "qx8"), y, self.kernel.qx8)
        verdicts.append(judge.flags("qrdy", self.kernel.qrdy, self.launch.tag))
        kn = self.bounds.norm(rows[:, sizes.q_rank :], self.weights.kvn_w, "kv_rstd")
        return verdicts + self._record(judge, kn) + [self._cache_rest(judge)]

    def _record(self, judge: Judge, kn: Interval) -> list[Verdict]:
        live, nope = self.case.live, self.sizes.nope
        turned = self.bounds.rotated(kn[:, nope:])[live]
        names = ("record_codes", "record_nope")
        return [
            *quantised(judge, self.bounds, names, kn[live][:, :nope], self.record.nope, RECORD),
            stored(judge, "record_rope", self.record.rope, turned),
        ]

    def _cache_rest(self, judge: Judge) -> Verdict:
        """The cache with the kernel's own records taken as given: every other byte must be as before."""
        data, scales = front.record_bytes(self.record.nope, self.record.rope.to(F64), self.sizes)
        shape = (self.case.rows, data.shape[1]), (self.case.rows, scales.shape[1])
        full = [torch.zeros(s, dtype=torch.uint8) for s in shape]
        full[0][self.case.live], full[1][self.case.live] = data, scales
        # NaN payloads would not survive the detour over values, so values are taken from the cache itself.
        want = front.write_records(self.case, self.sizes, self._raw_records(full[0]), full[1])
        return judge.bits("swa_rest", self._out("swa"), want)

    def _raw_records(self, like: Tensor) -> Tensor:
        raw, cache = like.clone(), self._out("swa")
        for row in torch.nonzero(self.case.live).flatten().tolist():
            at, _ = front.record_address(self.case, self.sizes, row)
            raw[row] = cache[at : at + like.shape[1]]
        return raw

    def wq_b(self) -> list[Verdict]:
        """wq_b and its rotation from the kernel's MXFP8."""
        judge, nope = self._judge("wq_b"), self.sizes.nope
        u = self.bounds.wqb(Operand.of_blocks(self.kernel.qx8))
        q = self._out("q")
        return [
            stored(judge, "q_nope", q[..., :nope], u[..., :nope]),
            stored(judge, "q_rope", q[..., nope:], self.bounds.rotated(u[..., nope:])),
        ]

    # -------------------------------------------------------------- end to end

    def end_to_end(self) -> list[Verdict]:
        """Outputs against intervals carried from the launch's inputs."""
        judge, bounds, sizes = self._judge("end_to_end"), self.bounds, self.sizes
        residual = self._residual()
        verdicts = [
            judge.bound(n, self._out(n), v) for n, v in bounds.gates(bounds.partials(residual)).items()
        ]
        lin = Interval.point(seam.collapse(residual, self.case.pre_in))
        y = bounds.norm(lin, self.weights.attn_w, "norm_rstd")
        rows = bounds.qkv(bounds.wqkv(bounds.operand(y, sizes.group)))
        qn = bounds.norm(rows[:, : sizes.q_rank], self.weights.qn_w, "q_rstd")
        if self.case.index:
            verdicts.append(stored(judge, "normed", self._out("normed_out"), y))
            verdicts.append(stored(judge, "qr", self._out("qr_out"), qn))
        kn = bounds.norm(rows[:, sizes.q_rank :], self.weights.kvn_w, "kv_rstd")
        u = bounds.wqb(bounds.operand(qn, sizes.group))
        rotated = bounds.rotated(u[..., sizes.nope :])
        full = Interval(*(torch.cat(v, -1) for v in ((u.lo[..., : sizes.nope], rotated.lo),
                                                     (u.hi[..., : sizes.nope], rotated.hi))))  # fmt: skip
        return verdicts + self._record_end_to_end(judge, kn) + [stored(judge, "q", self._out("q"), full)]

    def _record_end_to_end(self, judge: Judge, kn: Interval) -> list[Verdict]:
        """Record values: dequantised ones lie within what any allowed code gives."""
        live, sizes = self.case.live, self.sizes
        allowed = self.bounds.operand(kn[live][:, : sizes.nope], sizes.record_group, RECORD).values
        rope = self.bounds.rotated(kn[:, sizes.nope :])[live]
        # Dequantised e4m3 values are bf16 values, so their distance is counted in bf16 steps.
        return [
            stored(judge, "record_nope", self.record.nope.values(), allowed),
            stored(judge, "record_rope", self.record.rope, rope),
        ]


def compare_stages(
    case: K1Case, weights: K1Weights, sizes: K1Sizes, order: SumOrder, numerics: NumericsSpec, launch: Launch
) -> list[Verdict]:
    """Verdicts of every stage from the kernel's own inputs to it."""
    return Comparison(case, weights, sizes, order, numerics, launch).stages()


def compare_end_to_end(
    case: K1Case, weights: K1Weights, sizes: K1Sizes, order: SumOrder, numerics: NumericsSpec, launch: Launch
) -> list[Verdict]:
    """Verdicts of every output from the launch's inputs alone."""
    return Comparison(case, weights, sizes, order, numerics, launch).end_to_end()


__all__ = ["Comparison", "Launch", "Verdict", "compare_end_to_end", "compare_stages"]
